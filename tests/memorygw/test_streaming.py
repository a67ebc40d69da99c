"""An answer told as it happens, and what is left when the telling breaks (K17)."""

import json
import time
from collections.abc import Iterator
from itertools import islice
from typing import Any

import pytest
from pytest_django import Settings

from memorygw import gateway
from memorygw.exceptions import ModelFailedError, RunCancelledError
from memorygw.gateway import Event
from memorygw.models import ModelCall, Tenant
from memorygw.testing import ScriptedModelServer
from memorygw.testing.answers import Piece
from tests.conftest import Api
from tests.memorygw.runs import CLIENT_TOOL, call
from threads.models import Run, Thread, Turn


def text(events: list[Event]) -> str:
    return "".join(event.value for event in events if event.kind == "delta")


def kinds(events: list[Event]) -> list[str]:
    """Without repetitions."""
    names = [event.kind for event in events]
    return [name for index, name in enumerate(names) if index == 0 or names[index - 1] != name]


def saved(tenant: Tenant) -> list[tuple[str, Any, str]]:
    return list(Turn.objects.order_by("thread__created_at", "seq").values_list("role", "content", "status"))


def is_free(tenant: Tenant) -> bool:
    return not Thread.objects.leased().exists() and not Run.objects.filter(status="running").exists()


def test_an_answer_comes_in_pieces_and_is_stored_whole(tenant: Tenant, model: ScriptedModelServer) -> None:
    model.stream("It ", "is ", "noon.", model="main")
    events = list(gateway.stream(tenant, "ada", "What time is it?"))
    assert kinds(events) == ["run", "turn", "delta", "turn", "done"]
    assert [event.value for event in events if event.kind == "delta"] == ["It ", "is ", "noon."]
    answer = events[-1].value
    assert (answer.answer.content, answer.run.status) == ("It is noon.", "completed")
    assert saved(tenant) == [("user", "What time is it?", "complete"), ("assistant", "It is noon.", "complete")]
    assert is_free(tenant)
    assert model.requests[-1].body["stream_options"] == {"include_usage": True}


@pytest.mark.rows("A3")
def test_a_stream_is_told_what_is_known_and_is_learned_from(tenant: Tenant, model: ScriptedModelServer) -> None:
    gateway.upsert_user_fact(tenant, "ada", "drink", "tea")
    [*_, done] = gateway.stream(tenant, "ada", "Hello")
    assert "drink: tea" in model.requests_for("main")[-1].system
    assert done.value.usage == {"prompt_tokens": 10, "completion_tokens": 5}
    assert ModelCall.objects.get().outcome == "ok"


def test_tools_are_told_too(tenant: Tenant, model: ScriptedModelServer, settings: Settings) -> None:
    settings.MEMORYGW_MEMORY_TOOLS = "persona"
    model.reply("Let me see.", model="main", tool_calls=[call("memory_recall", query="tea"), call("get_time", "c2")])
    events = list(gateway.stream(tenant, "ada", "Hello", tools=[CLIENT_TOOL]))
    tools = [(event.value.tool_call_id, event.value.status) for event in events if event.kind == "tool"]
    assert tools == [("c1", "started"), ("c1", "finished"), ("c2", "waiting")]
    paused = events[-1].value
    assert (text(events), paused.answer, paused.run.status) == ("Let me see.", None, "awaiting_human")
    model.stream("Noon.", model="main")
    decisions = [gateway.Decision(tool_call_id="c2", content="12")]
    events = list(gateway.stream_continued(tenant, "ada", paused.run.id, decisions))
    assert (text(events), events[-1].value.answer.content) == ("Noon.", "Noon.")


# --- streams that break


def test_what_was_said_before_the_client_went_away_is_kept(tenant: Tenant, model: ScriptedModelServer) -> None:
    model.stream("One ", "two ", 30, "three", model="main")
    events = gateway.stream(tenant, "ada", "Count")
    said = [event.value for event in islice(only_text(events), 2)]
    started = time.monotonic()
    events.close()
    assert said == ["One ", "two "]
    assert saved(tenant)[-1] == ("assistant", "One two ", "interrupted")
    assert is_free(tenant)
    model.wait_until_given_up()
    assert time.monotonic() - started < 5
    assert ModelCall.objects.get().outcome == "given_up"


