"""O22: the same user id in two tenants, and another user next door; what REST reaches today. Rule K11."""

import json
from typing import Any
from uuid import uuid4

import pytest

from memorygw.testing import ScriptedModelServer
from tests.conftest import Api, learn


class World:
    """u-1 of one tenant lives in Oslo, u-1 of another in Quito, and so does u-2 next door, who has no facts."""

    def __init__(self, api: Api, other_api: Api) -> None:
        self.mine, self.namesake, self.neighbour = api, other_api, Api(api.key, "u-2")
        self.mine.user = self.namesake.user = "u-1"
        self.mine("PUT", "/facts/city", {"value": "Oslo"})
        self.namesake("PUT", "/facts/city", {"value": "Quito"})
        self.asked = [
            client.ask(f"I live in {city}.").body
            for client, city in ((self.mine, "Oslo"), (self.namesake, "Quito"), (self.neighbour, "Quito"))
        ]
        learn()

    @property
    def foreign(self) -> list[dict[str, Any]]:
        return self.asked[1:]

    def of_others(self) -> list[Any]:
        """All that the two others can see of theirs."""
        return [
            client("GET", path).body
            for client, asked in zip((self.namesake, self.neighbour), self.foreign, strict=True)
            for path in ("/facts", "/threads", f"/threads/{asked['thread_id']}/turns", f"/runs/{asked['run']['id']}")
        ]


@pytest.fixture
def world(api: Api, other_api: Api, model: ScriptedModelServer) -> World:
    return World(api, other_api)


@pytest.mark.rows("U3", "U4", "T52")
def test_nobody_reads_what_is_a_namesakes_or_a_neighbours(world: World, model: ScriptedModelServer) -> None:
    api, thread_id, run_id = world.mine, world.asked[0]["thread_id"], world.asked[0]["run"]["id"]
    before = len(model.requests)
    read = [
        api("GET", "/facts"),
        api("GET", "/facts/context"),
        api("GET", "/threads?limit=200"),
        api("GET", f"/threads/{thread_id}"),
        api("GET", f"/threads/{thread_id}/turns"),
        api("GET", f"/threads/{thread_id}/memory"),
        api("POST", f"/threads/{thread_id}/context", {"query": "city"}),
        api("GET", f"/runs/{run_id}"),
        api.ask("Where do I live?"),
        api.ask("And where is that?", thread_id),
    ]
    learn()
    assert [reply.status for reply in read] == [200] * len(read)
    assert "Quito" not in json.dumps([reply.body for reply in read])
    assert len(read[0].body["items"]) == len(read[2].body["items"]) == 1
    assert "city: Oslo" in read[1].body["text"]
    upstream = model.requests[before:]
    assert {request.model for request in upstream} == {"main", "cheap"}
    assert all("Oslo" in request.text and "Quito" not in request.text for request in upstream)
    assert world.neighbour.facts() == {}


@pytest.mark.rows("T6", "T29", "T30", "T48", "T64", "T97", "W46", "W66", "W67", "W73")
def test_foreign_ids_answer_like_unknown_ones_and_nothing_changes(world: World, model: ScriptedModelServer) -> None:
    before, calls = world.of_others(), len(model.requests)
    for thread_id in (asked["thread_id"] for asked in world.foreign):
        for method, path, body in (
            ("GET", "/threads/{}", None),
            ("PATCH", "/threads/{}", {"title": "mine now"}),
            ("DELETE", "/threads/{}", None),
            ("GET", "/threads/{}/turns", None),
            ("POST", "/threads/{}/turns", {"turns": [{"role": "user", "content": "psst"}]}),
            ("POST", "/threads/{}/lease", {}),
            ("POST", "/threads/{}/lease/release", {"token": str(uuid4())}),
            ("POST", "/threads/{}/context", {}),
            ("GET", "/threads/{}/memory", None),
            ("DELETE", "/threads/{}/memory", None),
            ("POST", "/threads/{}/ask", {"content": "psst"}),
            ("GET", "/threads?ending_before={}", None),
            ("GET", "/threads?starting_after={}", None),
        ):
            foreign, unknown = (world.mine(method, path.format(some_id), body) for some_id in (thread_id, uuid4()))
            assert (foreign.status, foreign.body) == (404, unknown.body), (method, path)
    for run_id in (asked["run"]["id"] for asked in world.foreign):
        foreign, unknown = world.mine("GET", f"/runs/{run_id}"), world.mine("GET", f"/runs/{uuid4()}")
        assert (foreign.status, foreign.body) == (404, unknown.body)
    theirs = [asked["thread_id"] for asked in world.foreign]
    assert world.mine("POST", "/threads/delete", {"ids": theirs}).body == {"threads": 0, "turns": 0}
    assert world.mine("DELETE", "/facts?all=true").status == 204
    assert (world.of_others(), len(model.requests)) == (before, calls)


