"""O09 and O10: empty content, and content in parts. Rules K1, K2, K7, K21."""

from typing import Any

import pytest

from memorygw.testing import ScriptedModelServer
from tests.conftest import Api, extractions, learn

CALL = {"id": "e1", "type": "function", "function": {"name": "ls", "arguments": "{}"}}


@pytest.fixture
def path(api: Api) -> str:
    return f"/threads/{api('POST', '/threads', {}).body['id']}/turns"


def test_only_turns_that_a_provider_takes_are_kept(api: Api, path: str, model: ScriptedModelServer) -> None:
    bodies: list[tuple[dict[str, Any], int]] = [
        ({"role": "user", "content": "List my files"}, 201),
        ({"role": "assistant", "content": None, "tool_calls": [CALL]}, 201),
        ({"role": "assistant", "content": None}, 400),
        ({"role": "assistant", "content": ""}, 400),
        ({"role": "user", "content": ""}, 400),
        ({"role": "user", "content": "   "}, 400),
        ({"role": "tool", "tool_call_id": "e1", "content": ""}, 201),
        ({"role": "assistant", "content": None, "refusal": "I can't help with that."}, 201),
        ({"role": "assistant", "content": "ok", "tool_calls": None}, 201),
    ]
    for body, status in bodies:
        assert api("POST", path, {"turns": [body]}).status == status
    turns = api("GET", path).body["items"]
    assert [turn["token_count"] > 0 for turn in turns] == [True, True, False, True, True]
    assert turns[3]["refusal"] == "I can't help with that."

    thread_id = path.split("/")[2]
    model.reply(None, model="main")
    assert api.ask("And now?", thread_id).status == 502
    assert api.ask("Hello?", thread_id).status == 200
    for message in model.requests_for("main")[-1].messages:
        assert message["role"] != "assistant" or message["content"] or message.get("refusal") or message["tool_calls"]


def test_parts_are_kept_and_sent_as_they_came_and_only_their_text_is_learned_from(
    api: Api, path: str, model: ScriptedModelServer
) -> None:
    parts = [
        {"type": "text", "text": "I hike with my dog every Sunday."},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "iVBO" * 50_000, "detail": "low"}},
        {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}},
        {"type": "text", "text": "What breed is it?"},
    ]
    [turn] = api("POST", path, {"turns": [{"role": "user", "content": parts}]}).body["items"]
    assert api("GET", path).body["items"][0]["content"] == parts
    assert 10 < turn["token_count"] < 5_000
    api.ask("Well?", path.split("/")[2])
    assert model.requests_for("main")[-1].messages[0]["content"] == parts
    learn()
    text = extractions(model)[-1].text
    assert "I hike with my dog every Sunday." in text
    assert "What breed is it?" in text
    assert "base64" not in text
    assert "UklGRg" not in text
    for bad in ([{"type": "hologram", "x": 1}], {"type": "text", "text": "x"}, []):
        assert api("POST", path, {"turns": [{"role": "user", "content": bad}]}).status == 400
