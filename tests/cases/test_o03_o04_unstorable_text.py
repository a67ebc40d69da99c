"""O03 and O04: U+0000 and lone surrogates in what a client sends. Rule K1."""

import json

import pytest

from memorygw.testing import ScriptedModelServer
from tests.conftest import Api
from threads.models import Turn

CALL = {"id": "n1", "type": "function", "function": {"name": "grep", "arguments": '{"q":"\x00"}'}}

REFUSED = {
    "NUL in content": [{"role": "user", "content": "weather \x00 in Oslo"}],
    "NUL in a part": [{"role": "user", "content": [{"type": "text", "text": "x\x00y"}]}],
    "NUL in arguments": [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
    ],
    "NUL in metadata": [{"role": "user", "content": "hi", "metadata": {"note": "a\x00b"}}],
    "NUL in the second of three": [
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "t\x00wo"},
        {"role": "user", "content": "three"},
    ],
    "surrogate in content": [{"role": "user", "content": "\ud83d"}],
    "surrogate in metadata": [{"role": "user", "content": "hi", "metadata": {"title": "\ude00"}}],
    "surrogate in a name": [{"role": "user", "content": "hi", "metadata": {"\ud800": 1}}],
}


@pytest.fixture
def path(api: Api) -> str:
    return f"/threads/{api('POST', '/threads', {}).body['id']}/turns"


@pytest.mark.parametrize("turns", REFUSED.values(), ids=REFUSED.keys())
def test_text_that_no_database_takes_is_refused_and_nothing_stored(api: Api, path: str, turns: object) -> None:
    reply = api("POST", path, raw=json.dumps({"turns": turns}).encode())
    assert (reply.status, reply.error["code"]) == (400, "invalid")
    assert all(field.startswith("turns[") for field in reply.error["fields"])
    assert Turn.objects.count() == 0


def test_what_only_looks_like_it_is_kept(api: Api, path: str) -> None:
    for raw, stored in (
        (rb'{"turns":[{"role":"user","content":"shows as \\u0000 on screen"}]}', r"shows as \u0000 on screen"),
        (rb'{"turns":[{"role":"user","content":"\ud83d\ude00"}]}', "😀"),
    ):
        assert api("POST", path, raw=raw).body["items"][0]["content"] == stored


def test_a_fact_with_half_a_character_is_refused(api: Api, model: ScriptedModelServer) -> None:
    assert api("PUT", "/facts", raw=rb'{"key":"mood","value":"ok \udc97"}').status == 400
    assert api("PUT", "/facts/mood", raw=rb'{"value":"ok \u0000"}').status == 400
    assert api.facts() == {}
    assert api("POST", "/ask", raw=rb'{"content":"\ud83d"}').status == 400
    assert model.requests == []


@pytest.mark.parametrize("path", ["/api/v1/ask", "/v1/chat/completions"])
def test_half_a_character_opens_no_stream(api: Api, model: ScriptedModelServer, path: str) -> None:
    body = {"content": "\ud83d", "messages": [{"role": "user", "content": "\ud83d"}], "stream": True}
    headers = {"Authorization": f"Bearer {api.key}", "X-Memorygw-User": "ada"}
    reply = api.client.post(path, json.dumps(body), content_type="application/json", headers=headers)
    assert (reply.status_code, reply["Content-Type"]) == (400, "application/json")
    assert (model.requests, Turn.objects.count()) == ([], 0)
