"""O17, parts a and c: no way for a model to clear, and deletes that reach one user only. Rules K8, K11."""

import pytest

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


@pytest.mark.rows("U3", "U4", "U90", "U95")
def test_two_deletes_and_a_set_reach_one_user_of_one_tenant(
    api: Api, other_api: Api, users: None, model: ScriptedModelServer
) -> None:
    extract(api, model, drop("fact_1"), drop("fact_2"), put("fact_9", "value 9"))
    assert api.facts() == {f"fact_{n}": f"value {n}" for n in range(3, 10)}
    assert api.facts("b") == {"x": "1", "y": "2", "z": "3"}
    assert other_api.facts() == {"p": "1", "q": "2"}
