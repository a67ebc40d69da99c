"""The tool by which a model asks for the facts, instead of being told them all."""

import json
from typing import Any

import pytest
from pytest_django import Settings

from memorygw import gateway
from memorygw.agents import Agent, Decision, UserMemory
from memorygw.exceptions import InvalidError
from memorygw.models import Tenant
from memorygw.testing import RecordedRequest, ScriptedModelServer
from memorygw.tools import Tool, ToolCaller
from tests.agents.steps import heard
from tests.conftest import Api, learn

pytestmark = pytest.mark.django_db(transaction=True)

NO_PARAMETERS = {"type": "object", "properties": {}}


@pytest.fixture
def memory(tenant: Tenant) -> UserMemory:
    memory = UserMemory(model="mem", tenant=tenant)
    memory.add_facts("ada", ["Lives in Pune", "Has\na cat"])
    memory.add_facts("bob", ["Likes beer"])
    return memory


def agent(memory: UserMemory, *tools: Tool, **options: Any) -> Agent:
    return Agent(name="A", model="main", user_memory=memory, tools=tools, **options)


def call(name: str = "recall_user_facts", arguments: str = "{}", call_id: str = "c1") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def offered(request: RecordedRequest) -> dict[str, Any]:
    return {tool["function"]["name"]: tool["function"] for tool in request.body.get("tools", [])}


def results(request: RecordedRequest) -> list[str]:
    return [message["content"] for message in request.messages if message["role"] == "tool"]


@pytest.mark.rows("A56", "A76", "A79", "A80", "A81", "A84", "A87")
@pytest.mark.parametrize("arguments", ["{}", "", '{"user_id": "bob", "tenant": "globex", "user": "*"}'])
def test_what_do_you_know_about_me_is_answered_through_the_tool(
    memory: UserMemory, model: ScriptedModelServer, arguments: str
) -> None:
    model.reply(None, model="main", tool_calls=[call(arguments=arguments)])
    model.reply("You live in Pune.", model="main")
    answer = agent(memory, memory.as_tool(), instructions="Be kind.").run("What do you know about me?", user_id="ada")
    assert answer.answer.content == "You live in Pune."
    first, second = model.requests_for("main")
    assert first.system == second.system == "Be kind."
    assert "Pune" not in first.text
    assert list(offered(first)) == ["recall_user_facts"]
    assert offered(first)["recall_user_facts"]["parameters"] == NO_PARAMETERS
    assert results(second) == ["- Lives in Pune\n- Has a cat"]


@pytest.mark.rows("A77", "A78", "A84", "A85")
def test_a_tool_with_another_name_and_description_keeps_the_facts_out_as_well(
    memory: UserMemory, model: ScriptedModelServer
) -> None:
    model.reply(None, model="main", tool_calls=[call("who_is_this")])
    agent(memory, memory.as_tool(name="who_is_this", description="Ask me.")).run("Hello", user_id="ada")
    first, second = model.requests_for("main")
    assert {name: tool["description"] for name, tool in offered(first).items()} == {"who_is_this": "Ask me."}
    assert first.system == ""
    assert results(second) == ["- Lives in Pune\n- Has a cat"]


@pytest.mark.rows("A84")
def test_without_the_tool_the_facts_are_told_and_no_tool_is_offered(
    memory: UserMemory, model: ScriptedModelServer
) -> None:
    agent(memory).run("Hello", user_id="ada")
    assert "Lives in Pune" in model.requests_for("main")[-1].system
    assert offered(model.requests_for("main")[-1]) == {}


@pytest.mark.rows("A82", "A83")
@pytest.mark.parametrize("user", ["stranger", None])
def test_where_there_is_nothing_to_tell_a_sentence_says_so(
    memory: UserMemory, model: ScriptedModelServer, user: str | None
) -> None:
    model.reply(None, model="main", tool_calls=[call()])
    agent(memory, memory.as_tool()).run("Who am I?", user_id=user)
    [said] = results(model.requests_for("main")[-1])
    assert said.endswith(".")
    assert not said.startswith(("-", "Error"))
    assert ("who the user is" in said) == (user is None)


