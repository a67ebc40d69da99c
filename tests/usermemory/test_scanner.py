"""The scanner: which conversations it has read, and what becomes of what it finds (R79–R92)."""

import io
import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.core.management import call_command
from django.utils import timezone
from pytest_django import Settings

from memorygw import gateway, sweep
from memorygw.models import Persona, Tenant
from memorygw.tasks import scan as scan_task
from memorygw.testing import ScriptedModelServer
from tests.cases.steps import drop, put
from tests.conftest import extractions, learn
from threads.models import Thread
from usermemory.models import ExtractionState, Fact


@pytest.fixture(autouse=True)
def scanner(settings: Settings) -> None:
    settings.MEMORYGW_EXTRACTION_TRIGGERS = "scanner"


def talk(tenant: Tenant, times: int = 3, user: str = "ada", thread_id: Any = None, persona: str = "") -> Any:
    """So many questions and answers, and then silence for three minutes."""
    for n in range(times):
        thread_id = gateway.ask(tenant, user, f"I said {n}", thread_id=thread_id, persona="").thread_id
        if persona:
            Thread.objects.filter(pk=thread_id).update(persona=Persona.objects.get(name=persona))
    learn()
    Thread.objects.filter(pk=thread_id).update(updated_at=timezone.now() - timedelta(minutes=3))
    return thread_id


def scan(model: ScriptedModelServer | None = None, *operations: dict[str, Any]) -> int:
    if model and operations:
        model.reply({"operations": list(operations)}, model="cheap")
    return sweep.scan()


def pending() -> Iterator[tuple[str, str]]:
    return Fact.objects.pending().in_order().values_list("key", "value").iterator()


@pytest.mark.rows("R79", "R80", "R81", "R82", "R83", "R84", "R94")
def test_a_conversation_with_enough_in_it_is_read_and_its_facts_wait_for_review(
    tenant: Tenant, model: ScriptedModelServer
) -> None:
    short, long = talk(tenant, 2), talk(tenant, 3)
    assert extractions(model) == []
    assert scan(model, put("drink", "tea") | {"confidence": 0.7}) == 1
    [request] = extractions(model)
    assert "I said 2" in request.text
    assert request.model == "cheap"
    fact = Fact.objects.get()
    assert (fact.status, fact.confidence, fact.origin) == ("pending_review", 0.7, "auto")
    assert fact.source_thread_id == long != short
    gateway.ask(tenant, "ada", "Hello")
    assert "tea" not in model.requests_for("main")[-1].system


@pytest.mark.rows("R85")
def test_a_second_pass_reads_nothing_twice(tenant: Tenant, model: ScriptedModelServer) -> None:
    thread_id = talk(tenant)
    assert (scan(), scan()) == (1, 0)
    talk(tenant, 3, thread_id=thread_id)
    assert scan() == 1
    first, second = extractions(model)
    assert first.text.count("I said 0") == second.text.count("I said 0") == 1
    assert ExtractionState.objects.get().covered == 12


