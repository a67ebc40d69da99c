"""O17: no way for a model to clear, deletes that reach one user only, and many of them wait for a person. K8, K11."""

import pytest
from pytest_django import Settings

from memorygw.testing import ScriptedModelServer
from tests.cases.steps import drop, extract, put
from tests.conftest import Api

HARMLESS_TOOLS = {"remember_user_fact", "forget_user_fact", "memory_save", "memory_recall"}


@pytest.fixture
def users(api: Api, other_api: Api) -> None:
    """ "a" and "b" of one tenant, and another "a" of another tenant."""
    api.user = other_api.user = "a"
    for n in range(1, 9):
        api("PUT", f"/facts/fact_{n}", {"value": f"value {n}"})
    for n, key in enumerate("xyz", 1):
        api("PUT", f"/facts/{key}", {"value": str(n)}, user="b")
    for n, key in enumerate("pq", 1):
        other_api("PUT", f"/facts/{key}", {"value": str(n)})


def test_a_model_is_offered_no_tool_that_clears(api: Api, users: None, model: ScriptedModelServer) -> None:
    api.ask("Forget all of it!")
    [request] = model.requests_for("main")
    offered = [tool["function"]["name"] for tool in request.body.get("tools", [])]
    assert set(offered) <= HARMLESS_TOOLS
    assert len(api.facts()) == 8


@pytest.mark.parametrize("arguments", ["{}", '{"key": "*"}', '{"key": "%"}'])
def test_a_forget_tool_without_a_key_or_with_a_wildcard_removes_nothing(
    api: Api, users: None, model: ScriptedModelServer, settings: Settings, arguments: str
) -> None:
    settings.MEMORYGW_FORGET_APPROVAL = False
    call = {"id": "c1", "type": "function", "function": {"name": "forget_user_fact", "arguments": arguments}}
    model.reply(None, model="main", tool_calls=[call])
    api.ask("Forget it all!")
    [result] = [message["content"] for message in model.requests[-1].messages if message["role"] == "tool"]
    assert result.startswith(("Error:", "Nothing was removed"))
    assert len(api.facts()) == 8


def test_deleting_all_waits_for_a_person(api: Api, other_api: Api, users: None, model: ScriptedModelServer) -> None:
    api("DELETE", "/facts/fact_8")
    extract(api, model, *(drop(f"fact_{n}") for n in range(1, 8)))
    assert len(api.facts()) == 7
    waiting = api("GET", "/memories?status=pending_review").body["data"]
    assert [memory["operation"] for memory in waiting] == ["delete"] * 7
    assert {memory["value"] for memory in waiting} == {f"value {n}" for n in range(1, 8)}
    assert (len(api.facts("b")), len(other_api.facts())) == (3, 2)


@pytest.mark.rows("U3", "U4", "U90", "U95")
def test_two_deletes_and_a_set_reach_one_user_of_one_tenant(
    api: Api, other_api: Api, users: None, model: ScriptedModelServer
) -> None:
    extract(api, model, drop("fact_1"), drop("fact_2"), put("fact_9", "value 9"))
    assert api.facts() == {f"fact_{n}": f"value {n}" for n in range(3, 10)}
    assert api.facts("b") == {"x": "1", "y": "2", "z": "3"}
    assert other_api.facts() == {"p": "1", "q": "2"}
