"""Spoken conversations in Python: told at the beginning, read at the end, once."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from django.utils import timezone
from pytest_django import Settings

from memorygw import gateway, sweep
from memorygw.agents import Agent, UserMemory, VoiceAgent
from memorygw.exceptions import VoiceSessionClosedError, VoiceSessionNotFoundError
from memorygw.models import Tenant, VoiceSession
from memorygw.testing import ScriptedModelServer
from memorygw.voice import learn_from_voice
from tests.agents.steps import heard, messages, texts
from tests.conftest import background, learn

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def memory(tenant: Tenant) -> UserMemory:
    return UserMemory(tenant=tenant)


@pytest.fixture
def agent(memory: UserMemory, model: ScriptedModelServer) -> VoiceAgent:
    model.defaults["text"] = '["Lives in Pune"]'
    return VoiceAgent(name="Phone", instructions="Be kind.", model="text", user_memory=memory)


# --- a session


@pytest.mark.rows("A88", "A89", "A91", "A92", "A93", "A94", "A95", "A96", "A100")
def test_an_agent_tells_what_is_known_and_learns_when_they_hang_up(
    agent: VoiceAgent, memory: UserMemory, model: ScriptedModelServer
) -> None:
    memory.add_facts("ada", ["Likes tea"])
    with agent.connect(user_id="ada") as call:
        assert call.instructions.startswith("Be kind.\n\n")
        assert "Likes tea" in call.instructions
        call.add("user", "I li")
        call.add_all([("user", "ve in "), ("user", "Pune."), ("assistant", " "), ("assistant", "Nice")])
        call.add("assistant", " city! ")
        call.add("user", " Bye")
        assert model.requests == []
    learn()
    [request] = model.requests
    assert request.model == "text"
    assert heard(request) == ["user: I live in Pune.", "assistant: Nice city!", "user: Bye"]
    assert texts(memory) == ["Likes tea", "Lives in Pune"]
    assert [fact.source for fact in memory.get_facts("ada")] == ["manual", "auto"]


@pytest.mark.rows("A89", "A90", "A99")
@pytest.mark.parametrize(
    ("configured", "given", "user"),
    [("ada", "bob", "bob"), ("ada", None, "ada"), (None, "bob", "bob"), ("ada", 0, "0")],
)
def test_the_user_named_at_connect_wins(
    agent: VoiceAgent, memory: UserMemory, configured: str | None, given: str | int | None, user: str
) -> None:
    for name in ("ada", "bob", "0"):
        memory.add_facts(name, [f"Is {name}"])
    agent.user_id = configured
    with agent.connect(given) as call:
        call.add("user", "I live in Pune.")
    learn()
    assert f"Is {user}" in call.instructions
    assert call.instructions.count("Is ") == 1
    learned = {name: texts(memory, name) for name in ("ada", "bob", "0")}
    assert [name for name, facts in learned.items() if "Lives in Pune" in facts] == [user]


@pytest.mark.rows("A98", "A99")
def test_where_nobody_is_named_or_nothing_said_no_model_is_asked(
    agent: VoiceAgent, memory: UserMemory, model: ScriptedModelServer
) -> None:
    memory.add_facts("ada", ["Likes tea"])
    with agent.connect() as call:
        call.add("user", "I live in Pune.")
    assert call.instructions == "Be kind."
    with agent.connect("ada"):
        pass
    with agent.connect("ada") as call:
        call.add_all([])
        call.add_all([("user", ""), ("assistant", "\n \u3000"), ("user", "\x00")])
    learn()
    assert model.requests == []
    assert list(sweep.due()) == []


@pytest.mark.rows("A89", "A96")
def test_a_memory_that_is_disabled_or_missing_neither_tells_nor_learns(
    agent: VoiceAgent, memory: UserMemory, tenant: Tenant, model: ScriptedModelServer
) -> None:
    memory.add_facts("ada", ["Likes tea"])
    without = VoiceAgent(name="Q", instructions="Be kind.", model="text", tenant=tenant)
    agent.user_memory = UserMemory(enabled=False, tenant=tenant)
    for phone in (agent, without):
        with phone.connect("ada") as call:
            call.add("user", "I live in Pune.")
        assert call.instructions == "Be kind."
    learn()
    assert (model.requests, texts(memory)) == ([], ["Likes tea"])


@pytest.mark.rows("A100")
def test_the_memorys_model_reads_else_the_voice_agents(
    agent: VoiceAgent, tenant: Tenant, model: ScriptedModelServer
) -> None:
    for memory in (UserMemory(tenant=tenant), UserMemory(model="mem", tenant=tenant)):
        agent.user_memory = memory
        with agent.connect("ada") as call:
            call.add("user", "I live in Pune.")
        learn()
    assert [request.model for request in model.requests] == ["text", "mem"]


@pytest.mark.rows("A101", "A102", "A103")
def test_only_facts_go_from_one_session_to_the_next_spoken_or_written(
    agent: VoiceAgent, memory: UserMemory, tenant: Tenant, model: ScriptedModelServer
) -> None:
    written = Agent(name="Chat", model="main", user_memory=memory)
    model.reply('["Likes tea"]', model="main")
    with agent.connect("ada") as call:
        for n in range(12):
            call.add_all([("user", f"spoken {n}"), ("assistant", "Fine.")])
    learn()
    assert len(model.requests) == 1
    assert gateway.list_threads(tenant, "ada").items == []
    written.run("I like tea.", user_id="ada")
    assert "Lives in Pune" in model.requests_for("main")[0].system
    assert "spoken" not in model.requests_for("main")[0].text
    model.reply('["Likes tea"]', model="main")
    learn()
    second = agent.connect("ada").instructions
    assert "Likes tea" in second
    assert "Lives in Pune" in second
    assert "spoken" not in second


# --- the end


@pytest.mark.rows("A97")
def test_a_session_is_read_once_however_it_ends(agent: VoiceAgent, model: ScriptedModelServer) -> None:
    with agent.connect("ada") as call:
        call.add("user", "I live in Pune.")
        first = call.close()
    with ThreadPoolExecutor(4) as pool:
        again = [done.result() for done in [background(pool, call.close) for _ in range(4)]]
    learn()
    again.append(call.close())
    learn()
    assert again == [first] * 5
    assert len(model.requests) == 1


@pytest.mark.rows("A97")
def test_two_workers_at_once_read_it_once(agent: VoiceAgent, memory: UserMemory, model: ScriptedModelServer) -> None:
    call = agent.connect("ada")
    call.add("user", "I live in Pune.")
    call.close()
    with ThreadPoolExecutor(3) as pool:
        with model.hold(model="text"):
            workers = [background(pool, learn_from_voice, str(call.id)) for _ in range(3)]
            model.wait_for_requests(1, model="text")
            call.close()
        for done in workers:
            done.result()
    learn_from_voice(str(call.id))
    assert len(model.requests) == 1
    assert texts(memory) == ["Lives in Pune"]


@pytest.mark.rows("A97")
def test_a_worker_that_died_is_followed_by_one_that_reads_it_once(
    agent: VoiceAgent, memory: UserMemory, model: ScriptedModelServer
) -> None:
    call = agent.connect("ada")
    call.add("user", "I live in Pune.")
    call.close()
    dead = VoiceSession.objects.claim(call.id)
    learn()
    assert model.requests == []
    VoiceSession.objects.filter(pk=call.id).update(claim_expires_at=timezone.now() - timedelta(seconds=1))
    learn()
    learn()
    assert dead is not None
    assert not VoiceSession.objects.settle(call.id, dead)
    assert len(model.requests) == 1
    assert texts(memory) == ["Lives in Pune"]


@pytest.mark.rows("A96", "A97")
def test_a_model_that_fails_is_asked_again_later(
    agent: VoiceAgent, memory: UserMemory, model: ScriptedModelServer
) -> None:
    model.fail(500, model="text")
    with agent.connect("ada") as call:
        call.add("user", "I live in Pune.")
    learn()
    assert texts(memory) == []
    VoiceSession.objects.update(due_at=timezone.now() - timedelta(seconds=1))
    learn()
    assert texts(memory) == ["Lives in Pune"]
    assert len(model.requests) == 2


def test_nobody_speaks_in_a_session_that_is_over(agent: VoiceAgent) -> None:
    call = agent.connect("ada")
    call.add("user", "Hello")
    call.close()
    with pytest.raises(VoiceSessionClosedError):
        call.add("user", " again")
    assert messages(call) == [("user", "Hello")]


@pytest.mark.rows("A96")
def test_a_session_that_was_abandoned_is_closed_by_the_sweep_and_read(
    agent: VoiceAgent, memory: UserMemory, model: ScriptedModelServer, settings: Settings
) -> None:
    settings.MEMORYGW_VOICE_IDLE_SECONDS = 60
    abandoned, live = agent.connect("ada"), agent.connect("bob")
    for call in (abandoned, live):
        call.add("user", "I live in Pune.")
    sweep.sweep()
    assert model.requests == []
    VoiceSession.objects.filter(pk=abandoned.id).update(heard_at=timezone.now() - timedelta(seconds=61))
    sweep.sweep()
    sweep.sweep()
    assert (texts(memory), texts(memory, "bob"), len(model.requests)) == (["Lives in Pune"], [], 1)
    with pytest.raises(VoiceSessionClosedError):
        abandoned.add("user", "Still here!")
    live.add("user", " And you?")
    assert messages(abandoned) == [("user", "I live in Pune.")]


def test_what_was_said_is_kept_for_a_day_after_it_was_read(agent: VoiceAgent, model: ScriptedModelServer) -> None:
    model.fail(500, model="text")
    read, unread = agent.connect("ada"), agent.connect("ada")
    for call in (unread, read):
        call.add("user", "I live in Pune.")
        call.close()
        learn()
    VoiceSession.objects.update(closed_at=timezone.now() - timedelta(hours=25))
    sweep.keep_house()
    assert list(VoiceSession.objects.values_list("pk", flat=True)) == [unread.id]
    with pytest.raises(VoiceSessionNotFoundError):
        read.close()


# --- forgetting


def test_what_was_said_before_a_clear_is_not_learned_again(
    agent: VoiceAgent, memory: UserMemory, model: ScriptedModelServer
) -> None:
    call = agent.connect("ada")
    call.add("user", "before")
    memory.clear("ada")
    call.add("assistant", "after")
    call.close()
    learn()
    assert heard(model.requests[0]) == ["assistant: after"]
    over = agent.connect("ada")
    over.add("user", "closed before")
    over.close()
    memory.clear("ada")
    learn()
    assert (len(model.requests), texts(memory)) == (1, [])


def test_facts_that_are_cleared_while_the_model_reads_stay_cleared(
    agent: VoiceAgent, memory: UserMemory, model: ScriptedModelServer
) -> None:
    with agent.connect("ada") as call:
        call.add("user", "I live in Pune.")
    with ThreadPoolExecutor(1) as pool:
        with model.hold(model="text"):
            late = background(pool, learn)
            model.wait_for_requests(1, model="text")
            memory.clear("ada")
        late.result()
    learn()
    assert (len(model.requests), texts(memory)) == (1, [])


@pytest.mark.parametrize("reading", [True, False])
def test_of_a_person_who_is_erased_meanwhile_nothing_is_left(
    agent: VoiceAgent, memory: UserMemory, model: ScriptedModelServer, reading: bool
) -> None:
    call, other = agent.connect("ada"), agent.connect("bob")
    for session in (call, other):
        session.add("user", "I live in Pune.")
    if reading:
        call.close()
    with ThreadPoolExecutor(1) as pool:
        with model.hold(model="text"):
            late = background(pool, learn)
            if reading:
                model.wait_for_requests(1, model="text")
            receipt = gateway.forget_user(agent.owner, "ada")
        late.result()
    assert (receipt.counts["voice_sessions"], receipt.verified) == (1, True)
    learn()
    assert texts(memory) == []
    for refused in (call.close, lambda: call.add("user", "x")):
        with pytest.raises(VoiceSessionNotFoundError):
            refused()
    assert messages(other) == [("user", "I live in Pune.")]
