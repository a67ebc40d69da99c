"""The async forms do what the others do, beside each other and beside other tasks."""

import asyncio
from inspect import iscoroutinefunction, isfunction
from typing import Any

import pytest

from memorygw.agents import Agent, Decision, UserMemory, VoiceAgent, VoiceConnection
from memorygw.exceptions import FactTooLongError, UserRequiredError, VoiceSessionClosedError
from memorygw.testing import ScriptedModelServer
from memorygw.tools import Tool
from tests.agents.steps import texts
from tests.conftest import learn

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.rows("A31", "A34", "A46", "A49", "A51", "A55")
def test_a_memory_in_a_coroutine(memory: UserMemory, model: ScriptedModelServer) -> None:
    async def work() -> None:
        await memory.aadd_facts("ada", ["a", "A", "b"])
        await memory.aadd_facts("ada", ["c"], source="auto")
        a, b, c = await memory.aget_facts("ada")
        assert [fact.source for fact in (a, b, c)] == ["manual", "manual", "auto"]
        await memory.aremove_fact("ada", a.id)
        await memory.aremove_fact("ada", "no id")
        assert (await memory.aget_context_string("ada")).split("\n")[1:] == ["- b", "- c"]
        await memory.aextract_and_store("ada", [{"role": "user", "content": "I live in Pune."}], model="other")
        assert [fact.fact for fact in await memory.aget_facts("ada")] == ["b", "c", "Lives in Pune"]
        with pytest.raises(FactTooLongError):
            await memory.aadd_facts("ada", ["x" * 201])
        with pytest.raises(UserRequiredError):
            await memory.aget_facts("")
        await memory.aclear("ada")
        assert await memory.aget_facts("ada") == []

    model.reply('["Lives in Pune"]', model="mem")
    asyncio.run(work())


@pytest.mark.rows("A1", "A6", "A11")
def test_an_agent_in_a_coroutine(agent: Agent, memory: UserMemory, model: ScriptedModelServer) -> None:
    async def say(text: str) -> Any:
        return (await agent.arun(text, user_id="ada", session_id="s")).answer.content

    model.reply('["Lives in Pune"]', model="mem")
    assert asyncio.run(say("I live in Pune.")) == "ok"
    learn()
    assert asyncio.run(say("Where do I live?")) == "ok"
    request = model.requests_for("main")[-1]
    assert "Lives in Pune" in request.system
    assert len(request.messages) == 4


def test_a_run_that_waits_is_continued_in_a_coroutine(memory: UserMemory, model: ScriptedModelServer) -> None:
    tool = Tool(name="pay", description="", parameters={"type": "object"}, call=lambda *_: "paid", needs_approval=True)
    agent = Agent(name="A", model="main", user_memory=memory, tools=[tool])
    call = {"id": "c1", "type": "function", "function": {"name": "pay", "arguments": "{}"}}
    model.reply(None, model="main", tool_calls=[call])

    async def work() -> Any:
        waiting = await agent.arun("Pay!", user_id="ada")
        yes = [Decision(tool_call_id="c1", approved=True)]
        return await agent.acontinue_run(waiting.run.id, yes, user_id="ada")

    assert [turn.content for turn in asyncio.run(work()).turns] == ["paid", "ok"]


@pytest.mark.rows("A88", "A89", "A96")
def test_a_voice_agent_in_a_coroutine(memory: UserMemory, model: ScriptedModelServer) -> None:
    agent = VoiceAgent(name="Phone", model="text", user_memory=memory)
    model.reply('["Has a cat"]', model="mem")

    async def talk() -> Any:
        await memory.aadd_facts("ada", ["Likes tea"])
        call = await agent.aconnect("ada")
        assert "Likes tea" in call.instructions
        await call.aadd("user", "I have ")
        await call.aadd_all([("user", "a cat."), ("assistant", "Nice.")])
        first, second = [await call.aclose() for _ in range(2)]
        assert first == second
        with pytest.raises(VoiceSessionClosedError):
            await call.aadd("user", "Bye")
        return first

    assert [message["content"] for message in asyncio.run(talk())] == ["I have a cat.", "Nice."]
    learn()
    assert texts(memory) == ["Likes tea", "Has a cat"]


@pytest.mark.rows("A45")
def test_ten_adds_at_once_are_ten_facts(memory: UserMemory) -> None:
    async def work() -> None:
        await asyncio.gather(*(memory.aadd_facts("ada", [f"fact {n}"]) for n in range(10)))

    asyncio.run(work())
    assert sorted(texts(memory)) == [f"fact {n}" for n in range(10)]


@pytest.mark.rows("A4")
def test_other_tasks_go_on_while_a_model_thinks(agent: Agent, memory: UserMemory, model: ScriptedModelServer) -> None:
    async def work() -> list[str]:
        with model.hold(model="main"):
            runs = [asyncio.create_task(agent.arun("Hello", user_id=f"user {n}", session_id="s")) for n in range(5)]
            await asyncio.to_thread(model.wait_for_requests, 5, "main")
            await memory.aadd_facts("ada", ["meanwhile"])
            assert not any(run.done() for run in runs)
        return [run.answer.content for run in await asyncio.gather(*runs)]

    assert asyncio.run(work()) == ["ok"] * 5
    assert texts(memory) == ["meanwhile"]


@pytest.mark.parametrize("kind", [Agent, UserMemory, VoiceAgent, VoiceConnection])
def test_every_method_that_waits_has_an_async_form(kind: type) -> None:
    public = {name for name, member in vars(kind).items() if isfunction(member) and not name.startswith("_")}
    waiting = {name for name in public if not iscoroutinefunction(getattr(kind, name))} - {"as_tool", "astream"}
    assert {name for name in waiting if f"a{name}" not in public} == set()
