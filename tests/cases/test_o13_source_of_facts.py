"""O13: where facts may come from, and when they were said. Rules K7, K10."""

from datetime import datetime

import pytest
import regex

from memorygw.testing import ScriptedModelServer
from tests.conftest import Api, extractions, learn


@pytest.mark.rows("U24", "U87")
def test_only_what_was_said_reaches_an_extraction_with_its_own_time(api: Api, model: ScriptedModelServer) -> None:
    api("PUT", "/facts/town", {"value": "Lyon"})
    thread_id = api("POST", "/threads", {}).body["id"]
    call = {"id": "q1", "type": "function", "function": {"name": "lookup", "arguments": "{}"}}
    turns = [
        {"role": "system", "content": "The operator banks with Acorn."},
        {"role": "user", "content": "I switched to decaf last week.", "created_at": "2023-05-24T23:30:00-07:00"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "q1", "content": "Owner: Dr. Quill"},
        {"role": "assistant", "content": "As a vegetarian you may like oat milk."},
    ]
    assert api("POST", f"/threads/{thread_id}/turns", {"turns": turns}).status == 201
    learn()
    [request] = extractions(model)
    [stamp] = regex.findall(r"\[(\S+)\] user: I switched to decaf last week\.", request.text)
    assert datetime.fromisoformat(stamp) == datetime.fromisoformat("2023-05-25T06:30:00Z")
    assert "] assistant: As a vegetarian" in request.text
    for foreign in ("Acorn", "Quill", "<user_memory>"):
        assert foreign not in request.text
    stored = api("GET", f"/threads/{thread_id}/turns").body["items"]
    assert not [turn for turn in stored if "Lyon" in str(turn["content"])]
