"""The REST page of memories: lists, counts, edits, reviews (R1–R66)."""

import hashlib
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.contrib.auth.models import User
from django.db import IntegrityError, transaction
from django.test import Client
from django.utils.dateparse import parse_datetime
from pytest_django import Settings

from memorygw import gateway
from memorygw.models import Persona, Tenant
from memorygw.testing import ScriptedModelServer
from tests.cases.steps import drop, extract, put
from tests.conftest import Api, learn
from usermemory.models import Fact, Owner, identity
from usermemory.rows import content

USER_PATHS = [
    ("GET", "/memories"),
    ("GET", "/memories/count"),
    ("PUT", "/memories/{id}"),
    ("DELETE", "/memories/{id}"),
    ("POST", "/memories/{id}/approve"),
    ("POST", "/memories/{id}/reject"),
]
ADMIN_PATHS = [
    ("GET", "/admin/memories/pending"),
    ("POST", "/admin/memories/bulk-approve"),
    ("POST", "/admin/memories/bulk-reject"),
]


def make(
    tenant: Tenant, key: str, value: str = "x", *, owner: Owner | None = None, status: str = "active", **more: Any
) -> Fact:
    owner = owner or Owner.user("ada")
    place = {"scope": owner.scope, "owner_id": owner.owner_id, "user_id": owner.user_id}
    return Fact.objects.create(tenant=tenant, origin="auto", status=status, **place, **content(key, value), **more)


def keys(api: Api, query: str = "", **options: Any) -> list[str]:
    return [memory["key"] for memory in api("GET", f"/memories{query}", **options).body["data"]]


def status_of(memory: Fact) -> str:
    memory.refresh_from_db()
    return memory.status


@pytest.fixture
def persona(tenant: Tenant) -> Persona:
    return Persona.objects.create(tenant=tenant, name="coach")


# --- who may


@pytest.mark.rows("R1", "R16")
@pytest.mark.parametrize(("method", "path"), USER_PATHS)
def test_every_user_path_wants_a_credential(tenant: Tenant, api: Api, method: str, path: str) -> None:
    path = path.format(id=make(tenant, "drink", status="pending_review").pk)
    assert Api(None)(method, path, {}).status == 401
    assert api(method, path, {}).status in (200, 204)


@pytest.mark.rows("R2")
@pytest.mark.parametrize(("method", "path"), ADMIN_PATHS)
def test_the_queue_wants_an_admin_key_or_a_superuser(
    api: Api, service_api: Api, tenant: Tenant, method: str, path: str
) -> None:
    body = {"ids": [str(uuid4())]} if method == "POST" else None
    assert Api(None)(method, path, body).status == 401
    assert service_api(method, path, body).status == 403
    assert (
        Api(service_api("POST", "/user-tokens", {"user_id": "ada"}).body["token"], None)(method, path, body).status
        == 403
    )
    assert api(method, path, body, user="").status == 200
    for name, allowed in (("root", True), ("staff", False)):
        client = Client()
        client.force_login(User.objects.create_user(name, is_superuser=allowed, is_staff=True))
        answer = client.generic(method, f"/api/v1{path}", b'{"ids": ["x"]}', content_type="application/json")
        assert (answer.status_code == 200) is allowed


# --- shape and scopes


@pytest.mark.rows("R3", "R4", "R5", "R6", "R7", "R8", "R9", "R10", "R11", "R12", "R13")
def test_a_memory_has_the_fields_of_the_page(
    api: Api, tenant: Tenant, model: ScriptedModelServer, persona: Persona
) -> None:
    thread_id = extract(api, model, put("drink", "tea") | {"confidence": 0.85})
    make(tenant, "tone", owner=Owner.persona_user(persona.pk, "ada"))
    shared, learned = api("GET", "/memories").body["data"]
    assert list(learned) == [
        "id",
        "scope",
        "owner_id",
        "user_id",
        "key",
        "value",
        "source_channel_id",
        "confidence",
        "status",
        "operation",
        "created_at",
        "updated_at",
    ]
    assert str(UUID(learned["id"])) == learned["id"]
    told = {name: learned[name] for name in ("scope", "owner_id", "user_id", "key", "value", "confidence", "status")}
    assert told == {
        "scope": "user",
        "owner_id": "ada",
        "user_id": None,
        "key": "drink",
        "value": "tea",
        "confidence": 0.85,
        "status": "active",
    }
    assert learned["source_channel_id"] == thread_id
    assert parse_datetime(learned["created_at"])
    assert (shared["scope"], shared["owner_id"], shared["user_id"]) == ("persona_user", str(persona.pk), "ada")
    changed = api("PUT", f"/memories/{learned['id']}", {"value": "rum"}).body
    assert changed["updated_at"] > learned["updated_at"]


