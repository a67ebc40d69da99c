"""Runs that use tools: what runs at once, what waits for a person or for the caller, and how each ends."""

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from django.core.management import call_command
from django.db import connection
from django.utils import timezone
from pytest_django import Settings

from memorygw import gateway
from memorygw.exceptions import (
    ContextTooLargeError,
    FactTooLongError,
    InvalidError,
    LeaseLostError,
    ModelFailedError,
    RunCancelledError,
    RunNotFoundError,
    RunNotWaitingError,
    RunOverError,
    ThreadAwaitingHumanError,
    ThreadBusyError,
)
from memorygw.gateway import Decision
from memorygw.models import Persona, Tenant
from memorygw.testing import ScriptedModelServer
from memorygw.tools import Tool, ToolCaller
from tests.conftest import background, extractions, learn
from threads.models import Run, Thread
from usermemory.models import Fact

REMEMBER, FORGET = "remember_user_fact", "forget_user_fact"
CLIENT_TOOL = {"type": "function", "function": {"name": "get_time", "parameters": {"type": "object"}}}

CALLERS: list[ToolCaller] = []


def _weather(caller: ToolCaller, arguments: dict[str, Any]) -> Any:
    CALLERS.append(caller)
    if arguments["city"] == "Atlantis":
        raise LookupError("Ada asked for Atlantis")
    return {"city": arguments["city"], "sky": "grau\x00"}


WEATHER = Tool(
    name="get_weather",
    description="The weather in a city.",
    parameters={"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    call=_weather,
)


def call(name: str, call_id: str = "c1", **arguments: Any) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}


def remember(value: str = "tea", call_id: str = "c1", key: str = "drink") -> dict[str, Any]:
    return call(REMEMBER, call_id, key=key, value=value)


def facts(tenant: Tenant, user: str = "ada") -> dict[str, str]:
    return {fact.key: fact.value for fact in gateway.get_user_facts(tenant, user)}


def results(model: ScriptedModelServer) -> dict[str, str]:
    """Call id → result, as the model saw them last, in their order."""
    messages = model.requests_for("main")[-1].messages
    return {message["tool_call_id"]: message["content"] for message in messages if message["role"] == "tool"}


def status(thread_id: UUID) -> str:
    return Thread.objects.get(pk=thread_id).status


def wait_for_approval(tenant: Tenant, model: ScriptedModelServer, *calls: dict[str, Any], **options: Any) -> Any:
    """An ask whose answer calls tools and waits."""
    model.reply(None, model="main", tool_calls=calls or (remember(),))
    paused = gateway.ask(tenant, "ada", "I drink tea.", **options)
    assert paused.run.status == "awaiting_human"
    return paused


# --- what is offered


@pytest.mark.rows("U10")
def test_the_model_is_offered_remember_and_forget_and_nothing_that_clears(
    tenant: Tenant, model: ScriptedModelServer
) -> None:
    gateway.ask(tenant, "ada", "Hello")
    offered = [tool["function"]["name"] for tool in model.requests[0].body["tools"]]
    assert offered == [REMEMBER, FORGET]


@pytest.mark.parametrize(
    ("choice", "offered"), [("none", []), ("gateway", [REMEMBER, FORGET]), (FORGET, [FORGET]), ("", [REMEMBER])]
)
def test_a_personas_own_set_wins_over_the_setting(
    tenant: Tenant, model: ScriptedModelServer, settings: Settings, choice: str, offered: list[str]
) -> None:
    settings.MEMORYGW_MEMORY_TOOLS = REMEMBER
    Persona.objects.create(tenant=tenant, name="coach", memory_tools=choice)
    gateway.ask(tenant, "ada", "Hello", persona="coach")
    assert [tool["function"]["name"] for tool in model.requests[0].body.get("tools", [])] == offered


def test_names_bear_the_prefix(tenant: Tenant, model: ScriptedModelServer, settings: Settings) -> None:
    settings.MEMORYGW_TOOL_PREFIX = "dyna_aigw_"
    settings.MEMORYGW_REMEMBER_APPROVAL = False
    model.reply(None, model="main", tool_calls=[call(f"dyna_aigw_{REMEMBER}", key="drink", value="tea")])
    gateway.ask(tenant, "ada", "I drink tea.")
    assert facts(tenant) == {"drink": "tea"}


