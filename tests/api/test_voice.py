"""Voice sessions over REST: whose they are, what they take, what a second request does."""

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import pytest

from memorygw import gateway
from memorygw.models import IdempotencyKey, Tenant, VoiceBatch, VoiceSession
from memorygw.testing import ScriptedModelServer
from tests.agents.steps import heard
from tests.conftest import Api, Reply, background, learn

pytestmark = pytest.mark.django_db(transaction=True)

KEY = {"Idempotency-Key": "a-key-of-mine"}


@pytest.fixture
def phone(service_api: Api, model: ScriptedModelServer) -> "Phone":
    model.defaults["cheap"] = '["Lives in Pune"]'
    return Phone(service_api)


class Phone:
    def __init__(self, api: Api) -> None:
        self.api = api

    def open(self, body: Any = None, **options: Any) -> Reply:
        return self.api("POST", "/voice/sessions", body or {}, **options)

    def add(self, session_id: str, *items: Any, **options: Any) -> Reply:
        listed = [{"role": role, "text": text} for role, text in items]
        return self.api("POST", f"/voice/sessions/{session_id}/fragments", {"items": listed}, **options)

    def close(self, session_id: str, **options: Any) -> Reply:
        return self.api("POST", f"/voice/sessions/{session_id}/close", **options)


@pytest.mark.rows("A89", "A96", "A103")
def test_a_session_begins_with_what_is_known_and_ends_with_what_was_said(
    phone: Phone, model: ScriptedModelServer
) -> None:
    phone.api("PUT", "/facts/drink", {"value": "tea"})
    opened = phone.open({"instructions": " Be kind. "})
    assert (opened.status, sorted(opened.body)) == (201, ["id", "instructions"])
    assert opened.body["instructions"].startswith("Be kind.\n\n")
    assert "drink: tea" in opened.body["instructions"]
    session_id = opened.body["id"]
    added = phone.add(session_id, ("user", "I live in \ud83c"), ("user", "\uddee\ud83c"))
    assert (added.status, added.body) == (202, None)
    assert phone.add(session_id, ("user", "\uddf3."), ("assistant", "Nice\x00!")).status == 202
    closed = phone.close(session_id)
    said = [{"role": "user", "content": "I live in 🇮🇳."}, {"role": "assistant", "content": "Nice!"}]
    assert (closed.status, closed.body) == (200, {"messages": said})
    learn()
    phone.api.ask("Hello")
    assert "Lives in Pune" in model.requests_for("main")[-1].system


@pytest.mark.rows("A88", "A89")
def test_the_personas_instructions_are_taken_and_a_switch_holds(api: Api, model: ScriptedModelServer) -> None:
    phone = Phone(api)
    api("PUT", "/facts/drink", {"value": "tea"})
    for name, injects in (("P", True), ("Q", False)):
        body = {"name": name, "instructions": "I am {memory} P.", "memory_injection_enabled": injects}
        persona = api("POST", "/personas", body).body
        for choice in (name, persona["id"]):
            told = phone.open({"persona": choice}).body["instructions"]
            assert ("drink: tea" in told) == injects
        assert "drink: tea" not in phone.open({"persona": name}, user="bob").body["instructions"]
    assert phone.open({"persona": "unknown"}).status == 404
    assert phone.open({"persona": "P", "instructions": "Own."}).body["instructions"].startswith("Own.")


@pytest.mark.rows("A97")
def test_a_closed_session_takes_no_fragments_and_shows_what_was_said(phone: Phone) -> None:
    session_id = phone.open().body["id"]
    phone.add(session_id, ("user", "Hello"))
    first = phone.close(session_id)
    refused = phone.add(session_id, ("user", "again"))
    assert (refused.status, refused.error["code"]) == (409, "voice_session_closed")
    assert phone.close(session_id).body == first.body


