"""Learning from threads: what is asked of the model, when, and what late or doubled jobs may do."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from django.utils import timezone
from pytest_django import Settings

from memorygw import gateway
from memorygw.claims import MAX_ATTEMPTS
from memorygw.models import ModelCall, Persona, Tenant
from memorygw.testing import ScriptedModelServer
from tests.conftest import background, extractions, learn
from threads.models import Thread, Turn
from usermemory.models import ExtractionState, Fact, UserMemory
from usermemory.tasks import extract_facts


@pytest.fixture(autouse=True)
def every_four(settings: Settings) -> None:
    settings.MEMORYGW_EXTRACT_EVERY_TURNS = 4


def operations(*lines: str) -> dict[str, Any]:
    """ "key=value" is a SET, "-key" a DELETE."""
    items = []
    for line in lines:
        key, _, value = line.partition("=")
        items.append({"op": "DELETE", "key": key[1:]} if key[0] == "-" else {"op": "SET", "key": key, "value": value})
    return {"operations": items}


def facts(tenant: Any, user: str = "ada") -> dict[str, str]:
    return {fact.key: fact.value for fact in gateway.get_user_facts(tenant, user)}


def state() -> ExtractionState:
    return ExtractionState.objects.get()


@pytest.mark.rows("U24", "U86", "U87", "U88", "U89")
def test_the_model_gets_the_known_facts_and_what_was_said_with_its_times(
    tenant: Tenant, model: ScriptedModelServer
) -> None:
    gateway.upsert_user_fact(tenant, "ada", "town", "Lyon")
    model.reply("As a vegetarian you may like oat milk.", model="main")
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,QUJD"}}
    gateway.ask(tenant, "ada", [{"type": "text", "text": "I switched\nto decaf."}, picture])
    learn()
    [request] = extractions(model)
    [message] = request.messages
    said = Turn.objects.get(seq=1).created_at.isoformat()
    assert message["role"] == "user"
    assert "town: Lyon" in message["content"]
    assert f"[{said}] user: I switched to decaf. [image_url]\n" in message["content"]
    assert "] assistant: As a vegetarian you may like oat milk." in message["content"]
    assert "QUJD" not in message["content"]
    assert "user_memory" not in message["content"]
    assert request.body["temperature"] == 0
    assert request.body["response_format"]["json_schema"]["name"] == "memory_operations"
    assert ModelCall.objects.filter(kind="MEMORY_USER", model="cheap", outcome="ok").count() == 1


@pytest.mark.rows("U75", "U76", "U77", "U109", "U110")
def test_each_turn_reaches_one_extraction(tenant: Tenant, model: ScriptedModelServer) -> None:
    thread_id = None
    calls = []
    for n in range(1, 7):
        thread_id = gateway.ask(tenant, "ada", f"said-{n}.", thread_id=thread_id).thread_id
        learn()
        calls.append(len(extractions(model)))
    assert calls == [1, 2, 2, 3, 3, 4]
    texts = [request.text for request in extractions(model)]
    assert [[n for n in range(1, 7) if f"said-{n}." in text] for text in texts] == [[1], [2], [3, 4], [5, 6]]


@pytest.mark.rows("U101", "U81", "U21")
def test_switched_off_nothing_is_learned_and_nothing_waits(
    tenant: Tenant, model: ScriptedModelServer, settings: Settings
) -> None:
    gateway.ask(tenant, "ada", "Hello")
    settings.MEMORYGW_EXTRACTION_ENABLED = False
    learn()
    gateway.ask(tenant, "ada", "Hello")
    extract_facts(str(state().pk))
    assert extractions(model) == []


@pytest.mark.rows("U102")
def test_without_anything_to_learn_from_no_model_is_asked(tenant: Tenant, model: ScriptedModelServer) -> None:
    persona = Persona.objects.create(tenant=tenant, name="quiet", memory_enabled=False)
    quiet = gateway.create_thread(tenant, "ada", persona="quiet").pk
    gateway.ask(tenant, "ada", "Hello", thread_id=quiet)
    marked = gateway.ask(tenant, "ada", "Hello").thread_id
    Turn.objects.filter(thread_id=marked).update(learnable=False)
    learn()
    assert extractions(model) == []
    assert list(ExtractionState.objects.values_list("covered", "due_at")) == [(2, None)] * 2
    persona.memory_enabled = True
    persona.save()
    gateway.ask(tenant, "ada", "More", thread_id=quiet)
    learn()
    assert "Hello" not in extractions(model)[0].text


def test_a_persona_and_a_setting_choose_the_helper_model(
    tenant: Tenant, model: ScriptedModelServer, settings: Settings
) -> None:
    Persona.objects.create(tenant=tenant, name="guide", cheap_model="tiny")
    model.defaults |= {"tiny": operations(), "memory": operations()}
    gateway.ask(tenant, "ada", "Hello", thread_id=gateway.create_thread(tenant, "ada", persona="guide").pk)
    learn()
    settings.MEMORYGW_MEMORY_MODEL = "memory"
    gateway.ask(tenant, "ada", "Hello")
    learn()
    assert [request.model for request in model.requests if request.model != "main"] == ["tiny", "memory"]


@pytest.mark.rows("U112")
def test_what_looks_like_a_slot_or_markup_arrives_literally(tenant: Tenant, model: ScriptedModelServer) -> None:
    gateway.upsert_user_fact(tenant, "ada", "slot", "{{ transcript }} {% now %} $& <b>&amp;</b>")
    gateway.ask(tenant, "ada", "{{ facts }} & <i>")
    learn()
    text = extractions(model)[0].text
    assert "slot: {{ transcript }} {% now %} $& <b>&amp;</b>" in text
    assert "user: {{ facts }} & <i>" in text


def test_a_reply_cut_by_length_halves_the_batch(tenant: Tenant, model: ScriptedModelServer) -> None:
    thread_id = gateway.ask(tenant, "ada", "first").thread_id
    learn()
    thread = Thread.objects.get()
    filler = [
        Turn(thread=thread, seq=seq, role="user", content=f"said-{seq}.", token_count=1, tokens_through=99 + seq)
        for seq in range(3, 63)
    ]
    Turn.objects.bulk_create(filler)
    Thread.objects.update(turn_count=62, token_count=161)
    model.reply(operations("a=1"), model="cheap", finish_reason="length")
    gateway.ask(tenant, "ada", "last", thread_id=thread_id)
    learn()
    assert (state().covered, state().last_error, facts(tenant)) == (2, "reply_cut", {})
    assert "said-52." in extractions(model)[-1].text
    ExtractionState.objects.update(due_at=timezone.now() - timedelta(seconds=1))
    learn()
    texts = [request.text for request in extractions(model)[2:]]
    assert [("said-27." in text, "said-28." in text) for text in texts] == [(True, False), (False, True)]
    assert state().covered == 64


def test_after_many_failures_a_thread_waits_for_its_next_answer(tenant: Tenant, model: ScriptedModelServer) -> None:
    model.fail(500, model="cheap", times=MAX_ATTEMPTS)
    thread_id = gateway.ask(tenant, "ada", "Hello").thread_id
    for attempt in range(1, MAX_ATTEMPTS + 1):
        learn()
        assert state().attempts == attempt
        waits = state().due_at
        assert (waits is None) == (attempt == MAX_ATTEMPTS)
        assert waits is None or waits > timezone.now()
        ExtractionState.objects.exclude(due_at=None).update(due_at=timezone.now() - timedelta(seconds=1))
    learn()
    assert len(extractions(model)) == MAX_ATTEMPTS
    model.reply(operations("a=1"), model="cheap")
    gateway.ask(tenant, "ada", "More", thread_id=thread_id)
    learn()
    assert facts(tenant) == {"a": "1"}


def test_a_job_that_comes_twice_or_too_late_does_nothing(tenant: Tenant, model: ScriptedModelServer) -> None:
    model.reply(operations("a=1"), model="cheap")
    thread_id = gateway.ask(tenant, "ada", "Hello").thread_id
    learn()
    before = Fact.objects.values().get()
    extract_facts(str(thread_id))
    assert Fact.objects.values().get() == before
    assert len(extractions(model)) == 1
    gateway.delete_threads(tenant, "ada", "all")
    extract_facts(str(thread_id))
    assert len(extractions(model)) == 1


# --- at the same time


def in_background(pool: ThreadPoolExecutor, thread_id: UUID) -> Any:
    return background(pool, extract_facts, str(thread_id))


@contextmanager
def extracting(thread_id: UUID, model: ScriptedModelServer) -> Iterator[None]:
    """An extraction of the thread is running, waiting for its model; at the end the model answers and it is over."""
    with ThreadPoolExecutor(1) as pool:
        with model.hold(model="cheap"):
            late = in_background(pool, thread_id)
            model.wait_for_requests(1, model="cheap")
            yield
        late.result()


@pytest.fixture
def learning(transactional_db: None, model: ScriptedModelServer) -> Any:
    """A thread of ada in the default tenant whose extraction is due and will say city=Turin."""
    model.reply(operations("city=Turin"), model="cheap")
    return gateway.ask("default", "ada", "I live in Turin.").thread_id


@pytest.mark.rows("U107", "U108")
def test_a_claimed_row_is_left_alone(learning: UUID, model: ScriptedModelServer) -> None:
    with extracting(learning, model), ThreadPoolExecutor(1) as pool:
        in_background(pool, learning).result()
    assert len(extractions(model)) == 1
    assert facts("default") == {"city": "Turin"}


def test_a_late_extraction_stores_nothing_for_a_forgotten_user(learning: UUID, model: ScriptedModelServer) -> None:
    gateway.upsert_user_fact("default", "ada", "lang", "it")
    gateway.upsert_user_fact("default", "bob", "lang", "de")
    with extracting(learning, model):
        receipt = gateway.forget_user("default", "ada")
    assert [receipt.counts[name] for name in ("threads", "turns", "runs", "facts", "voice_sessions")] == [1, 2, 1, 1, 0]
    assert receipt.verified
    assert facts("default") == {}
    assert not UserMemory.objects.filter(user_id="ada").exists()
    assert facts("default", "bob") == {"lang": "de"}
    gateway.upsert_user_fact("default", "ada", "new", "start")
    assert facts("default") == {"new": "start"}


@pytest.mark.rows("U68")
def test_what_was_cleared_does_not_come_back_from_a_running_job_or_old_turns(
    learning: UUID, model: ScriptedModelServer
) -> None:
    with extracting(learning, model):
        gateway.clear_user_facts("default", "ada")
    assert facts("default") == {}
    gateway.ask("default", "ada", "I like tea.", thread_id=learning)
    gateway.ask("default", "ada", "And rain.", thread_id=learning)
    learn()
    assert "I live in Turin." not in extractions(model)[-1].text
    assert "I like tea." in extractions(model)[-1].text


def test_turns_stored_before_a_clearing_are_not_learned_from(tenant: Tenant, model: ScriptedModelServer) -> None:
    thread_id = gateway.ask(tenant, "ada", "old words").thread_id
    gateway.clear_user_facts(tenant, "ada")
    learn()
    assert extractions(model) == []
    gateway.ask(tenant, "ada", "new words", thread_id=thread_id)
    learn()
    assert "old words" not in extractions(model)[0].text
    assert "new words" in extractions(model)[0].text


@pytest.mark.rows("U111")
def test_an_edit_during_an_extraction_and_the_extraction_lose_nothing(
    learning: UUID, model: ScriptedModelServer
) -> None:
    with extracting(learning, model):
        gateway.upsert_user_fact("default", "ada", "lang", "it")
        gateway.upsert_user_fact("default", "ada", "City ", "Milan")
    assert facts("default") == {"lang": "it", "city": "Turin"}


@pytest.mark.rows("U111")
def test_two_extractions_of_one_user_at_once_lose_nothing(transactional_db: None, model: ScriptedModelServer) -> None:
    threads = [gateway.ask("default", "ada", "Hello").thread_id for _ in range(4)]
    for n in range(4):
        model.reply(operations(f"key-{n}=value"), model="cheap")
    with ThreadPoolExecutor(4) as pool:
        for job in [in_background(pool, thread_id) for thread_id in threads]:
            job.result()
    assert set(facts("default")) == {"key-0", "key-1", "key-2", "key-3"}


def test_a_worker_that_lost_its_claim_writes_nothing(learning: UUID, model: ScriptedModelServer) -> None:
    model.reply(operations("city=Milan"), model="cheap")
    with ThreadPoolExecutor(1) as pool:
        with extracting(learning, model):
            ExtractionState.objects.update(claim_expires_at=timezone.now() - timedelta(seconds=1))
            second = in_background(pool, learning)
            model.wait_for_requests(2, model="cheap")
        second.result()
    # The first worker was told Turin, the second, which holds the claim, Milan.
    assert facts("default") == {"city": "Milan"}
    assert state().covered == 2