@pytest.mark.parametrize("query", ["", "?user=", "?user=%20", "?user=*", "?user=u-1&user=u-2", "?user=u-1&user=u-1"])
@pytest.mark.parametrize("role", ["admin", "service"])
def test_a_user_who_is_blank_missing_a_star_or_doubled_is_refused_wherever_one_is_taken(
    world: World, service_api: Api, model: ScriptedModelServer, role: str, query: str
) -> None:
    before, calls = world.of_others(), len(model.requests)
    api = Api({"admin": world.mine, "service": service_api}[role].key, None)
    thread_id, run_id = world.asked[0]["thread_id"], world.asked[0]["run"]["id"]
    requests: list[tuple[str, str, Any]] = [
        ("GET", "/facts", None),
        ("GET", "/facts/context", None),
        ("PUT", "/facts", {"key": "city", "value": "Rome"}),
        ("PUT", "/facts/city", {"value": "Rome"}),
        ("DELETE", "/facts/city", None),
        ("GET", "/threads", None),
        ("POST", "/threads", {}),
        ("POST", "/threads/delete", {"ids": "all"}),
        ("GET", f"/threads/{thread_id}", None),
        ("PATCH", f"/threads/{thread_id}", {"title": "x"}),
        ("DELETE", f"/threads/{thread_id}", None),
        ("GET", f"/threads/{thread_id}/turns", None),
        ("POST", f"/threads/{thread_id}/turns", {"turns": [{"role": "user", "content": "x"}]}),
        ("POST", f"/threads/{thread_id}/lease", {}),
        ("POST", f"/threads/{thread_id}/lease/release", {"token": str(uuid4())}),
        ("POST", f"/threads/{thread_id}/context", {}),
        ("GET", f"/threads/{thread_id}/memory", None),
        ("DELETE", f"/threads/{thread_id}/memory", None),
        ("POST", f"/threads/{thread_id}/ask", {"content": "x"}),
        ("POST", "/ask", {"content": "x"}),
        ("GET", f"/runs/{run_id}", None),
    ]
    for method, path, body in requests:
        refused = api(method, path + query, body)
        assert (refused.status, refused.error["code"]) == (400, "user_required"), (method, path)
    for path in ("/users/*/forget", "/users/%20/forget", f"/users/forget{query}"):
        assert api("POST", path, {"mode": "delete"}).status == {"admin": 400, "service": 403}[role]
    assert world.mine.facts() == {"city": "Oslo"}
    assert (world.of_others(), len(model.requests)) == (before, calls)


def test_a_tenant_or_user_named_in_a_body_has_no_effect(world: World, model: ScriptedModelServer) -> None:
    before = world.of_others()
    named = {"tenant": "globex", "tenant_id": str(uuid4()), "user": "u-2", "user_id": "u-2"}
    made = world.mine("POST", "/threads", named).body
    assert made["user_id"] == "u-1"
    assert world.mine("PUT", "/facts/pet", {"value": "owl", **named}).status == 200
    assert world.mine.ask("Hello", made["id"], **named).status == 200
    assert "city: Oslo" in model.requests_for("main")[-1].system
    assert world.mine.facts() == {"city": "Oslo", "pet": "owl"}
    assert world.of_others() == before
