"""Runs that wait for a person or for the caller, and how they go on."""

import json

import pytest
from pytest_django import Settings

from memorygw import gateway
from memorygw.exceptions import (
    ContextTooLargeError,
    InvalidError,
    RunNotFoundError,
    RunNotWaitingError,
    ThreadAwaitingHumanError,
)
from memorygw.gateway import Decision
from memorygw.models import Persona, Tenant
from memorygw.testing import ScriptedModelServer
from tests.conftest import extractions, learn
from tests.memorygw.runs import (
    CALLERS,
    CLIENT_TOOL,
    FORGET,
    REMEMBER,
    call,
    facts,
    remember,
    results,
    status,
    wait_for_approval,
)
from threads.models import Thread
from usermemory.models import Fact

# --- approval


@pytest.mark.rows("U54", "U55", "T70", "T71", "T72", "T88", "T119")
def test_a_fact_is_remembered_once_a_person_has_approved(tenant: Tenant, model: ScriptedModelServer) -> None:
    paused = wait_for_approval(tenant, model)
    assert paused.answer is None
    assert [turn.role for turn in paused.turns] == ["user", "assistant"]
    arguments = json.dumps({"key": "drink", "value": "tea"})
    assert paused.run.pending == [{"tool_call_id": "c1", "name": REMEMBER, "arguments": arguments, "kind": "approval"}]
    assert facts(tenant) == {}
    thread = Thread.objects.get(pk=paused.thread_id)
    assert (thread.status, thread.lease_token, thread.lease_expires_at) == ("AWAITING_HUMAN", None, None)

    model.reply("Noted.", model="main")
    done = gateway.continue_run(tenant, "ada", paused.run.id, [Decision(tool_call_id="c1", approved=True)])
    assert done.answer.content == "Noted."
    assert [turn.role for turn in done.turns] == ["tool", "assistant"]
    assert facts(tenant) == {"drink": "tea"}
    fact = Fact.objects.get()
    assert (fact.origin, fact.source_thread_id) == ("tool", None)
    assert status(paused.thread_id) == "OPEN"
    run = gateway.get_run(tenant, "ada", paused.run.id)
    assert (run.status, run.pending, run.first_seq, run.last_seq) == ("completed", [], 1, 4)
    assert run.prompt_tokens == 20
    assert results(model) == {"c1": "Remembered."}


@pytest.mark.rows("U56")
def test_a_refusal_stores_nothing_and_is_the_tools_result(tenant: Tenant, model: ScriptedModelServer) -> None:
    paused = wait_for_approval(tenant, model)
    refusal = Decision(tool_call_id="c1", approved=False, reason="Too private.")
    done = gateway.continue_run(tenant, "ada", paused.run.id, [refusal])
    assert done.run.status == "completed"
    assert "did not approve" in results(model)["c1"]
    assert results(model)["c1"].endswith("Too private.")
    assert facts(tenant) == {}


@pytest.mark.rows("U62")
def test_the_forget_tool_removes_a_fact_once_approved(tenant: Tenant, model: ScriptedModelServer) -> None:
    gateway.upsert_user_fact(tenant, "ada", "Drink", "tea")
    gateway.upsert_user_fact(tenant, "ada", "home", "Bergen")
    gateway.upsert_user_fact(tenant, "eve", "drink", "rum")
    paused = wait_for_approval(tenant, model, call(FORGET, key="drink", user_id="eve"))
    assert "Drink" in facts(tenant)
    gateway.continue_run(tenant, "ada", paused.run.id, [Decision(tool_call_id="c1", approved=True)])
    assert facts(tenant) == {"home": "Bergen"}
    assert facts(tenant, "eve") == {"drink": "rum"}


def test_while_it_waits_the_thread_takes_no_other_call(tenant: Tenant, model: ScriptedModelServer) -> None:
    paused = wait_for_approval(tenant, model)
    with pytest.raises(ThreadAwaitingHumanError) as refusal:
        gateway.ask(tenant, "ada", "Hello?", thread_id=paused.thread_id)
    assert refusal.value.details == {"thread_ids": [paused.thread_id], "run_id": paused.run.id}
    with pytest.raises(ThreadAwaitingHumanError):
        gateway.acquire_lease(tenant, "ada", paused.thread_id)
    assert len(gateway.get_turns(tenant, "ada", paused.thread_id)) == 2


@pytest.mark.usefixtures("weather")
def test_several_calls_keep_their_order_whether_they_wait_or_not(tenant: Tenant, model: ScriptedModelServer) -> None:
    calls = (
        call("get_weather", "a", city="Oslo"),
        remember(call_id="b"),
        call("get_weather", "c", city="Bergen"),
        call("get_time", "d"),
        call(FORGET, "e", key="home"),
    )
    paused = wait_for_approval(tenant, model, *calls, tools=[CLIENT_TOOL])
    assert [(c["tool_call_id"], c["kind"]) for c in paused.run.pending] == [
        ("b", "approval"),
        ("d", "client"),
        ("e", "approval"),
    ]
    assert len(CALLERS) == 1
    decisions = [
        Decision(tool_call_id="e", approved=False),
        Decision(tool_call_id="d", content="noon"),
        Decision(tool_call_id="b", approved=True),
    ]
    done = gateway.continue_run(tenant, "ada", paused.run.id, decisions)
    assert list(results(model)) == ["a", "b", "c", "d", "e"]
    assert results(model)["d"] == "noon"
    assert [turn.tool_call_id for turn in done.turns] == ["b", "c", "d", "e", None]
    assert facts(tenant) == {"drink": "tea"}