@pytest.mark.rows("R20")
@pytest.mark.parametrize(
    "values",
    [
        {"scope": "user", "owner_id": "ada", "user_id": "ada"},
        {"scope": "persona", "owner_id": "p", "user_id": "ada"},
        {"scope": "persona_user", "owner_id": "p", "user_id": ""},
        {"scope": "team", "owner_id": "p", "user_id": ""},
        {"scope": "user", "owner_id": "", "user_id": ""},
        {"scope": "user", "owner_id": "ada", "user_id": "", "status": "deleted"},
        {"scope": "user", "owner_id": "ada", "user_id": "", "operation": "delete"},
    ],
)
def test_the_database_refuses_what_is_no_memory(tenant: Tenant, values: dict[str, str]) -> None:
    with pytest.raises(IntegrityError), transaction.atomic():
        Fact.objects.create(tenant=tenant, origin="auto", **values, **content("drink", "tea"))


# --- lists


@pytest.mark.rows("R21", "R22", "R23", "R24", "R31", "R34")
def test_lists_are_by_status(api: Api, tenant: Tenant) -> None:
    assert api("GET", "/memories").body == {"data": []}
    for status in ("active", "pending_review", "archived"):
        make(tenant, status, status=status)
    assert keys(api) == ["active"]
    for status in ("active", "pending_review", "archived"):
        assert keys(api, f"?status={status}") == [status]
    refused = api("GET", "/memories?status=foo")
    assert (refused.status, list(refused.error["fields"])) == (400, ["status"])


@pytest.mark.rows("R25", "R26", "R27", "R28", "R29", "R30")
def test_a_query_narrows_by_words_of_key_and_value(api: Api, tenant: Tenant) -> None:
    make(tenant, "Preferred language", "Go with Gin, 100%")
    make(tenant, "drink", "Café au lait")
    make(tenant, "language", "Python", status="pending_review")
    assert keys(api, "?query=prefer") == ["Preferred language"]
    assert keys(api, "?query=gin+LANGUAGE") == ["Preferred language"]
    assert keys(api, "?query=language+python") == []
    assert keys(api, "?status=pending_review&query=language+python") == ["language"]
    assert keys(api, "?query=CAFE%CC%81") == ["drink"]
    for wildcard in ("%25%25", "_", "%5C", "*"):
        assert keys(api, f"?query={wildcard}") == []
    assert keys(api, "?query=100%25") == ["Preferred language"]
    assert keys(api, "?query=" + "+".join(["gin"] * 1_500)) == ["Preferred language"]
    for huge in ("+".join(f"w{n}" for n in range(101)), "x" * 60_000):
        assert api("GET", f"/memories?query={huge}").status == 400
    assert len(keys(api, "?query=+")) == 2


@pytest.mark.rows("R32", "R33")
def test_a_list_has_ones_own_newest_change_first(
    api: Api, other_api: Api, tenant: Tenant, other_tenant: Tenant, persona: Persona
) -> None:
    first, _, _ = make(tenant, "a"), make(tenant, "b"), make(tenant, "c", owner=Owner.persona_user(persona.pk, "ada"))
    make(tenant, "d", owner=Owner.user("eve")), make(tenant, "e", owner=Owner.persona(persona.pk))
    make(tenant, "f", owner=Owner.persona_user(persona.pk, "eve")), make(other_tenant, "g")
    assert keys(api) == ["c", "b", "a"]
    api("PUT", f"/memories/{first.pk}", {"value": "changed"})
    assert keys(api) == ["a", "c", "b"]
    assert keys(other_api) == ["g"]


@pytest.mark.rows("R35", "R36", "R37", "R38")
def test_counts_are_of_the_same_rows(api: Api, tenant: Tenant) -> None:
    for n, status in enumerate(("active", "active", "pending_review", "archived")):
        make(tenant, f"key {n}", status=status)
    make(tenant, "other", owner=Owner.user("eve"))
    assert api("GET", "/memories/count").body == {"active": 2, "pending": 1}
    assert api("PUT", "/memories/count", {"value": "x"}).status == 405


# --- edits


