"""Steps that several cases share."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from memorygw.testing import ScriptedModelServer
from tests.conftest import Api, background, extractions, learn


def put(key: str, value: str) -> dict[str, Any]:
    return {"op": "SET", "key": key, "value": value}


def drop(key: str) -> dict[str, Any]:
    return {"op": "DELETE", "key": key}


def extract(api: Api, model: ScriptedModelServer, *operations: dict[str, Any]) -> str:
    """A new conversation of the user, from which one extraction proposes these operations; its thread's id."""
    already = len(extractions(model))
    model.reply({"operations": list(operations)}, model="cheap")
    thread_id: str = api.ask("Let me tell you something.").body["thread_id"]
    learn()
    assert len(extractions(model)) == already + 1
    return thread_id


def fact(api: Api, key: str) -> dict[str, Any]:
    """The whole fact that is shown under exactly this key."""
    [found] = [item for item in api("GET", "/facts").body["items"] if item["key"] == key]
    return dict(found)


@contextmanager
def at_work(task: Any, thread_id: str, model: ScriptedModelServer) -> Iterator[None]:
    """The task is at work on the thread, waiting for its model; at the end the model answers and the task is over."""
    already = len(model.requests_for("cheap"))
    with ThreadPoolExecutor(1) as pool:
        with model.hold(model="cheap"):
            late = background(pool, task, thread_id)
            model.wait_for_requests(already + 1, model="cheap")
            yield
        late.result()
