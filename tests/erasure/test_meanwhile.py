"""What is under way while a person is erased, a part of a conversation forgotten, or memory switched off."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.auth.models import User
from django.contrib.contenttypes.models import ContentType
from pytest_django import Settings

from memorygw import erasure, gateway, receipts, sweep
from memorygw.agents import UserMemory as AgentMemory
from memorygw.exceptions import ErasureRunningError, ThreadBusyError
from memorygw.models import ErasureReceipt, Tenant
from memorygw.testing import RecordedRequest, ScriptedModelServer
from tests.conftest import background, learn
from threads.models import Thread, Turn
from usermemory.models import Fact, UserMemory

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def turin(tenant: Tenant, model: ScriptedModelServer) -> Thread:
    """A thread of ada's, who lives in Turin, that nothing has been learned from yet."""

    def learned(request: RecordedRequest) -> Any:
        if '"operations"' not in request.text:
            return {"summary": "A talk.", "facts": []}
        known = [{"op": "SET", "key": "home", "value": "Turin"}] if "in Turin" in request.text else []
        return {"operations": known}

    model.defaults["cheap"] = learned
    return Thread.objects.get(pk=gateway.ask(tenant, "ada", "I live in Turin.").thread_id)


def while_reading(model: ScriptedModelServer, meanwhile: Callable[[], object]) -> None:
    """Learn, and do something else once, on a connection of its own, while the helper model is being asked."""
    answer = model.defaults["cheap"]
    done: list[object] = []

    def asked(request: RecordedRequest) -> Any:
        if not done:
            done.append(request)
            with ThreadPoolExecutor(1) as pool:
                background(pool, meanwhile).result()
        return answer(request) if callable(answer) else answer

    model.defaults["cheap"] = asked
    learn()
    assert done


# --- two erasures


def test_eight_at_once_leave_neither_a_record_nor_a_broken_seal(tenant: Tenant) -> None:
    for _ in range(3):
        gateway.upsert_user_fact(tenant, "ada", "city", "Turin")
        with ThreadPoolExecutor(8) as pool:
            asked = [background(pool, gateway.forget_user, tenant, "ada") for _ in range(8)]
            assert all(request.result().verified for request in asked)
        assert not UserMemory.objects.exists()
        assert list(receipts.problems()) == []


