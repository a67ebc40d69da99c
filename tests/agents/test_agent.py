"""An agent that remembers its users, as a developer uses it."""

import asyncio
import json

import pytest
from pytest_django import Settings

from memorygw.agents import Agent, UserMemory
from memorygw.models import Tenant
from memorygw.testing import ScriptedModelServer
from tests.conftest import learn

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.rows("A1", "A2", "A6", "A11", "A14")
def test_what_one_session_tells_the_next_one_knows(tenant: Tenant, model: ScriptedModelServer) -> None:
    agent = Agent(
        name="Assistant", model="main", instructions="Be kind.", user_memory=UserMemory(model="cheap", tenant=tenant)
    )
    model.reply(json.dumps(["Lives in Mumbai"]), model="cheap")
    agent.run("I live in Mumbai.", user_id="ada", session_id="one")
    learn()
    agent.run("What is near?", user_id="ada", session_id="two")
    agent.run("What is near?", user_id="bob", session_id="two")
    first, second, others = model.requests_for("main")
    assert first.system == others.system == "Be kind."
    assert second.system.startswith("Be kind.\n\n")
    assert "Lives in Mumbai" in second.system
    assert [message["content"] for message in second.messages if message["role"] == "user"] == ["What is near?"]


@pytest.mark.rows("A12")
def test_without_a_user_nothing_is_told_and_nothing_is_learned(
    tenant: Tenant, model: ScriptedModelServer, settings: Settings
) -> None:
    settings.MEMORYGW_TITLES_ENABLED = False
    agent = Agent(name="Assistant", model="main", user_memory=UserMemory(model="cheap", tenant=tenant))
    agent.run("I live in Mumbai.", session_id="one")
    agent.run("And?", session_id="one")
    learn()
    assert model.requests_for("cheap") == []
    assert len(model.requests_for("main")[-1].messages) == 3


@pytest.mark.rows("A3")
def test_a_stream_learns_and_is_told_as_a_run(tenant: Tenant, model: ScriptedModelServer) -> None:
    agent = Agent(name="Assistant", model="main", user_memory=UserMemory(model="cheap", tenant=tenant))
    model.reply(json.dumps(["Lives in Mumbai"]), model="cheap")
    list(agent.stream("I live in Mumbai.", user_id="ada", session_id="one"))
    learn()
    model.stream("You ", "do.", model="main")
    events = list(agent.stream("Where do I live?", user_id="ada", session_id="two"))
    assert [event.value for event in events if event.kind == "delta"] == ["You ", "do."]
    assert "Lives in Mumbai" in model.requests_for("main")[-1].system


def test_an_async_stream_is_the_same_and_ends_when_it_is_left(tenant: Tenant, model: ScriptedModelServer) -> None:
    agent = Agent(name="Assistant", model="main", tenant=tenant)

    async def listen(pieces: int) -> list[str]:
        heard: list[str] = []
        events = agent.astream("Hello", user_id="ada")
        async for event in events:
            heard += [event.value] if event.kind == "delta" else []
            if len(heard) == pieces:
                break
        await events.aclose()
        return heard

    model.stream("One ", "two", model="main")
    assert asyncio.run(listen(99)) == ["One ", "two"]
    model.stream("One ", 30, "two", model="main")
    assert asyncio.run(listen(1)) == ["One "]
    model.wait_until_given_up()
