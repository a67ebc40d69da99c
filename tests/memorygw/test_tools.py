"""What a model is offered, and the tools that run at once."""

from typing import Any

import pytest
from django.core.checks import run_checks
from pytest_django import Settings

from memorygw import gateway
from memorygw.exceptions import (
    ContextTooLargeError,
    FactTooLongError,
    ModelFailedError,
)
from memorygw.gateway import Decision
from memorygw.models import Persona, Tenant
from memorygw.testing import ScriptedModelServer
from memorygw.tools import Tool, ToolCaller
from tests.memorygw.runs import CALLERS, CLIENT_TOOL, FORGET, REMEMBER, call, facts, remember, results, status
from threads.models import Run

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
    calls = [call("get_weather", call_id, city="long " * 220) for call_id in ("c1", "c2")]
    model.reply(None, model="main", tool_calls=calls)
    with pytest.raises(ContextTooLargeError) as failure:
        gateway.ask(tenant, "ada", "Weather?", thread_id=thread_id)
    assert Run.objects.get(pk=failure.value.details["run_id"]).error == "context_too_large"
    assert gateway.ask(tenant, "ada", "Thanks", thread_id=thread_id).answer.content == "ok"


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


# --- what models and hosts get wrong


@pytest.mark.parametrize(
    ("name", "stored"),
    [("bad name!", "bad_name_"), ("functions.get_time", "functions_get_time"), ("x" * 99, "x" * 64), ("é", "_")],
)
def test_a_name_that_no_provider_takes_is_not_sent_back(
    tenant: Tenant, model: ScriptedModelServer, name: str, stored: str
) -> None:
    model.reply(None, model="main", tool_calls=[call(name)])
    gateway.ask(tenant, "ada", "Hello")
    [sent] = [m["tool_calls"][0] for m in model.requests_for("main")[-1].messages if m.get("tool_calls")]
    assert sent["function"]["name"] == stored
    assert results(model) == {"c1": "Error: there is no tool of this name."}


def test_arguments_that_are_no_json_are_stored_as_said_and_sent_back_as_none(
    tenant: Tenant, model: ScriptedModelServer
) -> None:
    broken = {"id": "c1", "type": "function", "function": {"name": REMEMBER, "arguments": '{"key": "dri'}}
    model.reply(None, model="main", tool_calls=[broken])
    paused = gateway.ask(tenant, "ada", "Hello")
    gateway.continue_run(tenant, "ada", paused.run.id, [Decision(tool_call_id="c1", approved=True)])
    [sent] = [m["tool_calls"][0] for m in model.requests_for("main")[-1].messages if m.get("tool_calls")]
    assert sent["function"]["arguments"] == "{}"
    stored = gateway.get_turns(tenant, "ada", paused.thread_id)[1]
    assert stored.tool_calls[0]["function"]["arguments"] == '{"key": "dri'


@pytest.mark.parametrize(
    "error",
    [
        {"param": "messages[2].tool_calls[0].function.name", "message": "Invalid name."},
        {"param": None, "message": "messages with role 'tool' must follow a call"},
    ],
)
def test_a_fault_in_one_history_takes_nobody_elses_tools_away(
    tenant: Tenant, model: ScriptedModelServer, error: dict[str, Any]
) -> None:
    model.fail(400, model="main", error=error)
    with pytest.raises(ModelFailedError):
        gateway.ask(tenant, "ada", "Hello")
    gateway.ask(tenant, "eve", "Hello")
    assert ["tools" in request.body for request in model.requests_for("main")] == [True, True]


class _Sly:
    def __str__(self) -> str:
        raise LookupError("SECRET")


_LOOP: list[Any] = []
_LOOP.append(_LOOP)


@pytest.mark.parametrize(
    ("value", "result"),
    [
        ({1: "a"}, '{"1": "a"}'),
        ({None: 1}, '{"null": 1}'),
        (3, "3"),
        (None, "null"),
        (_LOOP, "Error: the tool failed."),
        (_Sly(), "Error: the tool failed."),
        ("", ""),
        ("many words " * 60_000, "Error: the result is too long for the model."),
    ],
    ids=range(8),
)
def test_whatever_a_hosts_tool_returns_is_text_for_the_model(
    tenant: Tenant,
    model: ScriptedModelServer,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    value: Any,
    result: str,
) -> None:
    odd = Tool(name="odd", description="", parameters={"type": "object"}, call=lambda caller, arguments: value)
    monkeypatch.setattr("tests.memorygw.runs.WEATHER", odd)
    settings.MEMORYGW_TOOLS = ["tests.memorygw.runs.WEATHER"]
    model.reply(None, model="main", tool_calls=[call("odd")])
    assert gateway.ask(tenant, "ada", "Hello").run.status == "completed"
    assert results(model) == {"c1": result}
    assert "SECRET" not in caplog.text


def _half(caller: ToolCaller, arguments: dict[str, Any]) -> None:
    Persona.objects.create(tenant_id=caller.tenant_id, name="half")
    if arguments.get("twice"):
        Persona.objects.create(tenant_id=caller.tenant_id, name="half")
    raise LookupError


@pytest.mark.parametrize("twice", [False, True])
def test_of_an_atomic_tool_that_fails_nothing_is_left(
    tenant: Tenant, model: ScriptedModelServer, settings: Settings, monkeypatch: pytest.MonkeyPatch, twice: bool
) -> None:
    half = Tool(name="half", description="", parameters={"type": "object"}, call=_half, atomic=True)
    monkeypatch.setattr("tests.memorygw.runs.WEATHER", half)
    settings.MEMORYGW_TOOLS = ["tests.memorygw.runs.WEATHER"]
    model.reply(None, model="main", tool_calls=[call("half", twice=twice)])
    gateway.ask(tenant, "ada", "Hello")
    assert results(model) == {"c1": "Error: the tool failed."}
    assert not Persona.objects.exists()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TOOLS", ["tests.memorygw.runs.NOTHING"]),
        ("TOOLS", ["tests.memorygw.runs.REMEMBER"]),
        ("TOOLS", "tests.memorygw.runs.WEATHER"),
        ("TOOLS", ["tests.memorygw.runs.WEATHER", "tests.memorygw.runs.WEATHER"]),
        ("TOOLS", ["tests.memorygw.test_tools.BADLY_DESCRIBED"]),
        ("MEMORY_TOOLS", "everything"),
        ("MEMORY_TOOLS", ["remember_user_fact"]),
        ("TOOL_PREFIX", "no blanks "),
        ("TOOL_PREFIX", 5),
    ],
)
def test_tools_that_cannot_work_are_refused_at_start(settings: Settings, name: str, value: Any) -> None:
    assert not run_checks(tags=["memorygw"])
    setattr(settings, f"MEMORYGW_{name}", value)
    assert {message.id for message in run_checks(tags=["memorygw"])} <= {"memorygw.E002", "memorygw.E005"}
    assert run_checks(tags=["memorygw"])


BADLY_DESCRIBED = Tool(name="bad", description="", parameters={"type": "objekt"}, call=lambda caller, arguments: None)