def test_a_model_with_little_room_is_offered_no_memory_tools(
    tenant: Tenant, model: ScriptedModelServer, settings: Settings
) -> None:
    settings.MEMORYGW_MODELS = {"main": {"context_window": 700, "output_reserve": 100}}
    gateway.ask(tenant, "ada", "Hello")
    assert "tools" not in model.requests[0].body


def test_a_server_that_knows_no_tools_is_asked_without_them_and_remembered(
    tenant: Tenant, model: ScriptedModelServer
) -> None:
    model.fail(400, model="main", error={"message": "this model does not support tools"})
    for _ in range(2):
        assert gateway.ask(tenant, "ada", "Hello").answer.content == "ok"
    assert ["tools" in request.body for request in model.requests_for("main")] == [True, False, False]


def test_the_callers_own_tools_are_never_left_out(tenant: Tenant, model: ScriptedModelServer) -> None:
    model.fail(400, model="main", error={"message": "this model does not support tools"})
    with pytest.raises(ModelFailedError):
        gateway.ask(tenant, "ada", "Hello", tools=[CLIENT_TOOL])


# --- tools that run at once


@pytest.fixture
def weather(settings: Settings) -> None:
    CALLERS.clear()
    settings.MEMORYGW_TOOLS = ["tests.memorygw.test_running.WEATHER"]


@pytest.mark.usefixtures("weather")
def test_a_hosts_tool_runs_for_the_caller_and_the_model_goes_on(tenant: Tenant, model: ScriptedModelServer) -> None:
    model.reply("Let me look.", model="main", tool_calls=[call("get_weather", city="Bergen", user_id="eve")])
    model.reply("Grey.", model="main", prompt_tokens=20)
    answer = gateway.ask(tenant, "ada", "Weather?")
    assert answer.answer.content == "Grey."
    assert [(turn.role, turn.content) for turn in answer.turns] == [
        ("user", "Weather?"),
        ("assistant", "Let me look."),
        ("tool", '{"city": "Bergen", "sky": "grau"}'),
        ("assistant", "Grey."),
    ]
    assert [ToolCaller(tenant.pk, "ada", answer.thread_id)] == CALLERS
    assert answer.usage == {"prompt_tokens": 30, "completion_tokens": 10}
    first, second = model.requests_for("main")
    assert second.messages[: len(first.messages)] == first.messages
    assert answer.run.status == "completed"
    assert status(answer.thread_id) == "OPEN"


@pytest.mark.usefixtures("weather")
@pytest.mark.parametrize(
    ("name", "arguments", "result"),
    [
        ("get_weather", '{"city": "Atlantis"}', "Error: the tool failed."),
        ("get_weather", '{"city": 7}', "Error: 7 is not of type 'string'"),
        ("get_weather", '{"cit', "Error: the arguments are not valid JSON."),
        ("get_weather", "[" * 5000, "Error: the arguments are not valid JSON."),
        ("get_weather", "", "Error: 'city' is a required property"),
        ("get_wether", "{}", "Error: there is no tool of this name."),
    ],
)
def test_what_goes_wrong_in_a_tool_is_its_result(
    tenant: Tenant,
    model: ScriptedModelServer,
    caplog: pytest.LogCaptureFixture,
    name: str,
    arguments: str,
    result: str,
) -> None:
    wrong = {"id": "c1", "type": "function", "function": {"name": name, "arguments": arguments}}
    model.reply(None, model="main", tool_calls=[wrong])
    assert gateway.ask(tenant, "ada", "Weather?").answer.content == "ok"
    assert results(model) == {"c1": result}
    assert "Ada" not in caplog.text


@pytest.mark.rows("U57")
@pytest.mark.parametrize(("value", "problem"), [("", "needs a key and a value"), ("x" * 201, "200 characters")])
def test_a_fact_that_cannot_be_stored_is_told_to_the_model(
    tenant: Tenant, model: ScriptedModelServer, settings: Settings, value: str, problem: str
) -> None:
    settings.MEMORYGW_REMEMBER_APPROVAL = False
    model.reply(None, model="main", tool_calls=[remember(value)])
    assert gateway.ask(tenant, "ada", "Hello").run.status == "completed"
    assert problem in results(model)["c1"]
    assert facts(tenant) == {}