@pytest.mark.rows("R39", "R40", "R41", "R49")
def test_a_change_changes_what_it_names(api: Api, tenant: Tenant, model: ScriptedModelServer) -> None:
    memory = make(tenant, "drink", "tea")
    changed = api("PUT", f"/memories/{memory.pk}", {"key": "Favourite drink", "value": " rum ", "confidence": 0.3}).body
    assert (changed["key"], changed["value"], changed["confidence"]) == ("Favourite drink", "rum", 0.3)
    fixed = {"scope": "persona", "owner_id": "eve", "user_id": "eve", "status": "archived", "source_channel_id": "x"}
    only = api("PUT", f"/memories/{memory.pk}", {"confidence": 1, "created_at": "2020-01-01", **fixed}).body
    assert {**only, "updated_at": ""} == {**changed, "confidence": 1.0, "updated_at": ""}
    api.ask("Hello")
    assert "Favourite drink: rum" in model.requests_for("main")[-1].system


@pytest.mark.rows("R42", "R43")
@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"key": " "}, "fact_blank"),
        ({"value": ""}, "fact_blank"),
        ({"value": "x" * 201}, "fact_too_long"),
        ({"value": "4111 1111 1111 1111"}, "fact_refused"),
        ({"confidence": -0.1}, "invalid"),
        ({"confidence": 1.1}, "invalid"),
        ({"confidence": "sure"}, "invalid"),
    ],
)
def test_a_change_that_cannot_be_is_refused(api: Api, tenant: Tenant, body: dict[str, Any], code: str) -> None:
    memory = make(tenant, "drink", "tea")
    reply = api("PUT", f"/memories/{memory.pk}", body)
    assert (reply.status, reply.error["code"]) == (400, code)
    memory.refresh_from_db()
    assert (memory.key, memory.value) == ("drink", "tea")


def test_a_key_that_another_memory_has_is_refused(api: Api, tenant: Tenant) -> None:
    memory = make(tenant, "drink")
    make(tenant, "home")
    make(tenant, "old", status="archived")
    reply = api("PUT", f"/memories/{memory.pk}", {"key": " HOME "})
    assert (reply.status, reply.error["code"]) == (409, "memory_key_taken")
    assert api("PUT", f"/memories/{memory.pk}", {"key": "old"}).status == 200


@pytest.mark.rows("R44", "R45", "R46", "R47", "R48", "R50", "R55")
def test_only_ones_own_user_scope_rows_can_be_changed_or_deleted(
    api: Api, tenant: Tenant, other_tenant: Tenant, persona: Persona, model: ScriptedModelServer
) -> None:
    foreign = [
        make(tenant, "eve's", owner=Owner.user("eve")),
        make(tenant, "shared", owner=Owner.persona(persona.pk)),
        make(tenant, "ours", owner=Owner.persona_user(persona.pk, "ada")),
        make(other_tenant, "elsewhere"),
    ]
    for memory_id in [*(fact.pk for fact in foreign), uuid4(), "nonsense"]:
        for method in ("PUT", "DELETE"):
            reply = api(method, f"/memories/{memory_id}", {"value": "changed"})
            assert (reply.status, reply.error) == (
                404,
                {"code": "memory_not_found", "message": "There is no such memory."},
            )
    assert list(Fact.objects.values_list("value", flat=True).distinct()) == ["x"]
    own = make(tenant, "drink", "tea")
    assert api("DELETE", f"/memories/{own.pk}").status == 204
    for status in ("active", "pending_review", "archived"):
        assert "drink" not in keys(api, f"?status={status}")
    api.ask("Hello")
    assert "tea" not in model.requests_for("main")[-1].system
    assert Fact.objects.count() == 4


# --- review by the user


@pytest.mark.rows("R51", "R52", "R53", "R54", "R66")
def test_a_waiting_memory_is_approved_or_rejected(api: Api, tenant: Tenant, model: ScriptedModelServer) -> None:
    good, bad = (make(tenant, key, f"{key} tea", status="pending_review") for key in ("green", "black"))
    api.ask("Hello")
    assert "tea" not in model.requests_for("main")[-1].system
    assert api("POST", f"/memories/{good.pk}/approve").body["status"] == "active"
    assert api("POST", f"/memories/{bad.pk}/reject").body["status"] == "archived"
    assert api("GET", "/memories/count").body == {"active": 1, "pending": 0}
    assert (keys(api), keys(api, "?status=archived")) == (["green"], ["black"])
    for memory in (good, bad):
        for verdict in ("approve", "reject"):
            reply = api("POST", f"/memories/{memory.pk}/{verdict}")
            assert (reply.status, reply.error["code"]) == (409, "memory_not_pending")
    api.ask("Hello")
    assert "green tea" in model.requests_for("main")[-1].system
    assert "black tea" not in model.requests_for("main")[-1].system


