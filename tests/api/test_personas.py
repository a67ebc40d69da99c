"""Personas and the tenant's switches over REST, for an admin key."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import pytest

from memorygw import gateway
from memorygw.models import IdempotencyKey, Persona, Tenant
from memorygw.testing import ScriptedModelServer
from tests.conftest import Api, background, extractions, learn
from threads.models import Run, Thread
from usermemory.models import Fact, identity

DEFAULTS: dict[str, Any] = {
    "instructions": "", "model": "", "cheap_model": "", "memory_model": "", "memory_enabled": True,
    "memory_injection_enabled": True,
    "working_memory": "", "memory_tools": "", "review_policy": "", "fact_kind": "keyed", "max_facts": None,
    "recall_tool_name": "", "recall_tool_description": "",
}  # fmt: skip
CHOSEN: dict[str, Any] = {
    "instructions": " Be brief.\n{memory} ", "model": "large", "cheap_model": "tiny", "memory_model": "wise",
    "memory_enabled": False,
    "memory_injection_enabled": False, "working_memory": "SLIDING_WINDOW", "memory_tools": "remember_user_fact",
    "review_policy": "all_model_writes", "fact_kind": "text", "max_facts": 7, "recall_tool_name": "what_I_know",
    "recall_tool_description": "What I know of them.",
}  # fmt: skip
NOT_FOUND = {"error": {"code": "persona_not_found", "message": "There is no such persona."}}


def make(api: Api, name: str = "coach", **values: Any) -> dict[str, Any]:
    made = api("POST", "/personas", {"name": name, **values})
    assert made.status == 201
    body: dict[str, Any] = made.body
    return body


# --- one persona


def test_a_persona_is_made_and_read(api: Api) -> None:
    plain = make(api, " coach ", id=str(uuid4()), created_at="2001-01-01T00:00:00Z")
    assert set(plain) == {"id", "name", "created_at", "updated_at", *DEFAULTS}
    assert {field: plain[field] for field in DEFAULTS} == DEFAULTS
    assert (plain["name"], plain["created_at"]) == ("coach", plain["updated_at"])
    chosen = make(api, "guide", **CHOSEN)
    assert {field: chosen[field] for field in CHOSEN} == CHOSEN
    assert api("GET", f"/personas/{chosen['id']}").body == chosen


def test_a_change_keeps_what_it_does_not_name(api: Api) -> None:
    made = make(api, **CHOSEN)
    path = f"/personas/{made['id']}"
    assert api("PATCH", path, {"unknown": 1}).body == made
    changed = api("PATCH", path, {"name": "tutor", "model": "", "memory_enabled": True})
    assert changed.status == 200
    assert changed.body["updated_at"] > made["updated_at"]
    expected = {**made, "name": "tutor", "model": "", "memory_enabled": True}
    assert changed.body == {**expected, "updated_at": changed.body["updated_at"]}
    assert api("GET", path).body == changed.body
    for field in CHOSEN:
        assert api("PATCH", path, {field: DEFAULTS[field]}).body[field] == DEFAULTS[field]


def test_a_change_holds_from_the_next_call_on(api: Api, model: ScriptedModelServer) -> None:
    persona = make(api, instructions="Be brief.")
    thread_id = api("POST", "/threads", {"persona": "coach"}).body["id"]
    api.ask("Hello", thread_id)
    api("PATCH", f"/personas/{persona['id']}", {"instructions": "Teach.", "model": "large"})
    api.ask("Hello", thread_id)
    assert [(request.model, request.system) for request in model.requests if request.model != "cheap"] == [
        ("main", "Be brief."), ("large", "Teach."),
    ]  # fmt: skip


def test_learning_is_switched_off_and_on_for_one_persona_while_the_service_runs(
    api: Api, model: ScriptedModelServer
) -> None:
    persona = make(api)
    for learns in (False, True):
        api("PATCH", f"/personas/{persona['id']}", {"memory_enabled": learns})
        thread_id = api("POST", "/threads", {"persona": "coach"}).body["id"]
        api.ask("I live in Turin.", thread_id)
        learn()
        assert len(extractions(model)) == int(learns)


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"name": None}, "name"),
        ({"name": ""}, "name"),
        ({"name": " \u2003"}, "name"),
        ({"name": "x" * 101}, "name"),
        ({"name": "co\u0000ach"}, "name"),
        ({"name": "018f3c1e-0000-7000-8000-000000000000"}, "name"),
        ({"name": "{018F3C1E000070008000000000000000}"}, "name"),
        ({"instructions": "x" * 100_001}, "instructions"),
        ({"instructions": ["x"]}, "instructions"),
        ({"model": "x" * 101}, "model"),
        ({"cheap_model": "x" * 101}, "cheap_model"),
        ({"working_memory": "WINDOW"}, "working_memory"),
        ({"review_policy": "always"}, "review_policy"),
        ({"memory_tools": "remember_user_fact, recall"}, "memory_tools"),
        ({"memory_tools": "x" * 201}, "memory_tools"),
        ({"memory_enabled": None}, "memory_enabled"),
        ({"memory_injection_enabled": "often"}, "memory_injection_enabled"),
    ],
)
def test_impossible_values_are_refused_when_it_is_made_and_when_it_is_changed(
    api: Api, values: dict[str, Any], field: str
) -> None:
    made = make(api)
    for refused in (
        api("POST", "/personas", {"name": "guide", **values}),
        api("PATCH", f"/personas/{made['id']}", values),
    ):
        assert (refused.status, refused.error["code"], list(refused.error["fields"])) == (400, "invalid", [field])
        assert not {"WINDOW", "always", "recall"} & set(str(refused.error["fields"]).split())
    assert api("GET", "/personas").body["items"] == [made]


def test_the_longest_values_are_kept(api: Api) -> None:
    values = {"instructions": "x" * 100_000, "model": "m" * 100, "cheap_model": "c" * 100}
    made = make(api, "n" * 100, **values)
    assert {field: made[field] for field in values} == values


def test_a_persona_needs_a_name(api: Api) -> None:
    refused = api("POST", "/personas", {})
    assert (refused.status, list(refused.error["fields"])) == (400, ["name"])


# --- names


def test_a_name_is_given_once_in_a_tenant(api: Api, other_api: Api) -> None:
    coach, guide = make(api, "coach"), make(api, "guide")
    make(other_api, "coach")
    for refused in (
        api("POST", "/personas", {"name": " coach"}),
        api("PATCH", f"/personas/{guide['id']}", {"name": "coach", "model": "large"}),
    ):
        assert (refused.status, refused.error["code"]) == (409, "persona_name_taken")
    assert api("GET", "/personas").body["items"] == [guide, coach]
    assert api("PATCH", f"/personas/{coach['id']}", {"name": "coach"}).status == 200
    api("DELETE", f"/personas/{coach['id']}")
    make(api, "coach")


@pytest.mark.django_db(transaction=True)
def test_of_many_who_give_one_name_at_once_one_does(api: Api) -> None:
    with ThreadPoolExecutor(8) as pool:
        replies = [background(pool, api, "POST", "/personas", {"name": "coach"}) for _ in range(8)]
    statuses = sorted(reply.result().status for reply in replies)
    assert statuses == [201] + [409] * 7
    assert Persona.objects.count() == 1


# --- who may


def test_a_foreign_persona_and_an_unknown_one_look_the_same(api: Api, other_api: Api) -> None:
    foreign = make(other_api)
    for persona_id in (foreign["id"], str(uuid4()), "coach", "not-a-uuid"):
        for method, body in (("GET", None), ("PATCH", {"name": "mine"}), ("PATCH", {}), ("DELETE", None)):
            reply = api(method, f"/personas/{persona_id}", body)
            assert (reply.status, reply.body) == (404, NOT_FOUND)
    assert other_api("GET", "/personas").body["items"] == [foreign]


def test_only_an_admin_key_may(api: Api, service_api: Api, admin_user: Any) -> None:
    made = make(api)
    token = Api(service_api("POST", "/user-tokens", {"user_id": "ada"}).body["token"], None)
    session = Api(None, None)
    session.client.force_login(admin_user)
    calls = [
        ("GET", "/personas", None), ("POST", "/personas", {"name": "mine"}), ("GET", f"/personas/{made['id']}", None),
        ("PATCH", f"/personas/{made['id']}", {"name": "mine"}), ("DELETE", f"/personas/{made['id']}", None),
        ("GET", "/tenant", None), ("PATCH", "/tenant", {"memory_extraction_enabled": False}),
    ]  # fmt: skip
    for method, path, body in calls:
        for caller in (service_api, token, session):
            refused = caller(method, path, body)
            assert (refused.status, refused.error["code"]) == (403, "forbidden")
        assert Api(None)(method, path, body).status == 401
    assert api("GET", "/personas").body["items"] == [made]
    assert Tenant.objects.filter(memory_extraction_enabled=False).count() == 0


def test_no_acting_user_is_needed(api: Api) -> None:
    api.user = None
    made = make(api)
    assert api("GET", f"/personas/{made['id']}").status == 200
    assert api("GET", "/tenant").status == 200


# --- lists


def test_personas_are_listed_in_pages(api: Api, other_api: Api) -> None:
    made = [make(api, f"coach {n}") for n in range(4)]
    foreign = make(other_api)["id"]
    assert api("GET", "/personas").body == {"items": made[::-1], "has_more": False}
    assert api("GET", "/personas?limit=2").body == {"items": [made[3], made[2]], "has_more": True}
    older = api("GET", f"/personas?limit=2&ending_before={made[2]['id']}").body
    assert older == {"items": [made[1], made[0]], "has_more": False}
    newer = api("GET", f"/personas?limit=2&starting_after={made[0]['id']}").body
    assert newer == {"items": [made[2], made[1]], "has_more": True}
    assert api("GET", "/personas?limit=0").status == 400
    assert api("GET", f"/personas?starting_after={made[0]['id']}&ending_before={made[1]['id']}").status == 400
    for cursor in (foreign, str(uuid4()), "garbage", ""):
        assert api("GET", f"/personas?ending_before={cursor}").body == NOT_FOUND


def test_personas_of_one_moment_are_listed_once_each(api: Api) -> None:
    made = [make(api, f"coach {n}")["id"] for n in range(4)]
    Persona.objects.update(created_at=Persona.objects.get(pk=made[0]).created_at)
    listed: list[str] = []
    for _ in made:
        cursor = f"&ending_before={listed[-1]}" if listed else ""
        listed += [persona["id"] for persona in api("GET", f"/personas?limit=1{cursor}").body["items"]]
    assert listed == made[::-1]


# --- sent again


def test_a_persona_that_is_sent_again_is_made_once(api: Api, other_api: Api) -> None:
    key = {"Idempotency-Key": "a-key-of-mine"}
    first, second = (api("POST", "/personas", {"name": "coach"}, headers=key) for _ in range(2))
    assert (first.status, second.status, second.body) == (201, 201, first.body)
    assert api("POST", "/personas", {"name": "coach"}, headers=key, user="bob").body == first.body
    assert other_api("POST", "/personas", {"name": "coach"}, headers=key).body["id"] != first.body["id"]
    other = api("POST", "/personas", {"name": "guide"}, headers=key)
    assert (other.status, other.error["code"]) == (409, "idempotency_key_reused")
    assert set(IdempotencyKey.objects.values_list("user_id", flat=True)) == {""}
    api("DELETE", f"/personas/{first.body['id']}")
    assert api("POST", "/personas", {"name": "coach"}, headers=key).body == NOT_FOUND


def test_a_refused_persona_does_not_use_its_key_up(api: Api) -> None:
    key = {"Idempotency-Key": "a-key-of-mine"}
    taken = make(api)
    assert api("POST", "/personas", {"name": "coach"}, headers=key).error["code"] == "persona_name_taken"
    api("DELETE", f"/personas/{taken['id']}")
    assert api("POST", "/personas", {"name": "coach"}, headers=key).status == 201


# --- deleting


def add_fact(tenant: Tenant, scope: str, owner_id: str, user_id: str = "", **more: Any) -> Fact:
    return Fact.objects.create(
        tenant=tenant, scope=scope, owner_id=owner_id, user_id=user_id, key="k", value="v", identity=identity("k"),
        origin=Fact.Origin.MANUAL, **more,
    )  # fmt: skip


def test_a_deleted_persona_takes_its_facts_along_and_nothing_else(
    api: Api, tenant: Tenant, other_tenant: Tenant
) -> None:
    coach, guide = make(api, "coach")["id"], make(api, "guide")["id"]
    add_fact(tenant, "persona", coach)
    add_fact(tenant, "persona", coach, status=Fact.Status.ARCHIVED)
    add_fact(tenant, "persona_user", coach, "ada", status=Fact.Status.PENDING_REVIEW)
    kept = [
        add_fact(tenant, "persona", guide), add_fact(tenant, "persona_user", guide, "ada"),
        add_fact(tenant, "user", "ada"), add_fact(tenant, "user", coach), add_fact(other_tenant, "persona", coach),
    ]  # fmt: skip
    assert api("DELETE", f"/personas/{coach}").status == 204
    assert api("DELETE", f"/personas/{coach}").status == 404
    assert set(Fact.objects.all()) == set(kept)
    assert [persona["id"] for persona in api("GET", "/personas").body["items"]] == [guide]


def test_the_threads_and_runs_of_a_deleted_persona_stay_and_go_on(
    api: Api, model: ScriptedModelServer, tenant: Tenant
) -> None:
    coach = make(api, instructions="Be brief.")["id"]
    thread_id = api("POST", "/threads", {"persona": coach}).body["id"]
    run_id = api.ask("Hello", thread_id).body["run"]["id"]
    assert Run.objects.filter(pk=run_id, persona=coach).exists()
    api("DELETE", f"/personas/{coach}")
    assert api("GET", f"/threads/{thread_id}").body["persona"] is None
    assert api("GET", f"/runs/{run_id}").body["status"] == "completed"
    assert len(api("GET", f"/threads/{thread_id}/turns").body["items"]) == 2
    assert api.ask("Hello", thread_id).status == 200
    assert [request.system for request in model.requests_for("main")] == ["Be brief.", ""]
    assert api.ask("Hello", thread_id, persona=coach).error["code"] == "persona_not_found"


@pytest.mark.django_db(transaction=True)
def test_a_persona_is_deleted_while_it_is_asked(api: Api, model: ScriptedModelServer) -> None:
    coach = make(api)["id"]
    thread_id = api("POST", "/threads", {"persona": coach}).body["id"]
    with ThreadPoolExecutor(1) as pool, model.hold(model="main"):
        asked = background(pool, api.ask, "Hello", thread_id)
        model.wait_for_requests(1, model="main")
        deleted = api("DELETE", f"/personas/{coach}")
    assert (deleted.status, asked.result().status) == (204, 200)
    assert Thread.objects.get().turn_count == 2
    assert Run.objects.get().persona is None


# --- the tenant


def test_the_tenant_is_switched_and_no_other(api: Api, other_api: Api) -> None:
    shipped = {"memory_extraction_enabled": True, "review_policy": ""}
    assert api("GET", "/tenant").body == shipped
    off = {**shipped, "memory_extraction_enabled": False}
    assert api("PATCH", "/tenant", {"memory_extraction_enabled": False, "name": "x", "id": "x"}).body == off
    strict = {**off, "review_policy": "always_extracted"}
    assert api("PATCH", "/tenant", {"review_policy": "always_extracted"}).body == strict
    assert api("PATCH", "/tenant", {}).body == api("GET", "/tenant").body == strict
    assert api("PATCH", "/tenant", shipped).body == shipped
    assert other_api("GET", "/tenant").body == shipped
    assert set(Tenant.objects.values_list("name", flat=True)) == {"acme", "globex", "default"}


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"memory_extraction_enabled": None}, "memory_extraction_enabled"),
        ({"memory_extraction_enabled": "seldom"}, "memory_extraction_enabled"),
        ({"review_policy": "always"}, "review_policy"),
        ({"review_policy": None}, "review_policy"),
    ],
)
def test_a_switch_that_is_none_changes_nothing(api: Api, change: dict[str, Any], field: str) -> None:
    refused = api("PATCH", "/tenant", {"memory_extraction_enabled": False, "review_policy": "never", **change})
    assert (refused.status, list(refused.error["fields"])) == (400, [field])
    assert api("GET", "/tenant").body == {"memory_extraction_enabled": True, "review_policy": ""}


def test_a_tenant_is_shown_to_its_own_key_only(api: Api, other_api: Api) -> None:
    other_api("PATCH", "/tenant", {"review_policy": "never"})
    assert gateway.get_tenant("globex").review_policy == "never"
    assert api("GET", "/tenant?tenant=globex").body["review_policy"] == ""