def only_text(events: Iterator[Event]) -> Iterator[Event]:
    return (event for event in events if event.kind == "delta")


def test_a_silent_model_is_told_as_silence(tenant: Tenant, model: ScriptedModelServer) -> None:
    model.stream(30, "never", model="main")
    events = gateway.stream(tenant, "ada", "Count")
    assert next(event.kind for event in events if event.kind not in ("run", "turn")) == "silence"
    events.close()
    model.wait_until_given_up()
    assert saved(tenant) == [("user", "Count", "complete")]
    assert is_free(tenant)


BROKEN_CALL: dict[str, Any] = {
    "choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0, "id": "c1", "function": {"name": "get_time"}}]}}]
}


@pytest.mark.parametrize(
    ("pieces", "kept"),
    [
        (["One ", "two"], "One two"),
        ([], None),
        ([" ", "\n"], None),
        (["One ", BROKEN_CALL], "One "),
        ([BROKEN_CALL], None),
        (["One ", b'data: {"error": {"message": "overloaded", "type": "server_error"}}\n\n'], "One "),
        (["One ", b"data: {broken\n\n"], "One "),
    ],
    ids=["cut", "cut at once", "blank", "half a call", "only half a call", "an error event", "no JSON"],
)
def test_what_an_upstream_that_broke_had_said_is_kept(
    tenant: Tenant, model: ScriptedModelServer, pieces: list[Any], kept: str | None
) -> None:
    model.stream(*pieces, ends=False, model="main")
    with pytest.raises(ModelFailedError) as failed:
        list(gateway.stream(tenant, "ada", "Count"))
    thread_id = failed.value.details["thread_id"]
    interrupted = [("assistant", kept, "interrupted")] if kept else []
    assert saved(tenant) == [("user", "Count", "complete"), *interrupted]
    assert is_free(tenant)
    assert Run.objects.get().status == "failed"
    gateway.ask(tenant, "ada", "Again", thread_id=thread_id)
    sent = [(message["role"], message["content"]) for message in model.requests_for("main")[-1].messages]
    assert sent == [("user", "Count"), *[("assistant", kept)] * bool(kept), ("user", "Again")]


