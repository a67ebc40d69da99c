"""Forgetting a thread or a turn, and what was learned from it alone (S12, S22)."""

from typing import Any
from uuid import UUID, uuid4

import pytest
from pytest_django import Settings

from memorygw import gateway
from memorygw.exceptions import ThreadBusyError, TurnNotFoundError
from memorygw.models import Tenant
from memorygw.testing import RecordedRequest, ScriptedModelServer
from tests.conftest import Api, learn
from threads.models import Thread, Turn
from threads.turns import TurnDraft
from usermemory.models import Fact
from workingmemory.models import WorkingMemoryState

pytestmark = pytest.mark.django_db(transaction=True)


SAID = ("I live in Turin.", "I drink tea.")


@pytest.fixture(autouse=True)
def eager(settings: Settings) -> None:
    settings.MEMORYGW_EXTRACT_EVERY_TURNS = settings.MEMORYGW_UPDATE_EVERY_TURNS = 2


def learns(model: ScriptedModelServer, **facts: str) -> None:
    """Key → value; with a quote where the value is what was said."""

    def answer(request: RecordedRequest) -> Any:
        if '"operations"' not in request.text:
            return {"summary": " ".join(said for said in SAID if said in request.text), "facts": []}
        known = [(key, value) for key, value in facts.items() if value in request.text]
        return {"operations": [{"op": "SET", "key": key, "value": value, "evidence": value} for key, value in known]}

    model.defaults["cheap"] = answer


def ask(tenant: Tenant, *questions: str) -> UUID:
    thread_id = None
    for question in questions:
        thread_id = gateway.ask(tenant, "ada", question, thread_id=thread_id).thread_id
        learn()
    assert thread_id
    return thread_id


def known(tenant: Tenant) -> dict[str, str]:
    return {fact.key: fact.value for fact in gateway.get_user_facts(tenant, "ada")}


def turn_of(thread_id: UUID, seq: int) -> Turn:
    return Turn.objects.get(thread_id=thread_id, seq=seq)


# --- a thread


def test_what_was_learned_from_a_thread_goes_with_it_when_asked(tenant: Tenant, model: ScriptedModelServer) -> None:
    learns(model, home="Turin", drink="tea")
    first, second = ask(tenant, "I live in Turin."), ask(tenant, "I drink tea.")
    gateway.upsert_user_fact(tenant, "ada", "name", "Ada")
    assert known(tenant) == {"home": "Turin", "drink": "tea", "name": "Ada"}
    gateway.delete_threads(tenant, "ada", [first], learned=True)
    assert known(tenant) == {"drink": "tea", "name": "Ada"}
    gateway.delete_threads(tenant, "ada", [second])
    assert known(tenant) == {"drink": "tea", "name": "Ada"}, "It was not asked for."


def test_a_busy_thread_keeps_what_was_learned(tenant: Tenant, model: ScriptedModelServer) -> None:
    learns(model, home="Turin")
    thread_id = ask(tenant, "I live in Turin.")
    gateway.acquire_lease(tenant, "ada", thread_id)
    with pytest.raises(ThreadBusyError):
        gateway.delete_threads(tenant, "ada", "all", learned=True)
    assert known(tenant) == {"home": "Turin"}


# --- a turn


def test_a_forgotten_turn_is_nowhere_any_more(tenant: Tenant, model: ScriptedModelServer) -> None:
    learns(model, home="Turin", drink="tea")
    thread_id = ask(tenant, "I live in Turin.", "I drink tea.", "Hello")
    assert "Turin" in WorkingMemoryState.objects.get().summary
    gateway.forget_turn(tenant, "ada", thread_id, turn_of(thread_id, 1).pk, learned=True)
    assert "Turin" not in WorkingMemoryState.objects.get().summary, "Never served stale."
    assert known(tenant) == {"drink": "tea"}
    learn()
    assert "I drink tea." in WorkingMemoryState.objects.get().summary
    gateway.ask(tenant, "ada", "And?", thread_id=thread_id)
    sent = model.requests_for("main")[-1]
    assert "Turin" not in sent.text
    assert next(message["role"] for message in sent.messages if message["role"] != "system") == "user"
    assert sent.messages[-1]["content"] == "And?"
    assert [turn.seq for turn in gateway.get_turns(tenant, "ada", thread_id)] == list(range(1, 9))
    assert turn_of(thread_id, 1).status == "forgotten"


