"""O21: filling the injection budget, and overflowing it. Rule K10."""

import pytest
from pytest_django import Settings

from memorygw.models import Persona, Tenant
from memorygw.testing import ScriptedModelServer
from tests.conftest import Api, learn

OPENING, CLOSING = "<user_memory>\n", "\n</user_memory>"
FEW = {"drink": "tea", "shift": "nights", "city": "Gdansk"}
MANY = {f"k{n:02}": f"v{n:02} {'z' * 176}" for n in range(1, 61)}


def store(api: Api, facts: dict[str, str]) -> None:
    for key, value in facts.items():
        assert api("PUT", f"/facts/{key}", {"value": value}).status == 200


def block(model: ScriptedModelServer) -> str:
    """The only memory block of the newest chat request."""
    text = "\n".join(str(message["content"]) for message in model.requests_for("main")[-1].messages)
    assert text.count("<user_memory>") == text.count("</user_memory>") == 1
    return OPENING + text.partition(OPENING)[2].partition(CLOSING)[0] + CLOSING


def fact_lines(model: ScriptedModelServer) -> list[str]:
    return block(model).split("\n")[2:-1]


@pytest.mark.rows("R93", "U23")
def test_few_facts_are_all_in_every_request_once_and_in_no_turn(api: Api, model: ScriptedModelServer) -> None:
    store(api, FEW)
    thread_id = api.ask("hello").body["thread_id"]
    assert fact_lines(model) == ["drink: tea", "shift: nights", "city: Gdansk"]
    learn()
    api.ask("again", thread_id)
    assert fact_lines(model) == ["drink: tea", "shift: nights", "city: Gdansk"]
    turns = api("GET", f"/threads/{thread_id}/turns").body["items"]
    assert [turn["content"] for turn in turns] == ["hello", "ok", "again", "ok"]


@pytest.mark.rows("R98", "R99")
def test_many_facts_are_chosen_by_whole_lines_and_what_is_left_out_is_told(
    api: Api, model: ScriptedModelServer
) -> None:
    store(api, MANY)
    answer = api.ask("hello").body
    lines = fact_lines(model)
    assert len(block(model)) <= 6_000
    assert 25 <= len(lines) <= 33
    assert len(set(lines)) == len(lines)
    assert set(lines) <= {f"{key}: {value}" for key, value in MANY.items()}
    assert answer["warnings"] == [{"code": "facts_left_out", "count": 60 - len(lines)}]


def test_a_budget_of_zero_is_no_limit(api: Api, model: ScriptedModelServer, settings: Settings) -> None:
    settings.MEMORYGW_INJECTION_BUDGET_CHARS = 0
    store(api, MANY)
    assert api.ask("hello").body["warnings"] == []
    assert fact_lines(model) == [f"{key}: {value}" for key, value in MANY.items()]


@pytest.mark.rows("R100")
def test_without_facts_the_system_message_is_what_it_would_be_anyway(
    api: Api, tenant: Tenant, model: ScriptedModelServer
) -> None:
    Persona.objects.create(tenant=tenant, name="clerk", instructions="Be brief.")
    store(api, FEW)
    for key in FEW:
        assert api("DELETE", f"/facts/{key}").status == 204
    api.ask("hello", persona="clerk")
    assert model.requests_for("main")[-1].messages[0] == {"role": "system", "content": "Be brief."}
    api.ask("hello")
    assert [message["role"] for message in model.requests_for("main")[-1].messages] == ["user"]


@pytest.mark.rows("R99")
def test_a_fact_that_does_not_fit_leaves_no_empty_block(
    api: Api, model: ScriptedModelServer, settings: Settings
) -> None:
    settings.MEMORYGW_INJECTION_BUDGET_CHARS = 100
    store(api, {"long": "y" * 184})
    answer = api.ask("hello").body
    assert [message["content"] for message in model.requests_for("main")[-1].messages] == ["hello"]
    assert answer["warnings"] == [{"code": "facts_left_out", "count": 1}]