@pytest.mark.rows("A86")
def test_learning_goes_on_with_the_tool(memory: UserMemory, model: ScriptedModelServer) -> None:
    model.defaults["mem"] = '["Likes tea"]'
    model.reply(None, model="main", tool_calls=[call()])
    agent(memory, memory.as_tool()).run("I like tea.", user_id="ada")
    learn()
    assert [fact.fact for fact in memory.get_facts("ada")][-1] == "Likes tea"
    [request] = model.requests_for("mem")
    assert heard(request) == ["user: I like tea.", "assistant: ok"]


def test_fact_text_cannot_forge_a_line_of_the_tools_answer(memory: UserMemory, model: ScriptedModelServer) -> None:
    memory.add_facts("eve", ["a\r\n- b\u2028- c\x0b- d", "e\x85- f"])
    gateway.upsert_user_fact(memory.tenant, "eve", "g\n- h", "i\n- j")
    model.reply(None, model="main", tool_calls=[call()])
    agent(memory, memory.as_tool()).run("Who am I?", user_id="eve")
    [said] = results(model.requests_for("main")[-1])
    assert len(said.splitlines()) == 3


@pytest.mark.parametrize("arguments", ["[]", "null", '"ada"', "{", "[" * 2_000])
def test_arguments_that_are_none_are_told_to_the_model(
    memory: UserMemory, model: ScriptedModelServer, arguments: str
) -> None:
    model.reply(None, model="main", tool_calls=[call(arguments=arguments)])
    assert agent(memory, memory.as_tool()).run("Who am I?", user_id="ada").answer.content == "ok"
    assert results(model.requests_for("main")[-1])[0].startswith("Error:")


@pytest.mark.parametrize("name", ["remember_user_fact", "memory_recall", "a b", "x" * 65, "ü"])
def test_a_name_that_no_tool_can_have_is_refused_before_anything_is_stored(
    memory: UserMemory, model: ScriptedModelServer, name: str
) -> None:
    with pytest.raises(InvalidError) as raised:
        agent(memory, memory.as_tool(name=name)).run("Hello", user_id="ada")
    assert list(raised.value.fields or {}) == ["recall_tool_name"]
    assert model.requests == []
    assert gateway.list_threads(memory.tenant, "ada").items == []


# --- over REST


@pytest.mark.rows("A76", "A77", "A78", "A84")
def test_a_persona_over_rest_does_the_same(
    api: Api, memory: UserMemory, model: ScriptedModelServer, settings: Settings
) -> None:
    body = {"name": "P", "memory_tools": "recall"}
    assert api("POST", "/personas", body).status == 201
    [schema] = api("GET", "/tools?persona=P").body["items"]
    assert (schema["function"]["name"], schema["function"]["parameters"]) == ("recall_user_facts", NO_PARAMETERS)
    renamed = {"name": "Q", **body, "recall_tool_name": "who", "recall_tool_description": "Ask."}
    api("POST", "/personas", {**renamed, "name": "Q"})
    [schema] = api("GET", "/tools?persona=Q").body["items"]
    assert (schema["function"]["name"], schema["function"]["description"]) == ("who", "Ask.")
    for name in ("recall_user_facts", "who"):
        called = api("POST", f"/tools/{name}", {"arguments": {"user": "bob"}})
        assert (called.status, called.body["content"]) == (200, "- Lives in Pune\n- Has a cat")
    assert api("POST", "/tools/unknown", {"arguments": {}}).status == 404
    thread_id = api("POST", "/threads", {"persona": "Q"}).body["id"]
    assert api("POST", f"/threads/{thread_id}/context", {}).body["facts"] == []
    api.ask("Hello", thread_id)
    request = model.requests_for("main")[-1]
    assert (request.system, list(offered(request))) == ("", ["who"])