def test_a_fact_without_a_quote_goes_when_it_says_what_the_turn_says(
    tenant: Tenant, model: ScriptedModelServer
) -> None:
    learns(model)
    thread_id = ask(tenant, "I live in Turin.")
    for key, value in (("home", "TURIN"), ("pet", "a cat")):
        gateway.upsert_user_fact(tenant, "ada", key, value)
    Fact.objects.update(origin="auto", source_thread_id=thread_id, source_seq=None)
    gateway.forget_turn(tenant, "ada", thread_id, turn_of(thread_id, 1).pk, learned=True)
    assert known(tenant) == {"pet": "a cat"}


def test_without_being_asked_facts_stay(tenant: Tenant, model: ScriptedModelServer) -> None:
    learns(model, home="Turin")
    thread_id = ask(tenant, "I live in Turin.")
    gateway.forget_turn(tenant, "ada", thread_id, turn_of(thread_id, 1).pk)
    assert known(tenant) == {"home": "Turin"}


def test_a_call_whose_result_was_forgotten_is_not_sent(tenant: Tenant, model: ScriptedModelServer) -> None:
    """The model is strict: it refuses a call without its result."""
    thread_id = gateway.ask(tenant, "ada", "Hello").thread_id
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    gateway.append_turns(
        tenant,
        "ada",
        thread_id,
        [
            TurnDraft(role="user", content="Look."),
            TurnDraft(role="assistant", content="Looking.", tool_calls=[call]),
            TurnDraft(role="tool", content="A secret.", tool_call_id="c1"),
            TurnDraft(role="assistant", content="Done."),
        ],
    )
    gateway.forget_turn(tenant, "ada", thread_id, turn_of(thread_id, 5).pk)
    gateway.ask(tenant, "ada", "And?", thread_id=thread_id)
    sent = [message.get("content") for message in model.requests_for("main")[-1].messages]
    assert sent[-4:] == ["Look.", "Looking.", "Done.", "And?"]


def test_a_title_made_of_it_goes_and_one_that_was_given_stays(
    tenant: Tenant, model: ScriptedModelServer, settings: Settings
) -> None:
    settings.MEMORYGW_TITLES_ENABLED = True
    model.defaults["cheap"] = lambda request: "Life in Turin" if "Turin" in request.text else "A talk"
    thread_id = gateway.ask(tenant, "ada", "I live in Turin.").thread_id
    learn()
    assert Thread.objects.get().title == "Life in Turin"
    gateway.forget_turn(tenant, "ada", thread_id, turn_of(thread_id, 1).pk)
    assert Thread.objects.get().title == ""
    gateway.rename_thread(tenant, "ada", thread_id, "Mine")
    gateway.forget_turn(tenant, "ada", thread_id, turn_of(thread_id, 2).pk)
    assert Thread.objects.get().title == "Mine"


def test_over_rest(api: Api, other_api: Api, tenant: Tenant, model: ScriptedModelServer) -> None:
    learns(model, home="Turin", drink="tea")
    thread_id = ask(tenant, "I live in Turin.")
    turn = turn_of(thread_id, 1)
    path = f"/threads/{thread_id}/turns/{turn.pk}"
    assert other_api("DELETE", path).error["code"] == "thread_not_found"
    assert api("DELETE", f"/threads/{thread_id}/turns/{uuid4()}").error["code"] == "turn_not_found"
    assert api("DELETE", f"{path}?learned=perhaps").status == 400
    lease = api("POST", f"/threads/{thread_id}/lease", {}).body["token"]
    assert api("DELETE", path).error["code"] == "thread_busy"
    api("POST", f"/threads/{thread_id}/lease/release", {"token": lease})
    assert api("DELETE", f"{path}?learned=true").status == 204
    assert api.facts() == {}
    [first, _] = api("GET", f"/threads/{thread_id}/turns").body["items"]
    assert (first["content"], first["status"]) == (None, "forgotten")
    other = ask(tenant, "I drink tea.")
    assert api.facts() == {"drink": "tea"}
    assert api("POST", "/threads/delete", {"ids": [str(other)], "learned": True}).body["threads"] == 1
    assert api.facts() == {}


def test_a_turn_of_another_thread_is_none_of_this_one(tenant: Tenant, model: ScriptedModelServer) -> None:
    one, other = ask(tenant, "Hello"), ask(tenant, "Hello")
    with pytest.raises(TurnNotFoundError):
        gateway.forget_turn(tenant, "ada", one, turn_of(other, 1).pk)
