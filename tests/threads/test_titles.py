"""Titles that nobody gave, and runs that nobody ends."""

import io
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.core.management import call_command
from django.utils import timezone
from pytest_django import Settings

from memorygw import gateway
from memorygw.models import ModelCall, Tenant
from memorygw.testing import ScriptedModelServer
from tests.conftest import cheap_default, extractions, learn
from threads.models import Run, Thread
from threads.titles import TitleState
from usermemory.models import ExtractionState
from workingmemory.models import WorkingMemoryState


@pytest.fixture(autouse=True)
def titled(settings: Settings, model: ScriptedModelServer) -> None:
    settings.MEMORYGW_TITLES_ENABLED = True
    model.defaults["cheap"] = lambda request: (
        ' "A trip\nto Turin." ' if "title" in request.text else cheap_default(request)
    )


def title_calls(model: ScriptedModelServer) -> list[Any]:
    return [request for request in model.requests_for("cheap") if "Give this conversation a title" in request.text]


@pytest.mark.rows("T23", "T24")
def test_a_thread_without_a_title_gets_one_after_its_first_answer(tenant: Tenant, model: ScriptedModelServer) -> None:
    thread_id = gateway.ask(tenant, "ada", "How do I get to Turin?").thread_id
    before = Thread.objects.get().updated_at
    learn()
    thread = Thread.objects.get()
    assert (thread.title, thread.updated_at) == ("A trip to Turin", before)
    [call] = title_calls(model)
    assert "user: How do I get to Turin?" in call.text
    gateway.ask(tenant, "ada", "And back?", thread_id=thread_id)
    learn()
    assert len(title_calls(model)) == 1
    assert ModelCall.objects.filter(kind="THREAD_TITLE", outcome="ok").count() == 1


@pytest.mark.rows("T24")
def test_a_title_that_a_person_gave_is_never_overwritten(tenant: Tenant, model: ScriptedModelServer) -> None:
    given = gateway.create_thread(tenant, "ada", title="Mine").pk
    gateway.ask(tenant, "ada", "Hello", thread_id=given)
    late = gateway.ask(tenant, "ada", "Hello").thread_id
    gateway.rename_thread(tenant, "ada", late, "Renamed")
    learn()
    assert title_calls(model) == []
    assert {thread.title for thread in Thread.objects.all()} == {"Mine", "Renamed"}


def test_a_model_that_fails_leaves_the_thread_untitled_and_is_asked_again(
    tenant: Tenant, model: ScriptedModelServer, settings: Settings
) -> None:
    settings.MEMORYGW_EXTRACTION_ENABLED = False
    model.fail(500, model="cheap")
    thread_id = gateway.ask(tenant, "ada", "Hello").thread_id
    learn()
    assert (Thread.objects.get().title, TitleState.objects.get().last_error) == ("", "http_500")
    gateway.ask(tenant, "ada", "Hello", thread_id=thread_id)
    learn()
    assert Thread.objects.get().title == "A trip to Turin"


class Stingy:
    """A usage guard that refuses everything."""

    def allows(self, request: Any, **_: Any) -> bool:
        return False


@pytest.mark.rows("U104")
def test_a_usage_guard_refuses_helper_calls_silently_and_answers_go_on(
    tenant: Tenant, model: ScriptedModelServer, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    settings.MEMORYGW_USAGE_GUARD = "tests.threads.test_titles.Stingy"
    settings.MEMORYGW_UPDATE_EVERY_TURNS = 2
    gateway.upsert_user_fact(tenant, "ada", "lang", "de")
    assert gateway.ask(tenant, "ada", "Hello").answer.content == "ok"
    learn()
    assert model.requests_for("cheap") == []
    assert [fact.value for fact in gateway.get_user_facts(tenant, "ada")] == ["de"]
    for states in (ExtractionState, WorkingMemoryState, TitleState):
        assert (states.objects.get().last_error, states.objects.get().covered) == ("usage_refused", 0)
    assert caplog.records == []
    settings.MEMORYGW_USAGE_GUARD = "memorygw.llm.calls.AllowAll"
    for states in (ExtractionState, WorkingMemoryState, TitleState):
        states.objects.update(due_at=timezone.now() - timedelta(seconds=1))
    learn()
    assert len(extractions(model)) == 1


@pytest.mark.rows("T116", "T118")
def test_a_run_without_a_live_lease_is_failed_once(tenant: Tenant) -> None:
    soon, past = timezone.now() + timedelta(minutes=5), timezone.now() - timedelta(seconds=1)
    running, dead, done = (gateway.create_thread(tenant, "ada").pk for _ in range(3))
    for thread_id, expires_at in ((running, soon), (dead, past)):
        lease = {"lease_token": uuid4()}
        Thread.objects.filter(pk=thread_id).update(lease_expires_at=expires_at, **lease)
        Run.objects.create(thread_id=thread_id, first_seq=1, last_seq=1, **lease)
    Run.objects.create(thread_id=done, status="completed", finished_at=past, first_seq=1, last_seq=2)
    out = io.StringIO()
    for _ in range(2):
        call_command("recover_stuck_runs", "--json", stdout=out)
    assert out.getvalue() == '{"recovered": 1}\n{"recovered": 0}\n'
    assert dict(Run.objects.values_list("thread_id", "status")) == {
        running: "running",
        dead: "failed",
        done: "completed",
    }
    assert Run.objects.get(thread_id=dead).error == "interrupted"