@pytest.mark.parametrize(
    "body",
    [
        {}, {"items": []}, {"items": "x"}, {"items": [{"role": "user"}]}, {"items": [{"text": "x"}]}, {"items": ["x"]},
        {"items": [{"role": "system", "text": "x"}]}, {"items": [{"role": "user", "text": None}]},
        {"items": [{"role": "user", "text": 5}]}, {"items": [{"role": "user", "text": ["x"]}]},
        {"items": [{"role": "user", "text": "fine"}, {"role": "\ud83d", "text": "x"}]},
        {"items": [{"role": "user", "text": "fine"}], "other": "\x00"},
        {"items": [{"role": "user", "text": "x", "more": "\ud83d"}]},
        {"items": [{"role": "user", "text": {"a": "\x00"}}]},
    ],
    ids=json.dumps,
)  # fmt: skip
def test_what_are_no_fragments_is_refused_and_leaves_nothing(phone: Phone, body: Any) -> None:
    session_id = phone.open().body["id"]
    assert phone.api("POST", f"/voice/sessions/{session_id}/fragments", body).status == 400
    assert phone.close(session_id).body == {"messages": []}


def test_ten_thousand_fragments_are_taken_at_once_and_no_more(phone: Phone) -> None:
    session_id = phone.open().body["id"]
    assert phone.add(session_id, *[("user", "x")] * 10_001).status == 400
    assert phone.add(session_id, *[("user", "x")] * 10_000).status == 202
    assert phone.close(session_id).body["messages"] == [{"role": "user", "content": "x" * 10_000}]


@pytest.mark.parametrize("field", ["instructions", "persona"])
@pytest.mark.parametrize("text", ["\x00", "\ud83d"])
def test_only_the_text_of_fragments_may_be_half_a_character(phone: Phone, field: str, text: str) -> None:
    refused = phone.open({field: text})
    assert (refused.status, list(refused.error["fields"])) == (400, [field])
    assert VoiceSession.objects.count() == 0


def test_a_session_is_its_users_and_tenants_alone(phone: Phone, other_api: Api, model: ScriptedModelServer) -> None:
    def talk(phone: Phone, session_id: str, **options: Any) -> Reply:
        return phone.add(session_id, ("user", "x"), **options)

    session_id = phone.open().body["id"]
    phone.add(session_id, ("user", "my secret"))
    strangers: list[tuple[Api, str | None]] = [(phone.api, "bob"), (phone.api, "ADA"), (other_api, "ada")]
    for api, user in strangers:
        for act in (Phone.close, talk):
            foreign, unknown, none = (act(Phone(api), id_, user=user) for id_ in (session_id, str(uuid4()), "no-id"))
            assert (foreign.status, foreign.body) == (unknown.status, unknown.body) == (none.status, none.body)
            assert (foreign.status, foreign.error["code"]) == (404, "voice_session_not_found")
    phone.api.user = None
    assert phone.close(session_id).status == 404
    assert phone.close(session_id, user="ada").body["messages"] == [{"role": "user", "content": "my secret"}]


@pytest.mark.rows("A99")
def test_an_anonymous_session_is_nobodys_and_nothing_comes_of_it(
    phone: Phone, other_api: Api, model: ScriptedModelServer
) -> None:
    phone.api("PUT", "/facts/drink", {"value": "tea"})
    phone.api.user = other_api.user = None
    opened = phone.open({"instructions": "Be kind."})
    assert (opened.status, opened.body["instructions"]) == (201, "Be kind.")
    session_id = opened.body["id"]
    assert phone.add(session_id, ("user", "Hello"), user="ada").status == 404
    assert Phone(other_api).add(session_id, ("user", "Hello")).status == 404
    assert phone.add(session_id, ("user", "Hello")).status == 202
    assert phone.close(session_id).body["messages"] == [{"role": "user", "content": "Hello"}]
    learn()
    assert model.requests == []
    for user in ("*", "", "%00"):
        assert phone.api("POST", f"/voice/sessions?user={user}", {}).status == 400


def test_a_user_token_opens_its_own_sessions_alone(phone: Phone, service_api: Api, tenant: Tenant) -> None:
    token = gateway.create_user_token(tenant, "ada").token
    mine = Phone(Api(token, user=None))
    session_id = mine.open().body["id"]
    assert mine.open(user="bob").status == 404
    assert mine.add(session_id, ("user", "Hello")).status == 202
    assert phone.close(session_id, user="ada").status == 200
    theirs = phone.open(user="bob").body["id"]
    assert mine.close(theirs).status == 404
    service_api.user = None
    assert mine.close(phone.open().body["id"]).status == 404