@pytest.mark.parametrize(
    ("decisions", "field"),
    [
        ([], "decisions"),
        ([Decision(tool_call_id="b", approved=True)], "decisions"),
        ([Decision(tool_call_id="x", approved=True)], "decisions[0].tool_call_id"),
        ([Decision(tool_call_id="b", approved=True)] * 2, "decisions[1].tool_call_id"),
        ([Decision(tool_call_id="b"), Decision(tool_call_id="d", content="noon")], "decisions[0]"),
        ([Decision(tool_call_id="b", content="x"), Decision(tool_call_id="d", content="noon")], "decisions[0]"),
        ([Decision(tool_call_id="b", approved=True), Decision(tool_call_id="d", approved=True)], "decisions[1]"),
        (
            [Decision(tool_call_id="b", approved=True), Decision(tool_call_id="d", content="\x00")],
            "decisions[1].content",
        ),
    ],
)
def test_decisions_that_do_not_fit_change_nothing(
    tenant: Tenant, model: ScriptedModelServer, decisions: list[Decision], field: str
) -> None:
    paused = wait_for_approval(tenant, model, remember(call_id="b"), call("get_time", "d"), tools=[CLIENT_TOOL])
    with pytest.raises(InvalidError) as refusal:
        gateway.continue_run(tenant, "ada", paused.run.id, decisions)
    assert list(refusal.value.fields or {}) == [field]
    good = [Decision(tool_call_id="b", approved=True), Decision(tool_call_id="d", content="")]
    assert gateway.continue_run(tenant, "ada", paused.run.id, good).answer.content == "ok"
    with pytest.raises(RunNotWaitingError):
        gateway.continue_run(tenant, "ada", paused.run.id, good)


def test_a_run_may_wait_more_than_once(tenant: Tenant, model: ScriptedModelServer) -> None:
    paused = wait_for_approval(tenant, model)
    model.reply(None, model="main", tool_calls=[remember("Bergen", "c2", "home")])
    again = gateway.continue_run(tenant, "ada", paused.run.id, [Decision(tool_call_id="c1", approved=True)])
    assert (again.answer, again.run.id) == (None, paused.run.id)
    assert [call["tool_call_id"] for call in again.run.pending] == ["c2"]
    gateway.continue_run(tenant, "ada", paused.run.id, [Decision(tool_call_id="c2", approved=True)])
    assert facts(tenant) == {"drink": "tea", "home": "Bergen"}


def test_a_continued_run_keeps_its_persona_model_and_tools(tenant: Tenant, model: ScriptedModelServer) -> None:
    Persona.objects.create(tenant=tenant, name="coach", instructions="Be brief.")
    model.reply(None, model="big", tool_calls=[call("get_time", "d")])
    paused = gateway.ask(tenant, "ada", "Time?", persona="coach", model="big", tools=[CLIENT_TOOL])
    gateway.continue_run(tenant, "ada", paused.run.id, [Decision(tool_call_id="d", content="noon")])
    first, second = model.requests_for("big")
    assert second.body["tools"] == first.body["tools"]
    assert second.messages[: len(first.messages)] == first.messages
    assert "Be brief." in second.system


@pytest.mark.rows("U83", "T119")
def test_a_paused_and_continued_run_counts_once_for_learning(
    tenant: Tenant, model: ScriptedModelServer, settings: Settings
) -> None:
    settings.MEMORYGW_EXTRACT_EVERY_TURNS = 4
    thread_id = gateway.ask(tenant, "ada", "one").thread_id
    learn()
    assert len(extractions(model)) == 1
    # Turns 3 to 6: the pause is at the multiple, the answer beyond it.
    paused = wait_for_approval(tenant, model, thread_id=thread_id)
    learn()
    assert len(extractions(model)) == 1
    gateway.continue_run(tenant, "ada", paused.run.id, [Decision(tool_call_id="c1", approved=True)])
    learn()
    assert len(extractions(model)) == 2


def test_somebody_elses_run_does_not_exist(tenant: Tenant, other_tenant: Tenant, model: ScriptedModelServer) -> None:
    paused = wait_for_approval(tenant, model)
    yes = [Decision(tool_call_id="c1", approved=True)]
    for owner in ((tenant, "eve"), (other_tenant, "ada")):
        with pytest.raises(RunNotFoundError):
            gateway.continue_run(*owner, paused.run.id, yes)
        with pytest.raises(RunNotFoundError):
            gateway.cancel_run(*owner, paused.run.id)
    assert gateway.continue_run(tenant, "ada", paused.run.id, yes).answer.content == "ok"


def test_a_yes_is_good_for_one_call_although_the_model_uses_its_id_again(
    tenant: Tenant, model: ScriptedModelServer
) -> None:
    paused = wait_for_approval(tenant, model)
    model.reply(None, model="main", tool_calls=[remember("Bergen", "c1", "home")])
    again = gateway.continue_run(tenant, "ada", paused.run.id, [Decision(tool_call_id="c1", approved=True)])
    assert again.answer is None
    assert facts(tenant) == {"drink": "tea"}
    gateway.continue_run(tenant, "ada", paused.run.id, [Decision(tool_call_id="c1", approved=False)])
    assert facts(tenant) == {"drink": "tea"}


def test_results_that_the_model_could_not_take_are_refused_before_the_run_goes_on(
    tenant: Tenant, model: ScriptedModelServer
) -> None:
    paused = wait_for_approval(tenant, model, call("get_time", "d"), tools=[CLIENT_TOOL])
    with pytest.raises(ContextTooLargeError):
        gateway.continue_run(tenant, "ada", paused.run.id, [Decision(tool_call_id="d", content="long " * 70_000)])
    done = gateway.continue_run(tenant, "ada", paused.run.id, [Decision(tool_call_id="d", content="noon")])
    assert done.answer.content == "ok"
