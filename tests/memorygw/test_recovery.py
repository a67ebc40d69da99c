"""How runs end that do not end well, and runs that are run again."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection
from django.utils import timezone
from pytest_django import Settings

from memorygw import gateway
from memorygw.conf import component
from memorygw.exceptions import (
    LeaseLostError,
    ModelFailedError,
    RunCancelledError,
    RunNotWaitingError,
    RunOverError,
    ThreadBusyError,
)
from memorygw.gateway import Decision
from memorygw.models import Tenant
from memorygw.testing import ScriptedModelServer
from tests.conftest import background
from tests.memorygw.runs import call, facts, remember, results, status, wait_for_approval
from threads.models import Run, Thread
from threads.turns import TurnDraft

# --- ends


@pytest.mark.rows("T71", "T72")
def test_a_waiting_run_can_be_cancelled_and_the_conversation_goes_on(
    tenant: Tenant, model: ScriptedModelServer
) -> None:
    paused = wait_for_approval(tenant, model)
    for _ in range(2):
        run = gateway.cancel_run(tenant, "ada", paused.run.id)
        assert (run.status, run.pending) == ("cancelled", [])
    assert status(paused.thread_id) == "OPEN"
    with pytest.raises(RunNotWaitingError):
        gateway.continue_run(tenant, "ada", paused.run.id, [Decision(tool_call_id="c1", approved=True)])
    assert gateway.ask(tenant, "ada", "Never mind.", thread_id=paused.thread_id).answer.content == "ok"
    assert all("tool_calls" not in message for message in model.requests_for("main")[-1].messages)
    assert facts(tenant) == {}


def test_a_run_that_is_over_cannot_be_cancelled(tenant: Tenant, model: ScriptedModelServer) -> None:
    answer = gateway.ask(tenant, "ada", "Hello")
    with pytest.raises(RunOverError):
        gateway.cancel_run(tenant, "ada", answer.run.id)


@pytest.mark.django_db(transaction=True)
def test_a_running_run_that_is_cancelled_stores_nothing_more(tenant: Tenant, model: ScriptedModelServer) -> None:
    thread_id = gateway.create_thread(tenant, "ada").pk
    with ThreadPoolExecutor(1) as pool:
        with model.hold(model="main"):
            late = background(pool, gateway.ask, tenant, "ada", "Slow", thread_id=thread_id)
            model.wait_for_requests(1, model="main")
            run = gateway.cancel_run(tenant, "ada", Run.objects.get().pk)
            assert run.status == "cancelled"
            assert status(thread_id) == "OPEN"
        with pytest.raises(RunCancelledError):
            late.result()
    assert [turn.role for turn in gateway.get_turns(tenant, "ada", thread_id)] == ["user"]
    assert Run.objects.get().status == "cancelled"


@pytest.mark.django_db(transaction=True)
def test_a_call_that_lost_its_lease_remembers_nothing_any_more(
    tenant: Tenant, model: ScriptedModelServer, settings: Settings
) -> None:
    settings.MEMORYGW_REMEMBER_APPROVAL = False
    thread_id = gateway.create_thread(tenant, "ada").pk
    model.reply(None, model="main", tool_calls=[remember()])
    with ThreadPoolExecutor(1) as pool:
        with model.hold(model="main"):
            late = background(pool, gateway.ask, tenant, "ada", "Slow", thread_id=thread_id)
            model.wait_for_requests(1, model="main")
            Thread.objects.update(lease_expires_at=timezone.now() - timedelta(seconds=1))
            gateway.acquire_lease(tenant, "ada", thread_id)
        with pytest.raises(LeaseLostError):
            late.result()
    assert facts(tenant) == {}
    assert Run.objects.get().error == "lease_lost"


@pytest.mark.rows("T117")
def test_runs_that_wait_for_a_person_are_never_recovered(tenant: Tenant, model: ScriptedModelServer) -> None:
    paused = wait_for_approval(tenant, model)
    call_command("recover_stuck_runs")
    assert Run.objects.get().status == "awaiting_human"
    assert (
        gateway.continue_run(tenant, "ada", paused.run.id, [Decision(tool_call_id="c1", approved=True)]).answer.content
        == "ok"
    )


def test_a_run_whose_process_died_after_it_went_on_is_recovered(tenant: Tenant, model: ScriptedModelServer) -> None:
    paused = wait_for_approval(tenant, model)
    model.fail(500, model="main")
    with pytest.raises(ModelFailedError) as failure:
        gateway.continue_run(tenant, "ada", paused.run.id, [Decision(tool_call_id="c1", approved=True)])
    assert failure.value.details == {"thread_id": paused.thread_id, "run_id": paused.run.id}
    Run.objects.update(status="running", error="", finished_at=None)
    call_command("recover_stuck_runs")
    assert Run.objects.get().status == "failed"
    assert status(paused.thread_id) == "OPEN"
    assert gateway.ask(tenant, "ada", "Go on", thread_id=paused.thread_id).answer.content == "ok"
    assert results(model) == {"c1": "Remembered."}


# --- once more


def test_a_failed_run_is_run_again_from_its_stored_turns(tenant: Tenant, model: ScriptedModelServer) -> None:
    model.fail(500, model="main")
    with pytest.raises(ModelFailedError) as failure:
        gateway.ask(tenant, "ada", "Hello")
    run_id = failure.value.details["run_id"]
    answer = gateway.answer_again(tenant, "ada", run_id)
    assert [turn.content for turn in answer.turns] == ["Hello", "ok"]
    repeated = gateway.answer_again(tenant, "ada", run_id)
    assert [turn.id for turn in repeated.turns] == [turn.id for turn in answer.turns]
    assert repeated.answer.id == answer.answer.id
    assert len(gateway.get_turns(tenant, "ada", answer.thread_id)) == 2


def test_a_failed_run_stays_failed_once_the_conversation_has_gone_on(
    tenant: Tenant, model: ScriptedModelServer
) -> None:
    model.fail(500, model="main")
    with pytest.raises(ModelFailedError) as failure:
        gateway.ask(tenant, "ada", "Hello")
    place = failure.value.details
    gateway.ask(tenant, "ada", "Hello?", thread_id=place["thread_id"])
    with pytest.raises(ModelFailedError) as again:
        gateway.answer_again(tenant, "ada", place["run_id"])
    assert again.value.details == place
    gateway.acquire_lease(tenant, "ada", place["thread_id"])


def test_a_run_again_waits_for_the_approval_that_it_never_got(tenant: Tenant, model: ScriptedModelServer) -> None:
    paused = wait_for_approval(tenant, model)
    # As a process leaves it that dies right after it took the decisions.
    Run.objects.update(status="running", pending=[])
    Thread.objects.update(status="OPEN")
    again = gateway.answer_again(tenant, "ada", paused.run.id)
    assert again.answer is None
    assert [call["tool_call_id"] for call in again.run.pending] == ["c1"]
    assert facts(tenant) == {}


@pytest.mark.django_db(transaction=True)
def test_of_two_people_who_decide_at_once_one_does(tenant: Tenant, model: ScriptedModelServer) -> None:
    paused = wait_for_approval(tenant, model)
    yes = [Decision(tool_call_id="c1", approved=True)]
    with ThreadPoolExecutor(2) as pool:
        outcomes = [background(pool, gateway.continue_run, tenant, "ada", paused.run.id, yes) for _ in range(2)]
        errors = [error for outcome in outcomes if (error := outcome.exception())]
    assert [type(error) for error in errors] == [RunNotWaitingError]
    assert [turn.role for turn in gateway.get_turns(tenant, "ada", paused.thread_id)] == [
        "user",
        "assistant",
        "tool",
        "assistant",
    ]


def test_an_atomic_tool_and_its_result_are_stored_together(
    tenant: Tenant, model: ScriptedModelServer, settings: Settings
) -> None:
    settings.MEMORYGW_REMEMBER_APPROVAL = False
    model.reply(None, model="main", tool_calls=[remember()])
    with connection.execute_wrapper(_fail_on_tool_turn), pytest.raises(RuntimeError):
        gateway.ask(tenant, "ada", "I drink tea.")
    assert facts(tenant) == {}


def _fail_on_tool_turn(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
    if sql.startswith("INSERT") and "tool" in [getattr(param, "value", param) for param in params or ()]:
        raise RuntimeError
    return execute(sql, params, many, context)


def test_a_run_that_runs_is_busy(tenant: Tenant, model: ScriptedModelServer) -> None:
    paused = wait_for_approval(tenant, model)
    gateway.cancel_run(tenant, "ada", paused.run.id)
    gateway.acquire_lease(tenant, "ada", paused.thread_id)
    Run.objects.update(status="running", finished_at=None)
    with pytest.raises(ThreadBusyError):
        gateway.answer_again(tenant, "ada", paused.run.id)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("calls", [[], [remember()]])
def test_a_run_that_was_recovered_while_it_was_slow_writes_nothing_more(
    tenant: Tenant, model: ScriptedModelServer, calls: list[Any]
) -> None:
    thread_id = gateway.create_thread(tenant, "ada").pk
    model.reply(None if calls else "late", model="main", tool_calls=calls)
    with ThreadPoolExecutor(1) as pool:
        with model.hold(model="main"):
            late = background(pool, gateway.ask, tenant, "ada", "Slow", thread_id=thread_id)
            model.wait_for_requests(1, model="main")
            Thread.objects.update(lease_expires_at=timezone.now() - timedelta(seconds=1))
            call_command("recover_stuck_runs")
        with pytest.raises(LeaseLostError):
            late.result()
    assert Run.objects.get().status == "failed"
    assert status(thread_id) == "OPEN"
    assert [turn.role for turn in gateway.get_turns(tenant, "ada", thread_id)] == ["user"]
    assert gateway.ask(tenant, "ada", "Again", thread_id=thread_id).answer.content == "ok"


@pytest.mark.django_db(transaction=True)
def test_without_a_sweep_a_slow_answer_is_stored_while_nobody_else_came(
    tenant: Tenant, model: ScriptedModelServer
) -> None:
    thread_id = gateway.create_thread(tenant, "ada").pk
    with ThreadPoolExecutor(1) as pool:
        with model.hold(model="main"):
            late = background(pool, gateway.ask, tenant, "ada", "Slow", thread_id=thread_id)
            model.wait_for_requests(1, model="main")
            Thread.objects.update(lease_expires_at=timezone.now() - timedelta(seconds=1))
        assert late.result().answer.content == "ok"
    call_command("recover_stuck_runs")
    assert Run.objects.get().status == "completed"


@pytest.mark.django_db(transaction=True)
def test_every_step_renews_the_lease(tenant: Tenant, model: ScriptedModelServer, weather: None) -> None:
    thread_id = gateway.create_thread(tenant, "ada").pk
    model.reply(None, model="main", tool_calls=[call("get_weather", city="Bergen")])
    model.reply("ok", model="main", delay_seconds=0.5)
    with ThreadPoolExecutor(1) as pool:
        with model.hold(model="main"):
            slow = background(pool, gateway.ask, tenant, "ada", "Weather?", thread_id=thread_id)
            model.wait_for_requests(1, model="main")
            Thread.objects.update(lease_expires_at=timezone.now() - timedelta(seconds=1))
        model.wait_for_requests(2, model="main")
        [expires_at] = Thread.objects.values_list("lease_expires_at", flat=True)
        assert expires_at is not None
        assert expires_at > timezone.now()
        assert slow.result().answer.content == "ok"


def test_a_run_whose_process_died_before_it_got_further_waits_for_its_person_again(
    tenant: Tenant, model: ScriptedModelServer
) -> None:
    paused = wait_for_approval(tenant, model)
    run = Run.objects.get()
    store = component("THREAD_STORE")
    store.resume_run(Thread.objects.get(), run)
    call_command("recover_stuck_runs")
    assert Run.objects.get().status == "running"
    Thread.objects.update(lease_expires_at=timezone.now() - timedelta(seconds=1))
    call_command("recover_stuck_runs")
    assert Run.objects.get().status == "awaiting_human"
    assert status(paused.thread_id) == "AWAITING_HUMAN"
    done = gateway.continue_run(tenant, "ada", paused.run.id, [Decision(tool_call_id="c1", approved=True)])
    assert done.answer.content == "ok"
    assert facts(tenant) == {"drink": "tea"}


def test_a_run_that_waits_again_takes_the_thread_from_a_lease_that_ran_out(
    tenant: Tenant, model: ScriptedModelServer
) -> None:
    paused, store = wait_for_approval(tenant, model), component("THREAD_STORE")
    thread = Thread.objects.get(pk=paused.thread_id)
    # A process that dies at once, and a host that takes the thread next, and writes nothing in its time.
    store.resume_run(thread, Run.objects.get(pk=paused.run.id))
    past = timezone.now() - timedelta(seconds=1)
    Thread.objects.update(lease_expires_at=past)
    late = gateway.acquire_lease(tenant, "ada", thread.pk)
    Thread.objects.update(lease_expires_at=past)
    assert store.recover_stuck_runs() == 1
    assert status(thread.pk) == "AWAITING_HUMAN"
    assert Thread.objects.get().lease_token is None
    with pytest.raises(LeaseLostError):
        gateway.append_turns(tenant, "ada", thread.pk, [TurnDraft(role="user", content="Late")], lease_token=late.token)


def test_a_cancelled_run_is_not_run_again(tenant: Tenant, model: ScriptedModelServer) -> None:
    paused = wait_for_approval(tenant, model)
    gateway.cancel_run(tenant, "ada", paused.run.id)
    with pytest.raises(RunCancelledError):
        gateway.answer_again(tenant, "ada", paused.run.id)


def test_a_failed_run_stays_failed_once_the_caller_stored_an_answer_of_its_own(
    tenant: Tenant, model: ScriptedModelServer
) -> None:
    model.fail(500, model="main")
    with pytest.raises(ModelFailedError) as failure:
        gateway.ask(tenant, "ada", "Hello")
    place = failure.value.details
    gateway.append_turns(tenant, "ada", place["thread_id"], [TurnDraft(role="assistant", content="Sorry.")])
    with pytest.raises(ModelFailedError):
        gateway.answer_again(tenant, "ada", place["run_id"])
    assert len(gateway.get_turns(tenant, "ada", place["thread_id"])) == 2


def test_a_model_that_reports_absurd_costs_keeps_no_lease(
    tenant: Tenant, model: ScriptedModelServer, weather: None
) -> None:
    model.reply(None, model="main", prompt_tokens=2**31 - 1, tool_calls=[call("get_weather", city="Bergen")])
    model.reply("ok", model="main", prompt_tokens=2**31 - 1)
    answer = gateway.ask(tenant, "ada", "Weather?")
    assert answer.usage["prompt_tokens"] == 2**32 - 2
    gateway.acquire_lease(tenant, "ada", answer.thread_id)