@pytest.mark.rows("R86", "R87")
@pytest.mark.parametrize("fault", ["failure", "prose"])
def test_what_the_model_did_not_answer_is_asked_again(
    tenant: Tenant, model: ScriptedModelServer, fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    talk(tenant)
    if fault == "failure":
        model.fail(500, model="cheap")
    else:
        model.reply("I think they like tea.", model="cheap")
    scan()
    assert not Fact.objects.exists()
    assert "Extraction of thread" in caplog.text
    ExtractionState.objects.update(due_at=timezone.now() - timedelta(seconds=1))
    model.reply({"operations": [put("drink", "tea")]}, model="cheap")
    learn()
    assert list(pending()) == [("drink", "tea")]


@pytest.mark.rows("R88", "R90")
def test_a_tenant_switches_learning_off_and_on_while_it_runs(
    tenant: Tenant, other_tenant: Tenant, model: ScriptedModelServer
) -> None:
    talk(tenant), talk(other_tenant)
    gateway.update_tenant(tenant, memory_extraction_enabled=False)
    assert scan() == 1
    assert len(extractions(model)) == 1
    assert ExtractionState.objects.get(thread__tenant=tenant).covered == 0
    gateway.update_tenant(tenant, memory_extraction_enabled=True)
    assert scan() == 1
    assert len(extractions(model)) == 2


def test_a_tenant_that_is_switched_off_learns_behind_no_answer_either(
    tenant: Tenant, model: ScriptedModelServer, settings: Settings
) -> None:
    settings.MEMORYGW_EXTRACTION_TRIGGERS = "turns"
    gateway.update_tenant(tenant, memory_extraction_enabled=False)
    gateway.ask(tenant, "ada", "Hello")
    assert sweep.until_idle(5)
    assert extractions(model) == []


@pytest.mark.rows("R89", "R90")
def test_a_persona_without_memory_is_not_read(tenant: Tenant, model: ScriptedModelServer) -> None:
    Persona.objects.create(tenant=tenant, name="deaf", memory_enabled=False)
    Persona.objects.create(tenant=tenant, name="coach")
    deaf, _ = talk(tenant, persona="deaf"), talk(tenant, persona="coach")
    scan()
    assert len(extractions(model)) == 1
    # Switched on, it does not dig out the past.
    Persona.objects.update(memory_enabled=True)
    assert ExtractionState.objects.get(thread_id=deaf).covered == 6


@pytest.mark.rows("R91")
def test_the_thresholds_are_settings(tenant: Tenant, model: ScriptedModelServer, settings: Settings) -> None:
    thread_id = talk(tenant, 2)
    settings.MEMORYGW_SCAN_MIN_TURNS = 4
    Thread.objects.filter(pk=thread_id).update(updated_at=timezone.now() - timedelta(seconds=60))
    assert scan() == 0
    settings.MEMORYGW_SCAN_IDLE_SECONDS = 30
    assert scan() == 1


def test_a_busy_conversation_is_read_once_it_is_long_enough(tenant: Tenant, model: ScriptedModelServer) -> None:
    thread_id = talk(tenant, 3)
    Thread.objects.filter(pk=thread_id).update(updated_at=timezone.now())
    assert scan() == 0
    ExtractionState.objects.update(answered=50)
    assert scan() == 1


@pytest.mark.rows("R92")
def test_facts_of_a_personas_conversation_belong_to_the_user_with_it(
    tenant: Tenant, model: ScriptedModelServer
) -> None:
    persona = Persona.objects.create(tenant=tenant, name="coach")
    talk(tenant, persona="coach")
    scan(model, put("goal", "a marathon"))
    fact = Fact.objects.get()
    assert (fact.scope, fact.owner_id, fact.user_id) == ("persona_user", str(persona.pk), "ada")
    Fact.objects.all().delete()
    talk(tenant)
    scan(model, put("goal", "a marathon"))
    assert Fact.objects.get().scope == "user"


@pytest.mark.rows("R57")
def test_what_a_reviewer_rejected_is_not_proposed_again(tenant: Tenant, model: ScriptedModelServer) -> None:
    thread_id = talk(tenant)
    scan(model, put("drink", "tea"))
    gateway.reject_memory(tenant, "ada", Fact.objects.get().pk)
    talk(tenant, thread_id=thread_id)
    scan(model, put("drink", "tea"), put("home", "Turin"))
    assert list(pending()) == [("home", "Turin")]


def test_a_proposal_is_replaced_by_a_newer_one_for_its_key(tenant: Tenant, model: ScriptedModelServer) -> None:
    thread_id = talk(tenant)
    scan(model, put("home", "Turin"))
    talk(tenant, thread_id=thread_id)
    scan(model, put("Home", "Milan"), put("home ", "Milan"))
    assert list(pending()) == [("Home", "Milan")]


def test_what_is_hardly_sure_or_too_much_is_dropped(tenant: Tenant, model: ScriptedModelServer) -> None:
    talk(tenant)
    many = [put(f"key {n}", "x") for n in range(12)]
    scan(model, put("maybe", "x") | {"confidence": 0.2}, *many)
    assert [key for key, _ in pending()] == [f"key {n}" for n in range(10)]


def test_a_policy_of_never_believes_the_scanner(tenant: Tenant, model: ScriptedModelServer) -> None:
    gateway.update_tenant(tenant, review_policy="never")
    talk(tenant)
    scan(model, put("drink", "tea"))
    assert Fact.objects.get().status == "active"


@pytest.mark.parametrize(
    ("where", "policy", "status"),
    [
        ("setting", "always_extracted", "pending_review"),
        ("setting", "scanner", "active"),
        ("tenant", "all_model_writes", "pending_review"),
        ("persona", "always_extracted", "pending_review"),
    ],
)
def test_what_is_learned_behind_answers_waits_where_a_policy_says_so(
    tenant: Tenant, model: ScriptedModelServer, settings: Settings, where: str, policy: str, status: str
) -> None:
    settings.MEMORYGW_EXTRACTION_TRIGGERS = "turns"
    persona = Persona.objects.create(tenant=tenant, name="coach")
    if where == "setting":
        settings.MEMORYGW_REVIEW_POLICY = policy
    elif where == "tenant":
        gateway.update_tenant(tenant, review_policy=policy)
    else:
        gateway.update_tenant(tenant, review_policy="never")
        Persona.objects.filter(pk=persona.pk).update(review_policy=policy)
    model.reply({"operations": [put("drink", "tea")]}, model="cheap")
    gateway.ask(tenant, "ada", "I drink tea.", persona="coach")
    learn()
    assert Fact.objects.get().status == status


@pytest.mark.parametrize(
    ("setting", "value", "operation", "status"),
    [
        ("ACTIVE_CONFIDENCE", 0.5, put("drink", "tea") | {"confidence": 0.4}, "pending_review"),
        ("ACTIVE_CONFIDENCE", 0.0, put("drink", "tea") | {"confidence": 0.4}, "active"),
        ("EVIDENCE", "required", put("drink", "tea"), "pending_review"),
        ("EVIDENCE", "required", put("drink", "tea") | {"evidence": "I drink tea"}, "active"),
        ("PROTECT_MANUAL", True, put("drink", "tea"), "pending_review"),
        ("PROTECT_MANUAL", True, drop("drink"), "pending_review"),
    ],
)
def test_what_is_doubtful_waits_whatever_the_policy(
    tenant: Tenant,
    model: ScriptedModelServer,
    settings: Settings,
    setting: str,
    value: Any,
    operation: dict[str, Any],
    status: str,
) -> None:
    settings.MEMORYGW_EXTRACTION_TRIGGERS = "turns"
    setattr(settings, f"MEMORYGW_{setting}", value)
    if setting == "PROTECT_MANUAL":
        gateway.upsert_user_fact(tenant, "ada", "drink", "rum")
    model.reply({"operations": [operation]}, model="cheap")
    gateway.ask(tenant, "ada", "I drink tea.")
    learn()
    assert Fact.objects.exclude(value="rum", operation="set").get().status == status
    if setting == "PROTECT_MANUAL":
        assert [fact.value for fact in gateway.get_user_facts(tenant, "ada")] == ["rum"]


def test_the_command_says_what_it_found_and_the_clock_heeds_the_setting(
    tenant: Tenant, model: ScriptedModelServer, settings: Settings
) -> None:
    talk(tenant)
    settings.MEMORYGW_EXTRACTION_TRIGGERS = "turns"
    scan_task()
    assert ExtractionState.objects.due().count() == 0
    settings.MEMORYGW_EXTRACTION_TRIGGERS = "turns,scanner"
    scan_task()
    assert ExtractionState.objects.due().count() == 1
    learn()
    settings.MEMORYGW_EXTRACTION_TRIGGERS = "scanner"
    talk(tenant)
    out = io.StringIO()
    call_command("scan", "--json", stdout=out)
    assert json.loads(out.getvalue()) == {"found": 1}
