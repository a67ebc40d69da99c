"""O29: the client goes away in the middle of the stream. Real sockets, a real server; by both ways to stream."""

import time
from typing import Any
from uuid import uuid4

import pytest
import requests

from memorygw.testing import ScriptedModelServer
from memorygw.testing.answers import Piece
from tests.e2e.conftest import Caller, Gateway, wait_for

STALL = 60
WEATHER = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}


def delta(**values: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": values, "finish_reason": None}]}


STREAMS: dict[str, tuple[list[Piece], list[tuple[str, str, str]]]] = {
    "in a call": (
        [
            delta(tool_calls=[{"index": 0, "id": "s1", "function": {"name": "weather", "arguments": ""}}]),
            delta(tool_calls=[{"index": 0, "function": {"arguments": '{"cit'}}]),
        ],
        [],
    ),
    "in a sentence": (["The answer is", " 42"], [("assistant", "The answer is 42", "interrupted")]),
    "before the first word": ([], []),
}


def stream(caller: Caller, way: str, thread_id: str, user: str) -> requests.Response:
    """Ask for a stream, and have its beginning."""
    question: Any = {"content": "hello", "stream": True, "tools": [WEATHER]}
    path, headers = f"/api/v1/threads/{thread_id}/ask", {"Authorization": f"Bearer {caller.key}"}
    if way == "chat":
        question = {
            "model": "main",
            "messages": [{"role": "user", "content": "hello"}],
            "stream": True,
            "tools": [WEATHER],
        }
        path, headers = "/v1/chat/completions", headers | {"X-Memorygw-Thread": thread_id}
    url = f"{caller.gateway.base_url}{path}?user={user}"
    return requests.post(url, json=question, headers=headers, stream=True, timeout=60)


@pytest.mark.parametrize("way", ["ask", "chat"])
@pytest.mark.parametrize("moment", STREAMS)
def test_what_is_left_is_a_thread_that_goes_on(
    running: Gateway, e2e_model: ScriptedModelServer, moment: str, way: str
) -> None:
    pieces, kept = STREAMS[moment]
    caller, user = running.key("acme"), uuid4().hex
    thread_id = caller("POST", "/threads", {}, user=user, expect=201)["id"]
    e2e_model.stream(*pieces, STALL, model="main")
    given_up = e2e_model.given_up
    response = stream(caller, way, thread_id, user)
    e2e_model.wait_for_requests(1, model="main")
    heard = ""
    while pieces and "42" not in heard and "nothing yet" not in heard:
        heard += response.raw.read1(1000).decode()
    left = time.monotonic()
    response.close()

    e2e_model.wait_until_given_up(given_up + 1)
    wait_for(lambda: len(caller.turns(thread_id, user=user)) == 1 + len(kept), "what was said")
    assert time.monotonic() - left < 5
    stored = [(turn["role"], turn["content"], turn["status"]) for turn in caller.turns(thread_id, user=user)]
    assert stored == [("user", "hello", "complete"), *kept]
    wait_for(lambda: _is_free(caller, thread_id, user), "the thread")
    caller.ask("hello again", user=user, thread_id=thread_id)
    sent = [message for message in e2e_model.requests_for("main")[-1].messages if message["role"] != "system"]
    assert [message["role"] for message in sent] == ["user", *[role for role, _, _ in kept], "user"]
    assert all(message["content"] and "tool_calls" not in message for message in sent)


def _is_free(caller: Caller, thread_id: str, user: str) -> bool:
    held = caller.send("POST", f"/threads/{thread_id}/lease", {}, user=user)
    if held.status_code == 201:
        caller("POST", f"/threads/{thread_id}/lease/release", {"token": held.json()["token"]}, user=user, expect=204)
    return held.status_code == 201