def test_who_is_slow_does_not_erase_a_person_who_came_back(
    turin: Thread, tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two that erase one person, the second stands still before its first row, until the person is back."""
    real = erasure._batch
    stood: list[bool] = []

    def batch(receipt: ErasureReceipt, way: Any) -> int:
        if not stood:
            stood.append(True)
            with ThreadPoolExecutor(1) as pool:
                background(pool, gateway.forget_user, tenant, "ada").result()
            gateway.upsert_user_fact(tenant, "ada", "home", "Rome")
        return real(receipt, way)

    monkeypatch.setattr(erasure, "_batch", batch)
    gateway.forget_user(tenant, "ada")
    assert [fact.value for fact in gateway.get_user_facts(tenant, "ada")] == ["Rome"]
    assert UserMemory.objects.get().erasing_at is None
    assert ErasureReceipt.objects.count() == 1


def test_the_other_mode_is_refused_while_one_is_under_way(tenant: Tenant, settings: Settings) -> None:
    settings.MEMORYGW_ERASERS = ["tests.erasure.test_meanwhile.Broken"]
    with pytest.raises(OSError, match="down"):
        gateway.forget_user(tenant, "ada")
    settings.MEMORYGW_ERASERS = []
    with pytest.raises(ErasureRunningError):
        gateway.forget_user(tenant, "ada", mode="anonymize")
    assert gateway.forget_user(tenant, "ada").mode == "delete"


def test_two_that_are_refused_leave_everything_as_it_was(turin: Thread, tenant: Tenant) -> None:
    gateway.acquire_lease(tenant, "ada", turin.pk)

    def forget() -> str:
        try:
            gateway.forget_user(tenant, "ada")
        except ThreadBusyError:
            return "busy"
        return "erased"

    with ThreadPoolExecutor(2) as pool:
        assert [request.result() for request in [background(pool, forget) for _ in range(2)]] == ["busy", "busy"]
    assert not ErasureReceipt.objects.exists()
    assert UserMemory.objects.get().erasing_at is None


class Broken:
    name = "notes_of_a_host"

    def erase(self, tenant_id: Any, user_id: str, limit: int) -> int:
        raise OSError("The host's store is down.")

    def export(self, tenant_id: Any, user_id: str) -> list[Any]:
        return []


def test_one_that_fails_stops_no_other_work(turin: Thread, tenant: Tenant, settings: Settings) -> None:
    settings.MEMORYGW_ERASERS = ["tests.erasure.test_meanwhile.Broken"]
    with pytest.raises(OSError, match="down"):
        gateway.forget_user(tenant, "bob")
    UserMemory.objects.filter(user_id="bob").update(erasing_at="2020-01-01T00:00Z")
    ErasureReceipt.objects.update(touched_at="2020-01-01T00:00Z")
    sweep.sweep()
    learn()
    assert gateway.get_user_facts(tenant, "ada")[0].value == "Turin"
    settings.MEMORYGW_ERASERS = []
    UserMemory.objects.filter(user_id="bob").update(erasing_at="2020-01-01T00:00Z")
    assert erasure.go_on() == 1


def test_a_new_pepper_goes_on_with_an_erasure_of_the_old_one(tenant: Tenant, settings: Settings) -> None:
    settings.MEMORYGW_ERASERS = ["tests.erasure.test_meanwhile.Broken"]
    with pytest.raises(OSError, match="down"):
        gateway.forget_user(tenant, "ada")
    settings.MEMORYGW_ERASERS = []
    settings.MEMORYGW_PEPPER = "2:another secret,1:only for tests"
    assert gateway.forget_user(tenant, "ada").pepper_version == "1"
    assert not UserMemory.objects.exists()


def test_the_admin_log_of_the_record_goes_too(tenant: Tenant) -> None:
    gateway.upsert_user_fact(tenant, "ada", "city", "Turin")
    LogEntry.objects.create(
        user=User.objects.create(username="operator"),
        content_type=ContentType.objects.get_for_model(UserMemory),
        object_id=str(UserMemory.objects.get().pk),
        object_repr="ada",
        action_flag=CHANGE,
    )
    gateway.forget_user(tenant, "ada")
    assert not LogEntry.objects.exists()


# --- a turn, a thread


def test_a_turn_that_is_being_read_teaches_nothing_once_it_is_forgotten(
    turin: Thread, tenant: Tenant, model: ScriptedModelServer
) -> None:
    first = Turn.objects.get(thread=turin, seq=1)
    while_reading(model, lambda: gateway.forget_turn(tenant, "ada", turin.pk, first.pk, learned=True))
    assert not Fact.objects.exists()


def test_a_title_that_is_being_written_of_a_forgotten_turn_is_not(
    turin: Thread, tenant: Tenant, model: ScriptedModelServer, settings: Settings
) -> None:
    settings.MEMORYGW_TITLES_ENABLED, settings.MEMORYGW_EXTRACTION_ENABLED = True, False
    model.defaults["cheap"] = lambda request: "Life in Turin" if "Turin" in request.text else "A talk"
    thread_id = gateway.ask(tenant, "ada", "I live in Turin.").thread_id
    first = Turn.objects.get(thread_id=thread_id, seq=1)
    while_reading(model, lambda: gateway.forget_turn(tenant, "ada", thread_id, first.pk))
    assert "Turin" not in Thread.objects.get(pk=thread_id).title


# --- memory off


def test_with_memory_off_no_prompt_is_told_and_no_tool_offered(
    turin: Thread, tenant: Tenant, model: ScriptedModelServer
) -> None:
    learn()
    memory = AgentMemory(model="cheap", tenant=tenant)
    assert "Turin" in memory.get_context_string("ada")
    gateway.set_user_memory(tenant, "ada", enabled=False)
    assert memory.get_context_string("ada") == ""
    assert gateway.get_facts_text(tenant, "ada") == ""
    gateway.ask(tenant, "ada", "Hello", own_tools=[memory.as_tool()])
    assert "tools" not in model.requests_for("main")[-1].body


def test_a_run_that_began_before_memory_went_off_remembers_nothing(
    tenant: Tenant, model: ScriptedModelServer, settings: Settings
) -> None:
    settings.MEMORYGW_MEMORY_TOOLS = "persona"
    arguments = '{"key": "home", "value": "Turin"}'
    save = {"id": "c1", "type": "function", "function": {"name": "memory_save", "arguments": arguments}}
    model.reply(None, model="main", tool_calls=[save])
    with ThreadPoolExecutor(1) as pool:
        with model.hold("main"):
            asked = background(pool, gateway.ask, tenant, "ada", "Remember that I live in Turin.")
            model.wait_for_requests(1, model="main")
            gateway.set_user_memory(tenant, "ada", enabled=False)
        asked.result()
    assert not Fact.objects.exists()


def test_what_was_said_by_voice_while_memory_was_off_is_not_learned(tenant: Tenant, model: ScriptedModelServer) -> None:
    session = gateway.open_voice_session(tenant, "ada")
    for enabled, text in ((True, "I like tea."), (False, "I am ill."), (True, "Goodbye.")):
        gateway.set_user_memory(tenant, "ada", enabled=enabled)
        gateway.add_voice_fragments(tenant, "ada", session.id, [("user", text)])
        gateway.add_voice_fragments(tenant, "ada", session.id, [("assistant", "I see.")])
    gateway.close_voice_session(tenant, "ada", session.id)
    learn()
    [request] = model.requests_for("cheap")
    assert "tea" in request.text
    assert "ill" not in request.text


# --- what is hidden by age


def test_a_session_that_is_over_may_be_opened_again(tenant: Tenant, settings: Settings) -> None:
    old = gateway.open_session(tenant, "ada", "daily").pk
    Thread.objects.update(updated_at="2020-01-01T00:00Z")
    settings.MEMORYGW_RETENTION_DAYS = {"threads": 9}
    assert gateway.open_session(tenant, "ada", "daily").pk != old


def test_a_text_that_is_said_again_is_new(tenant: Tenant, settings: Settings) -> None:
    gateway.add_user_facts(tenant, "ada", ["Likes tea."])
    Fact.objects.update(updated_at="2020-01-01T00:00Z")
    settings.MEMORYGW_RETENTION_DAYS = {"facts": 9}
    gateway.add_user_facts(tenant, "ada", ["Likes tea."])
    assert [fact.value for fact in gateway.get_user_facts(tenant, "ada")] == ["Likes tea."]


def test_what_a_persona_knows_has_no_time(tenant: Tenant, model: ScriptedModelServer, settings: Settings) -> None:
    persona = gateway.create_persona(tenant, "clerk")
    gateway.set_persona_fact(tenant, persona.pk, "opening hours", "9 to 5")
    Fact.objects.update(updated_at="2020-01-01T00:00Z")
    settings.MEMORYGW_RETENTION_DAYS = {"facts": 9}
    gateway.ask(tenant, "ada", "Hello", persona="clerk")
    assert "9 to 5" in model.requests_for("main")[-1].system