# --- sent twice


@pytest.mark.rows("A97")
def test_what_is_sent_twice_under_one_key_is_there_once(phone: Phone) -> None:
    first, second = (phone.open({"instructions": "Hi"}, headers=KEY) for _ in range(2))
    assert (second.status, second.body) == (201, first.body)
    assert phone.open({"instructions": "Other"}, headers=KEY).error["code"] == "idempotency_key_reused"
    session_id = first.body["id"]
    for _ in range(2):
        assert phone.add(session_id, ("user", "a\ud83d"), headers=KEY).status == 202
    assert phone.add(session_id, ("user", "b"), headers=KEY).status == 409
    assert phone.add(session_id, ("user", "\ude00")).status == 202
    assert phone.close(session_id).body["messages"] == [{"role": "user", "content": "a😀"}]
    assert phone.add(session_id, ("user", "a\ud83d"), headers=KEY).status == 202
    assert (VoiceSession.objects.count(), VoiceBatch.objects.count()) == (1, 2)


def test_a_key_is_one_users_also_where_there_is_no_user(phone: Phone, other_api: Api) -> None:
    sessions = [phone.open(headers=KEY, user=user) for user in ("ada", "bob")]
    phone.api.user = other_api.user = None
    sessions += [phone.open(headers=KEY), Phone(other_api).open(headers=KEY)]
    assert len({reply.body["id"] for reply in sessions}) == 4
    assert phone.open(headers=KEY).body == sessions[2].body


def test_a_refused_request_does_not_use_its_key_up(phone: Phone) -> None:
    session_id = phone.open().body["id"]
    assert phone.add(session_id, ("system", "x"), headers=KEY).status == 400
    assert phone.add(str(uuid4()), ("user", "x"), headers=KEY).status == 404
    assert phone.add(session_id, ("user", "x"), headers=KEY).status == 202
    phone.api("DELETE", "/facts?all=true")
    assert phone.add(session_id, ("user", "x"), headers=KEY).status == 202
    assert VoiceBatch.objects.count() == 1


def test_erasing_a_person_takes_their_sessions_and_keys(api: Api, model: ScriptedModelServer) -> None:
    phone = Phone(api)
    ids = [phone.open(headers=KEY, user=user).body["id"] for user in ("ada", "bob")]
    for user, session_id in zip(("ada", "bob"), ids, strict=True):
        phone.add(session_id, ("user", "my secret"), user=user)
    assert api("POST", "/users/ada/forget", {"mode": "delete"}).body["counts"]["voice_sessions"] == 1
    assert phone.add(ids[0], ("user", "x")).status == phone.close(ids[0]).status == 404
    learn()
    assert model.requests == []
    assert list(VoiceSession.objects.values_list("user_id", flat=True)) == ["bob"]
    assert list(IdempotencyKey.objects.values_list("user_id", flat=True)) == ["bob"]
    assert VoiceBatch.objects.count() == 1


@pytest.mark.rows("A96")
def test_of_two_agents_at_once_each_session_keeps_its_own(phone: Phone, model: ScriptedModelServer) -> None:
    one, two = phone.open().body["id"], phone.open().body["id"]
    for n in range(3):
        phone.add(one, ("user", f"one {n} "))
        phone.add(two, ("user", f"two {n} "))
    phone.close(two)
    phone.close(one)
    learn()
    assert [heard(request) for request in model.requests] == [["user: two 0 two 1 two 2"], ["user: one 0 one 1 one 2"]]


def test_the_same_request_ten_times_at_once_has_one_effect(phone: Phone) -> None:
    for n in range(6):
        key = {"Idempotency-Key": f"key-{n}"}
        with ThreadPoolExecutor(10) as pool:
            opened = [done.result() for done in [background(pool, phone.open, headers=key) for _ in range(10)]]
            assert {reply.status for reply in opened} <= {201, 409}
            [session_id] = {reply.body["id"] for reply in opened if reply.status == 201}
            work = [background(pool, phone.add, session_id, ("user", "x"), headers=key) for _ in range(10)]
            assert {done.result().status for done in work} <= {202, 409}
    assert (VoiceSession.objects.count(), VoiceBatch.objects.count()) == (6, 6)
