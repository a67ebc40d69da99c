"""O05: model names no tokenizer knows, and the developer role. Rules K2, K21."""

import pytest

from memorygw.testing import ScriptedModelServer
from tests.conftest import Api


@pytest.mark.parametrize("name", ["gpt-4.5", "qwen3:8b", "openai/gpt-4o-mini", "azure-prod-7"])
def test_instructions_of_the_thread_and_memory_are_one_system_message(
    api: Api, model: ScriptedModelServer, name: str
) -> None:
    api("PUT", "/facts/lang", {"value": "es"})
    thread_id = api("POST", "/threads", {}).body["id"]
    api("POST", f"/threads/{thread_id}/turns", {"turns": [{"role": "system", "content": "Answer in two words."}]})
    api("POST", f"/threads/{thread_id}/turns", {"turns": [{"role": "developer", "content": "Answer in one word."}]})
    model.reply("Lima", model=name)
    answer = api.ask("Capital of Peru?", thread_id, model=name)
    assert answer.status == 200
    [request] = model.requests
    assert request.model == name
    assert [message["role"] for message in request.messages] == ["system", "user"]
    assert "Answer in one word." in request.system
    assert "lang: es" in request.system
    assert "two words" not in request.system
    turns = api("GET", f"/threads/{thread_id}/turns").body["items"]
    assert [turn["role"] for turn in turns] == ["system", "developer", "user", "assistant"]
    assert all(turn["token_count"] > 0 for turn in turns)