@pytest.mark.rows("R55")
def test_rows_of_others_cannot_be_reviewed(api: Api, tenant: Tenant, other_tenant: Tenant, persona: Persona) -> None:
    foreign = [
        make(tenant, "a", owner=Owner.user("eve"), status="pending_review"),
        make(tenant, "b", owner=Owner.persona(persona.pk), status="pending_review"),
        make(tenant, "c", owner=Owner.persona_user(persona.pk, "eve"), status="pending_review"),
        make(other_tenant, "d", status="pending_review"),
    ]
    for memory in foreign:
        assert api("POST", f"/memories/{memory.pk}/approve").error["code"] == "memory_not_found"
        assert status_of(memory) == "pending_review"
    own = make(tenant, "e", owner=Owner.persona_user(persona.pk, "ada"), status="pending_review")
    assert api("POST", f"/memories/{own.pk}/approve").status == 200


@pytest.mark.rows("R56")
def test_an_approved_memory_replaces_the_active_one(api: Api, tenant: Tenant) -> None:
    old = make(tenant, "home", "Turin")
    new = make(tenant, "Home", "Milan", status="pending_review")
    sources = api("GET", f"/memories/{new.pk}/sources").body
    assert sources["current_value"] == "Turin"
    api("POST", f"/memories/{new.pk}/approve")
    assert (status_of(old), status_of(new)) == ("archived", "active")
    assert api.facts() == {"Home": "Milan"}


def test_a_proposed_deletion_deletes_when_it_is_approved(api: Api, tenant: Tenant) -> None:
    old = make(tenant, "home", "Turin")
    proposal = make(tenant, "home", "Turin", status="pending_review", operation="delete")
    [listed] = api("GET", "/memories?status=pending_review").body["data"]
    assert (listed["operation"], listed["key"], listed["value"]) == ("delete", "home", "Turin")
    api("POST", f"/memories/{proposal.pk}/approve")
    assert (status_of(old), status_of(proposal)) == ("archived", "archived")
    assert api.facts() == {}


def test_a_rejected_deletion_deletes_nothing(api: Api, tenant: Tenant) -> None:
    old = make(tenant, "home", "Turin")
    proposal = make(tenant, "home", "Turin", status="pending_review", operation="delete")
    api("POST", f"/memories/{proposal.pk}/reject")
    assert (status_of(old), status_of(proposal)) == ("active", "archived")


def test_approving_holds_for_what_was_seen_only(api: Api, tenant: Tenant) -> None:
    memory = make(tenant, "home", "Milan", status="pending_review")
    seen = hashlib.sha256(b"set\nhome\nMilan").hexdigest()
    api("PUT", f"/memories/{memory.pk}", {"value": "Rome"})
    for verdict in ("approve", "reject"):
        stale = api("POST", f"/memories/{memory.pk}/{verdict}", {"content_hash": seen})
        assert (stale.status, stale.error["code"]) == (409, "memory_changed")
    assert status_of(memory) == "pending_review"
    fresh = hashlib.sha256(b"set\nhome\nRome").hexdigest()
    assert api("POST", f"/memories/{memory.pk}/approve", {"content_hash": fresh}).body["value"] == "Rome"


def test_approving_holds_the_cap(api: Api, tenant: Tenant, settings: Settings) -> None:
    settings.MEMORYGW_MAX_FACTS = 2
    make(tenant, "a"), make(tenant, "b")
    new = make(tenant, "c", status="pending_review")
    api("POST", f"/memories/{new.pk}/approve")
    assert keys(api) == ["c", "b"]


def test_users_may_be_kept_from_reviewing(api: Api, tenant: Tenant, settings: Settings) -> None:
    settings.MEMORYGW_USER_CAN_APPROVE = False
    memory = make(tenant, "home", status="pending_review")
    assert api("POST", f"/memories/{memory.pk}/approve").status == 403
    assert api("POST", "/admin/memories/bulk-approve", {"ids": [str(memory.pk)]}).body == {"approved": 1}


# --- the queue


@pytest.mark.rows("R58", "R59", "R60")
def test_the_queue_has_what_waits_of_all_users(
    api: Api, tenant: Tenant, other_tenant: Tenant, persona: Persona
) -> None:
    make(tenant, "a", status="pending_review"), make(tenant, "b", owner=Owner.user("eve"), status="pending_review")
    make(tenant, "c", owner=Owner.persona_user(persona.pk, "eve"), status="pending_review")
    make(tenant, "d"), make(tenant, "e", status="archived"), make(other_tenant, "f", status="pending_review")
    answer = api("GET", "/admin/memories/pending", user="")
    assert [memory["key"] for memory in answer.body["data"]] == ["a", "b", "c"]
    client = Client()
    client.force_login(User.objects.create_superuser("root"))
    everybody = client.get("/api/v1/admin/memories/pending").json()["data"]
    assert [memory["key"] for memory in everybody] == ["a", "b", "c", "f"]


