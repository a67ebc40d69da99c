"""Sessions of an agent, and the persona that it is."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any
from uuid import uuid4

import pytest

from memorygw import gateway
from memorygw.agents import Agent, Decision, UserMemory, VoiceAgent
from memorygw.exceptions import InvalidError, ThreadBusyError, UserRequiredError
from memorygw.models import Persona, Tenant
from memorygw.testing import RecordedRequest, ScriptedModelServer
from memorygw.tools import Tool
from tests.agents.steps import heard as learned_from
from tests.agents.steps import texts
from tests.conftest import background, learn

pytestmark = pytest.mark.django_db(transaction=True)


def heard(request: RecordedRequest) -> list[str]:
    """What the users said, as far as the request shows it."""
    return [message["content"] for message in request.messages if message["role"] == "user"]


def last(model: ScriptedModelServer) -> RecordedRequest:
    return model.requests_for("main")[-1]


@pytest.mark.rows("A8", "A9", "A10")
def test_a_session_keeps_its_conversation_and_the_memory_its_facts(
    agent: Agent, memory: UserMemory, model: ScriptedModelServer
) -> None:
    memory.add_facts("ada", ["Lives in Pune"])
    agent.run("one", user_id="ada", session_id="s")
    agent.run("two", user_id="ada", session_id="s")
    assert (heard(last(model)), "Lives in Pune" in last(model).system) == (["one", "two"], True)
    for session in ("t", ""):
        agent.run("three", user_id="ada", session_id=session)
        assert (heard(last(model)), "Lives in Pune" in last(model).system) == (["three"], True)
    agent.run("four", user_id="ada")
    assert heard(last(model)) == ["four"]


@pytest.mark.rows("A9", "A10")
def test_sessions_work_without_a_memory_which_then_tells_and_learns_nothing(
    tenant: Tenant, memory: UserMemory, model: ScriptedModelServer
) -> None:
    memory.add_facts("ada", ["Lives in Pune"])
    agent = Agent(name="B", model="main", tenant=tenant)
    for text in ("one", "two"):
        agent.run(text, user_id="ada", session_id="s")
        learn()
    assert heard(last(model)) == ["one", "two"]
    assert last(model).system == ""
    assert [request.model for request in model.requests] == ["main", "main"]


@pytest.mark.rows("A11")
def test_a_session_is_made_once_and_listed_as_a_thread(
    agent: Agent, tenant: Tenant, model: ScriptedModelServer
) -> None:
    first, second = (agent.run("Hello", user_id="ada", session_id="s") for _ in range(2))
    assert first.thread_id == second.thread_id
    [thread] = gateway.list_threads(tenant, "ada").items
    assert (thread.id, thread.persona.name, thread.turn_count) == (first.thread_id, "A", 4)
    agent.run("again", user_id="ada", session_id=str(thread.id))
    assert heard(last(model)) == ["Hello", "Hello", "again"]


@pytest.mark.rows("A2")
@pytest.mark.parametrize("other", ["bob", None, "ADA"])
def test_a_session_of_the_same_id_is_another_persons_own(
    agent: Agent, model: ScriptedModelServer, other: str | None
) -> None:
    mine = agent.run("my secret", user_id="ada", session_id="s").thread_id
    theirs = [agent.run("Hello", user_id=other, session_id=session).thread_id for session in ("s", str(mine))]
    assert "my secret" not in model.requests_for("main")[1].text + last(model).text
    assert len({mine, *theirs}) == 3
    agent.run("again", user_id=other, session_id=str(mine))
    assert heard(last(model)) == ["Hello", "again"]
    assert len(gateway.get_turns(agent.owner, "ada", mine)) == 2


def test_an_anonymous_session_is_no_users(agent: Agent, memory: UserMemory, model: ScriptedModelServer) -> None:
    model.defaults["mem"] = '["Is a spy"]'
    nobodys = agent.run("my secret", session_id="s").thread_id
    agent.run("Hello", user_id="ada", session_id=str(nobodys))
    learn()
    assert "my secret" not in last(model).text
    for user in ("*", "", " "):
        with pytest.raises(UserRequiredError):
            agent.run("Hello", user_id=user, session_id="s")
    assert [fact.fact for fact in memory.get_facts("ada")] == ["Is a spy"]
    assert len(model.requests_for("mem")) == 1


@pytest.mark.rows("A12", "A99")
def test_what_a_persona_tells_its_users_is_not_told_where_there_is_none(
    agent: Agent, model: ScriptedModelServer
) -> None:
    phone = VoiceAgent(name="A", instructions="Be kind.", model="main", user_memory=agent.user_memory)
    gateway.set_persona_fact(agent.owner, agent.save().pk, "office", "Pune")
    for user, told in (("ada", True), (None, False)):
        agent.run("Hello", user_id=user)
        assert ("office: Pune" in last(model).system) == told
        assert ("office: Pune" in phone.connect(user).instructions) == told


@pytest.mark.parametrize("session", ["x" * 256, "a\x00", "\ud83d"])
def test_what_is_no_session_id_is_refused(agent: Agent, model: ScriptedModelServer, session: str) -> None:
    with pytest.raises(InvalidError) as raised:
        agent.run("Hello", user_id="ada", session_id=session)
    assert list(raised.value.fields or {}) == ["session_id"]
    assert gateway.list_threads(agent.owner, "ada").items == []


@pytest.mark.parametrize("session", [" s ", "S", "😀", "../s", "x" * 255, str(uuid4()), uuid4().hex, "null", "*"])
def test_any_other_text_is_a_session_of_its_own(agent: Agent, model: ScriptedModelServer, session: str) -> None:
    agent.run("elsewhere", user_id="ada", session_id="s")
    agent.run("one", user_id="ada", session_id=session)
    agent.run("two", user_id="ada", session_id=session)
    assert heard(last(model)) == ["one", "two"]


def test_a_deleted_session_begins_anew(agent: Agent, tenant: Tenant, model: ScriptedModelServer) -> None:
    thread_id = agent.run("one", user_id="ada", session_id="s").thread_id
    gateway.delete_threads(tenant, "ada", [thread_id])
    agent.run("two", user_id="ada", session_id="s")
    assert heard(last(model)) == ["two"]


def test_two_runs_at_once_in_a_new_session_are_one_conversation(
    agent: Agent, tenant: Tenant, model: ScriptedModelServer
) -> None:
    with ThreadPoolExecutor(8) as pool:
        runs = [background(pool, agent.run, "Hello", user_id="ada", session_id="s") for _ in range(8)]
        errors = [error for run in runs if (error := run.exception())]
    assert {type(error) for error in errors} <= {ThreadBusyError}
    [thread] = gateway.list_threads(tenant, "ada").items
    assert thread.turn_count == 2 * (8 - len(errors))
    assert Persona.objects.filter(tenant=tenant, name="A").count() == 1


# --- the persona


def test_an_agent_is_the_tenants_persona_of_its_name(agent: Agent, tenant: Tenant, model: ScriptedModelServer) -> None:
    agent.run("Hello", user_id="ada")
    persona = gateway.get_persona(tenant, agent.save().pk)
    assert (persona.name, persona.instructions, persona.model, persona.fact_kind) == ("A", "Be kind.", "main", "text")
    agent.instructions = "Be brief."
    agent.run("Hello", user_id="ada")
    assert last(model).system == "Be brief."
    assert gateway.get_persona(tenant, persona.id).instructions == "Be brief."


@pytest.mark.parametrize("change", [{"instructions": "Be evil."}, {"model": "x"}, {"memory_tools": "gateway"}])
def test_what_the_code_says_holds_whatever_an_operator_changed(
    agent: Agent, memory: UserMemory, model: ScriptedModelServer, change: dict[str, Any]
) -> None:
    memory.add_facts("ada", ["Lives in Pune"])
    agent.run("Hello", user_id="ada", session_id="s")
    gateway.update_persona(agent.owner, agent.save().pk, **change)
    agent.run("Hello", user_id="ada", session_id="s")
    first, second = model.requests_for("main")
    assert second.system == first.system
    assert second.body.get("tools") == first.body.get("tools")


def test_the_review_policy_is_the_operators(agent: Agent, memory: UserMemory, model: ScriptedModelServer) -> None:
    model.defaults["mem"] = '["Lives in Pune"]'
    gateway.update_persona(agent.owner, agent.save().pk, review_policy="always_extracted")
    agent.run("I live in Pune.", user_id="ada")
    learn()
    assert memory.get_facts("ada") == []
    [waiting] = gateway.list_pending_memories(agent.owner)
    gateway.approve_memory(agent.owner, "ada", waiting.id)
    assert [(fact.fact, fact.source) for fact in memory.get_facts("ada")] == [("Lives in Pune", "auto")]


def test_an_agent_whose_persona_was_deleted_runs_on(
    agent: Agent, memory: UserMemory, model: ScriptedModelServer
) -> None:
    memory.add_facts("ada", ["Lives in Pune"])
    agent.run("one", user_id="ada", session_id="s")
    gateway.delete_persona(agent.owner, agent.save().pk)
    agent.run("two", user_id="ada", session_id="s")
    assert heard(last(model)) == ["one", "two"]
    assert "Lives in Pune" in last(model).system


def test_agents_of_one_name_in_two_tenants_know_nothing_of_each_other(
    agent: Agent, memory: UserMemory, other_tenant: Tenant, model: ScriptedModelServer
) -> None:
    model.defaults["mem"] = '["Lives in Pune"]'
    twin = Agent(name="A", model="main", user_memory=UserMemory(model="mem", tenant=other_tenant))
    agent.run("one", user_id="ada", session_id="s")
    learn()
    twin.run("two", user_id="ada", session_id="s")
    assert (heard(last(model)), last(model).system) == (["two"], "")
    assert (twin.user_memory and twin.user_memory.get_facts("ada")) == []
    assert agent.save() != twin.save()


@pytest.mark.parametrize("name", ["", " ", "x" * 101, str(uuid4())])
def test_a_name_that_no_persona_can_have_is_refused(tenant: Tenant, model: ScriptedModelServer, name: str) -> None:
    with pytest.raises(InvalidError) as raised:
        Agent(name=name, model="main", tenant=tenant).run("Hello", user_id="ada")
    assert list(raised.value.fields or {}) == ["name"]


def test_a_name_with_nul_is_refused_on_every_database(tenant: Tenant, model: ScriptedModelServer) -> None:
    with pytest.raises(InvalidError) as raised:
        Agent(name="a\x00", model="main", tenant=tenant).run("Hello", user_id="ada")
    assert list(raised.value.fields or {}) == ["name"]


@pytest.mark.rows("A14", "A69")
def test_after_its_persona_was_deleted_an_agent_learns_as_before(
    agent: Agent, memory: UserMemory, model: ScriptedModelServer
) -> None:
    agent.run("one", user_id="ada", session_id="s")
    learn()
    gateway.delete_persona(agent.owner, agent.save().pk)
    model.defaults["mem"] = '["Lives in Pune"]'
    for text in ("two", "three"):
        agent.run(text, user_id="ada", session_id="s")
        learn()
    assert [learned_from(request) for request in model.requests_for("mem")] == [
        [f"user: {text}", "assistant: ok"] for text in ("one", "two", "three")
    ]
    assert texts(memory) == ["Lives in Pune"]


@pytest.mark.rows("A23")
@pytest.mark.parametrize("silent", ["an agent without memory", "one whose memory is disabled"])
def test_what_an_agent_without_memory_hears_is_not_learned_by_another(
    agent: Agent, tenant: Tenant, model: ScriptedModelServer, silent: str
) -> None:
    other = Agent(name="B", model="main", tenant=tenant)
    if "disabled" in silent:
        other = Agent(name="A", model="main", user_memory=UserMemory(model="mem", enabled=False, tenant=tenant))
    for speaker, text in ((agent, "one"), (other, "two"), (agent, "three")):
        speaker.run(text, user_id="ada", session_id="s")
    learn()
    said = [line for request in model.requests_for("mem") for line in learned_from(request)]
    assert "user: three" in said
    assert "user: two" not in said


@pytest.mark.rows("A23")
def test_one_users_no_holds_while_the_same_agent_learns_from_another(
    agent: Agent, memory: UserMemory, tenant: Tenant, model: ScriptedModelServer
) -> None:
    refused = Agent(
        name="A",
        instructions="Be kind.",
        model="main",
        user_memory=UserMemory(model="mem", enabled=False, tenant=tenant),
    )
    model.defaults["mem"] = '["Lives in Pune"]'
    refused.run("I live in Pune.", user_id="bob", session_id="s")
    agent.run("I live in Pune.", user_id="ada", session_id="s")
    refused.run("And you?", user_id="bob", session_id="s")
    learn()
    assert (texts(memory, "ada"), texts(memory, "bob")) == (["Lives in Pune"], [])


def test_a_run_that_is_refused_leaves_no_session_behind(
    agent: Agent, tenant: Tenant, model: ScriptedModelServer
) -> None:
    with pytest.raises(InvalidError):
        agent.run(" ", user_id="ada", session_id="s")
    assert gateway.list_threads(tenant, "ada").items == []


@pytest.mark.rows("A84")
def test_a_tool_of_the_same_name_as_the_recall_tool_is_refused_or_does_not_bring_the_facts_back(
    memory: UserMemory, model: ScriptedModelServer
) -> None:
    memory.add_facts("ada", ["Lives in Pune"])
    own = Tool(name="who", description="", parameters={"type": "object"}, call=lambda caller, arguments: "own")
    with suppress(InvalidError):
        agent = Agent(name="A", model="main", user_memory=memory, tools=[memory.as_tool("who"), own])
        agent.run("Hello", user_id="ada")
    assert all("Lives in Pune" not in request.system for request in model.requests)


# --- agents of one name that say different things


def test_each_run_has_the_instructions_of_its_own_agent(tenant: Tenant, model: ScriptedModelServer) -> None:
    def run(n: int) -> None:
        memory = UserMemory(model="mem", tenant=tenant)
        agent = Agent(name="A", model="main", instructions=f"Serve user {n}", user_memory=memory)
        agent.run(f"I am user {n}", user_id=f"user {n}")

    with ThreadPoolExecutor(8) as pool:
        for done in [background(pool, run, n % 5) for n in range(80)]:
            done.result()
    asked = [(request.system.split()[-1], request.last_user.split()[-1]) for request in model.requests_for("main")]
    assert [pair for pair in asked if len(set(pair)) > 1] == []


def test_a_run_goes_on_with_the_instructions_of_its_own_agent(tenant: Tenant, model: ScriptedModelServer) -> None:
    memory = UserMemory(model="mem", tenant=tenant)
    pay = Tool(name="pay", description="", parameters={"type": "object"}, call=lambda *_: "paid", needs_approval=True)
    first = Agent(name="A", model="main", instructions="Serve ada.", user_memory=memory, tools=[pay])
    call = {"id": "c1", "type": "function", "function": {"name": "pay", "arguments": "{}"}}
    model.reply(None, model="main", tool_calls=[call])
    waiting = first.run("Pay!", user_id="ada")
    Agent(name="A", model="main", instructions="Serve bob.", user_memory=memory).run("Hello", user_id="bob")
    first.continue_run(waiting.run.id, [Decision(tool_call_id="c1", approved=True)], user_id="ada")
    assert last(model).system == "Serve ada."


def test_an_operator_may_switch_an_agents_memory_off(
    agent: Agent, memory: UserMemory, tenant: Tenant, model: ScriptedModelServer
) -> None:
    memory.add_facts("ada", ["Lives in Pune"])
    off = {"memory_enabled": False, "memory_injection_enabled": False}
    gateway.update_persona(tenant, agent.save().pk, **off)  # type: ignore[arg-type]
    agent.run("I have a cat.", user_id="ada")
    learn()
    assert "Lives in Pune" not in last(model).system
    assert model.requests_for("mem") == []