def test_a_server_that_gives_calls_no_ids_of_their_own_is_understood(
    tenant: Tenant, model: ScriptedModelServer, settings: Settings
) -> None:
    settings.MEMORYGW_REMEMBER_APPROVAL = False
    model.reply(None, model="main", tool_calls=[remember(call_id=""), remember("Bergen", "", key="home")])
    gateway.ask(tenant, "ada", "Hello")
    assert facts(tenant) == {"drink": "tea", "home": "Bergen"}
    assert len(results(model)) == 2


@pytest.mark.usefixtures("weather")
def test_after_the_last_tool_step_the_model_has_to_answer(
    tenant: Tenant, model: ScriptedModelServer, settings: Settings
) -> None:
    settings.MEMORYGW_MAX_TOOL_STEPS = 2
    model.reply("still looking", model="main", times=3, tool_calls=[call("get_weather", city="Bergen")])
    answer = gateway.ask(tenant, "ada", "Weather?")
    assert [request.body.get("tool_choice") for request in model.requests_for("main")] == [None, None, "none"]
    assert (answer.answer.content, answer.answer.tool_calls) == ("still looking", None)
    model.reply(None, model="main", times=3, tool_calls=[call("get_weather", city="Bergen")])
    with pytest.raises(ModelFailedError) as failure:
        gateway.ask(tenant, "ada", "Weather?", thread_id=answer.thread_id)
    run = Run.objects.get(pk=failure.value.details["run_id"])
    assert (run.status, run.error, run.tool_steps) == ("failed", "too_many_tool_steps", 2)
    assert gateway.ask(tenant, "ada", "And now?", thread_id=answer.thread_id).answer.content == "ok"


@pytest.mark.usefixtures("weather")
def test_results_beyond_the_models_room_push_out_the_oldest_turns_and_then_fail(
    tenant: Tenant, model: ScriptedModelServer, settings: Settings
) -> None:
    settings.MEMORYGW_MODELS = {"main": {"context_window": 1_000, "output_reserve": 100}}
    settings.MEMORYGW_MEMORY_TOOLS = "none"
    thread_id = gateway.ask(tenant, "ada", "old " * 700).thread_id
    model.reply(None, model="main", tool_calls=[call("get_weather", city="long " * 150)])
    answer = gateway.ask(tenant, "ada", "Weather?", thread_id=thread_id)
    assert [(warning.code, warning.count) for warning in answer.warnings] == [("turns_trimmed", 2)]
    assert model.requests_for("main")[-1].messages[0]["content"] == "Weather?"
    model.reply(None, model="main", tool_calls=[call("get_weather", city="long " * 600)])
    with pytest.raises(ContextTooLargeError) as failure:
        gateway.ask(tenant, "ada", "Weather?", thread_id=thread_id)
    assert Run.objects.get(pk=failure.value.details["run_id"]).error == "context_too_large"
    assert gateway.ask(tenant, "ada", "Thanks", thread_id=thread_id).answer.content == "ok"


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


# --- the same tools for callers that run their own model


def test_the_memory_tools_are_listed_and_run_for_callers_with_their_own_model(tenant: Tenant) -> None:
    [remember_schema, forget_schema] = gateway.list_tools(tenant)
    assert remember_schema["function"]["name"] == REMEMBER
    assert forget_schema["function"]["parameters"]["required"] == ["key"]
    assert gateway.call_tool(tenant, "ada", REMEMBER, {"key": "drink", "value": "tea"}) == "Remembered."
    assert facts(tenant) == {"drink": "tea"}
    too_long = gateway.call_tool(tenant, "ada", REMEMBER, {"key": "drink", "value": "x" * 201})
    assert too_long == f"Error: {FactTooLongError('Key and value can have 200 characters each.')}"
    gateway.call_tool(tenant, "ada", FORGET, {"key": "drink"})
    assert facts(tenant) == {}


def test_a_run_that_runs_is_busy(tenant: Tenant, model: ScriptedModelServer) -> None:
    paused = wait_for_approval(tenant, model)
    gateway.cancel_run(tenant, "ada", paused.run.id)
    gateway.acquire_lease(tenant, "ada", paused.thread_id)
    Run.objects.update(status="running", finished_at=None)
    with pytest.raises(ThreadBusyError):
        gateway.answer_again(tenant, "ada", paused.run.id)