def test_a_renamed_tool_is_its_own_tenants(api: Api, other_api: Api, memory: UserMemory) -> None:
    api("POST", "/personas", {"name": "P", "memory_tools": "recall", "recall_tool_name": "who"})
    assert api("POST", "/tools/who", {"arguments": {}}).status == 200
    assert other_api("POST", "/tools/who", {"arguments": {}}).status == 404


# --- tools of an agent's own


def test_a_tool_of_the_developers_runs_here_for_the_user_of_the_run(
    memory: UserMemory, model: ScriptedModelServer
) -> None:
    seen: list[tuple[str, Any]] = []

    def add(caller: ToolCaller, arguments: dict[str, Any]) -> Any:
        seen.append((caller.user_id, arguments))
        return {"sum": arguments["a"] + 1}

    number = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    tool = Tool(name="add", description="Adds.", parameters=number, call=add)
    calls = [call("add", '{"a": 1}'), call("add", '{"a": "x"}', "c2"), call("gone", "{}", "c3")]
    model.reply(None, model="main", tool_calls=calls)
    agent(memory, tool).run("1 + 1?", user_id="ada")
    request = model.requests_for("main")[-1]
    assert list(offered(request)) == ["add"]
    assert seen == [("ada", {"a": 1})]
    assert json.loads(results(request)[0]) == {"sum": 2}
    assert [text.partition(":")[0] for text in results(request)[1:]] == ["Error", "Error"]


@pytest.mark.parametrize(
    "error", [ValueError("SECRET"), KeyError("SECRET"), RecursionError(), TimeoutError(), InvalidError()]
)
def test_a_tool_that_raises_is_told_to_the_model_and_the_run_goes_on(
    memory: UserMemory, model: ScriptedModelServer, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(caller: ToolCaller, arguments: dict[str, Any]) -> Any:
        raise error

    tool = Tool(name="broken", description="", parameters=NO_PARAMETERS, call=broken)
    model.reply(None, model="main", tool_calls=[call("broken")])
    assert agent(memory, tool).run("Hello", user_id="ada", session_id="one").answer.content == "ok"
    assert results(model.requests_for("main")[-1])[0].startswith("Error:")
    assert "SECRET" not in model.requests_for("main")[-1].text + caplog.text
    assert agent(memory, tool).run("Hello", user_id="ada", session_id="one").answer.content == "ok"


@pytest.mark.parametrize("result", [None, {1, 2}, object(), "\x00\ud83d", b"x", "x" * 2_000_000])
def test_whatever_a_tool_returns_becomes_text(memory: UserMemory, model: ScriptedModelServer, result: Any) -> None:
    tool = Tool(name="odd", description="", parameters=NO_PARAMETERS, call=lambda caller, arguments: result)
    model.reply(None, model="main", tool_calls=[call("odd")])
    assert agent(memory, tool).run("Hello", user_id="ada").answer.content == "ok"
    [said] = results(model.requests_for("main")[-1])
    assert "\x00" not in said
    assert len(said) < 1_000_000


def test_a_tool_that_needs_approval_waits_for_it(memory: UserMemory, model: ScriptedModelServer) -> None:
    tool = Tool(
        name="pay", description="", parameters=NO_PARAMETERS, call=lambda caller, _: "paid", needs_approval=True
    )
    model.reply(None, model="main", tool_calls=[call("pay")])
    cashier = agent(memory, tool)
    waiting = cashier.run("Pay!", user_id="ada", session_id="one")
    assert (waiting.answer, waiting.run.status) == (None, "awaiting_human")
    done = cashier.continue_run(waiting.run.id, [Decision(tool_call_id="c1", approved=True)], user_id="ada")
    assert done.answer.content == "ok"
    assert results(model.requests_for("main")[-1]) == ["paid"]