@pytest.mark.rows("R61", "R62", "R63", "R64")
@pytest.mark.parametrize(
    ("verb", "word", "status"), [("approve", "approved", "active"), ("reject", "rejected", "archived")]
)
def test_many_are_decided_at_once_across_users(
    api: Api, tenant: Tenant, other_tenant: Tenant, verb: str, word: str, status: str
) -> None:
    mine, eves = (
        make(tenant, "a", status="pending_review"),
        make(tenant, "b", owner=Owner.user("eve"), status="pending_review"),
    )
    active, foreign = make(tenant, "c"), make(other_tenant, "d", status="pending_review")
    ids = [str(fact.pk) for fact in (mine, eves, mine, active, foreign)] + [str(uuid4()), "nonsense"]
    assert api("POST", f"/admin/memories/bulk-{verb}", {"ids": ids}, user="").body == {word: 2}
    assert (status_of(mine), status_of(eves)) == (status, status)
    assert (status_of(active), status_of(foreign)) == ("active", "pending_review")
    assert api("POST", f"/admin/memories/bulk-{verb}", {"ids": ids}, user="").body == {word: 0}


@pytest.mark.rows("R65")
@pytest.mark.parametrize("body", [{}, {"ids": "all"}, {"ids": []}, {"ids": None}, {"ids": ["x"] * 501}])
def test_a_batch_has_to_be_a_list_of_ids(api: Api, body: Any) -> None:
    reply = api("POST", "/admin/memories/bulk-approve", body)
    assert (reply.status, list(reply.error["fields"])) == (400, ["ids"])


# --- where it comes from, and search


def test_a_memory_shows_the_turn_it_was_quoted_from(api: Api, model: ScriptedModelServer) -> None:
    model.reply(
        {"operations": [put("home", "Turin") | {"evidence": "I live in Turin"}, put("pet", "cat")]}, model="cheap"
    )
    thread_id = api.ask("I live in Turin, with a cat.").body["thread_id"]
    learn()
    by_key = {memory["key"]: memory["id"] for memory in api("GET", "/memories").body["data"]}
    sources = api("GET", f"/memories/{by_key['home']}/sources").body
    assert sources["thread_id"] == thread_id
    [turn] = sources["data"]
    assert (turn["seq"], turn["role"], turn["content"]) == (1, "user", "I live in Turin, with a cat.")
    unquoted = api("GET", f"/memories/{by_key['pet']}/sources").body
    assert unquoted == {"data": [], "thread_id": thread_id, "current_value": None}
    assert api("GET", f"/memories/{by_key['pet']}/sources", user="eve").error["code"] == "memory_not_found"
    api("DELETE", f"/threads/{thread_id}")
    assert api("GET", f"/memories/{by_key['home']}/sources").body["data"] == []


@pytest.mark.rows("R15")
def test_a_memory_is_neither_made_nor_read_alone(api: Api, tenant: Tenant) -> None:
    memory = make(tenant, "drink")
    assert api("POST", "/memories", {"key": "a", "value": "b"}).status == 405
    assert api("GET", f"/memories/{memory.pk}").status == 405


def test_search_finds_the_best_first_and_says_why(api: Api, tenant: Tenant) -> None:
    make(tenant, "bot_policy", "the bot's password policy rotates monthly")
    make(tenant, "drink", "café au lait")
    make(tenant, "plan", "password manager", status="pending_review")
    make(tenant, "eve", "password", owner=Owner.user("eve"))
    found = api("GET", "/memories/search?query=What's your password policy?").body["data"]
    assert [(memory["key"], memory["why"]) for memory in found] == [("bot_policy", ["keyword"])]
    assert api("GET", "/memories/search?query=zebra").body == {"data": []}
    assert api("GET", "/memories/search?query=+").status == 400
    assert api("GET", "/memories/search?query=password&limit=0").status == 400


def test_the_digest_of_a_key_is_what_makes_two_spellings_one() -> None:
    assert identity(" Home ") == identity("home") != identity("house")


def test_a_facts_key_survives_being_proposed_for_deletion_twice(
    api: Api, tenant: Tenant, model: ScriptedModelServer
) -> None:
    for n in range(4):
        gateway.upsert_user_fact(tenant, "ada", f"key {n}", "x")
    for _ in range(2):
        extract(api, model, *(drop(f"key {n}") for n in range(3)))
    assert len(keys(api)) == 4
    assert len(keys(api, "?status=pending_review")) == 3