def delta(**values: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": values, "finish_reason": None}]}


def call_part(index: int, call_id: str | None = None, name: str | None = None, arguments: str = "") -> dict[str, Any]:
    part: dict[str, Any] = {"index": index, "function": {"name": name, "arguments": arguments}}
    return delta(tool_calls=[part | ({"id": call_id} if call_id else {})])


@pytest.mark.parametrize(
    ("pieces", "calls"),
    [
        ([call_part(0, "a", "one", '{"x"'), call_part(0, None, None, ": 1}")], [("a", "one", '{"x": 1}')]),
        ([call_part(0, "a", "one", "{}"), call_part(0, "b", "two", "{}")], [("a", "one", "{}"), ("b", "two", "{}")]),
        ([call_part(0, "a", "one", "{"), call_part(0, "a", "one", "}")], [("a", "one", "{}")]),
        ([delta(tool_calls=[{"index": 0, "id": "a"}]), call_part(0, None, "one", "{}")], [("a", "one", "{}")]),
        (
            [call_part(1, "b", "two", "{"), call_part(0, "a", "one", "{}"), call_part(1, None, None, "}")],
            [("b", "two", "{}"), ("a", "one", "{}")],
        ),
    ],
    ids=["parts", "one index twice", "an id repeated", "an id alone", "in turns"],
)
def test_calls_are_put_together_from_parts(
    tenant: Tenant, model: ScriptedModelServer, pieces: list[dict[str, Any]], calls: list[tuple[str, str, str]]
) -> None:
    model.stream({"choices": []}, *pieces, model="main")
    one, two = ({"type": "function", "function": {"name": name}} for name in ("one", "two"))
    [*_, done] = gateway.stream(tenant, "ada", "Hello", tools=[one, two])
    pending = [(item["tool_call_id"], item["name"], item["arguments"]) for item in done.value.run.pending]
    assert pending == calls


def test_a_character_in_two_chunks_is_whole(tenant: Tenant, model: ScriptedModelServer) -> None:
    halves = [json.dumps(delta(content=half)).encode() for half in ("Hi \ud83d", "\ude00!", "\ud83d")]
    model.stream(*(b"data: %s\n\n" % half for half in halves), model="main")
    events = list(gateway.stream(tenant, "ada", "Hello"))
    assert text(events) == events[-1].value.answer.content == "Hi 😀!"


def test_a_stream_without_its_last_line_is_whole_when_the_model_was_done(
    tenant: Tenant, model: ScriptedModelServer
) -> None:
    model.stream("Yes.", {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}, ends=False, model="main")
    [*_, done] = gateway.stream(tenant, "ada", "Hello")
    assert done.value.answer.content == "Yes."


WORDS: list[Piece] = ["word ", 0.4]
PAUSES: list[Piece] = [0.2, "more "]


def test_an_answer_that_takes_longer_than_a_lease_keeps_it(
    tenant: Tenant, model: ScriptedModelServer, settings: Settings
) -> None:
    settings.MEMORYGW_LEASE_SECONDS = 2
    model.stream(*WORDS * 8, model="main")
    events = gateway.stream(tenant, "ada", "Hello")
    run = next(events).value
    for event in events:
        if event.kind == "delta":
            assert Thread.objects.leased().filter(pk=run.thread_id).exists()
    assert Run.objects.get().status == "completed"


def test_a_run_that_is_cancelled_stops_speaking(tenant: Tenant, model: ScriptedModelServer, settings: Settings) -> None:
    settings.MEMORYGW_LEASE_SECONDS = 1
    model.stream("One ", *PAUSES * 50, model="main")
    events = gateway.stream(tenant, "ada", "Hello")
    run = next(events).value
    next(only_text(events))
    gateway.cancel_run(tenant, "ada", run.id)
    with pytest.raises(RunCancelledError):
        list(events)
    model.wait_until_given_up()
    assert is_free(tenant)


# --- over HTTP


def sent_events(
    api: Api, path: str, body: dict[str, Any], headers: dict[str, str] | None = None
) -> list[tuple[str, Any]]:
    headers = {"Authorization": f"Bearer {api.key}", **(headers or {})}
    response = api.client.post(f"/api/v1{path}?user=ada", body, content_type="application/json", headers=headers)
    assert (response.status_code, response["Content-Type"]) == (200, "text/event-stream")
    blocks = b"".join(response).decode().strip().split("\n\n")
    lines = [block.split("\n") for block in blocks if not block.startswith(":")]
    return [(name.removeprefix("event: "), json.loads(data.removeprefix("data: "))) for name, data in lines]


def test_the_events_are_those_of_the_contract(api: Api, model: ScriptedModelServer) -> None:
    model.stream("It ", "is\u2028noon.", model="main")
    events = sent_events(api, "/ask", {"content": "Hello", "stream": True})
    assert [name for name, _ in events] == ["run", "turn", "delta", "delta", "turn", "done"]
    (_, run), (_, turn), (_, first), *_, (_, done) = events
    assert (run["status"], turn["role"], first) == ("running", "user", {"text": "It "})
    assert done["answer"]["content"] == "It is\u2028noon."
    assert done["run"] == api("GET", f"/runs/{run['id']}").body
    assert set(done) == {"thread_id", "run", "answer", "turns", "usage", "warnings"}


def test_what_goes_wrong_later_is_an_event_and_before_that_a_status(api: Api, model: ScriptedModelServer) -> None:
    model.stream("One ", ends=False, model="main")
    *_, (name, error) = sent_events(api, "/ask", {"content": "Hello", "stream": True})
    assert (name, error["error"]["code"]) == ("error", "model_failed")
    assert set(error["error"]) >= {"thread_id", "run_id", "message", "user_message"}
    refused = api("POST", "/threads/00000000-0000-7000-8000-000000000000/ask", {"content": "Hello", "stream": True})
    assert (refused.status, refused.error["code"]) == (404, "thread_not_found")


def test_a_streamed_request_that_is_sent_again_gets_the_same_answer(api: Api, model: ScriptedModelServer) -> None:
    headers = {"Authorization": f"Bearer {api.key}", "Idempotency-Key": "k-1"}
    bodies = []
    for _ in range(2):
        response = api.client.post(
            "/api/v1/ask?user=ada",
            {"content": "Hello", "stream": True},
            content_type="application/json",
            headers=headers,
        )
        bodies.append(b"".join(response).decode().rpartition("event: done")[2])
    assert bodies[0] == bodies[1]
    assert len(model.requests_for("main")) == 1
