"""Fragments of speech: how they become messages, whatever is in them and however many they are."""

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from pytest_django import Settings

from memorygw.agents import UserMemory, VoiceAgent
from memorygw.exceptions import InvalidError
from memorygw.models import Tenant
from memorygw.testing import ScriptedModelServer
from memorygw.text import one_line
from memorygw.voice import consolidate
from tests.agents.steps import heard, messages
from tests.conftest import background, learn

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def agent(tenant: Tenant, model: ScriptedModelServer) -> VoiceAgent:
    return VoiceAgent(name="Phone", model="text", user_memory=UserMemory(tenant=tenant))


@pytest.mark.rows("A93")
@pytest.mark.parametrize(
    ("fragments", "said"),
    [
        (["\ud83d", "\ude00"], "😀"), (["a\ud83d", "\ude00b"], "a😀b"), (["\ud83d", "", "\ude00"], "😀"),
        (["\ude00", "\ud83d"], "\ufffd\ufffd"), (["x\ud83d", "y"], "x\ufffdy"), (["\ud83d"], "\ufffd"),
        (["\ud83d\ud83d", "\ude00"], "\ufffd😀"), (["a\x00", "\x00b"], "ab"), (["e", "\u0301"], "e\u0301"),
        ([" a", " ", "b "], "a b"), (["a\n", "\nb"], "a\n\nb"), (["{{ x }}", "$&", "<b>"], "{{ x }}$&<b>"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("at_once", [True, False])
def test_fragments_are_joined_as_they_are_and_then_made_storable(
    agent: VoiceAgent, model: ScriptedModelServer, fragments: list[str], said: str, at_once: bool
) -> None:
    call = agent.connect("ada")
    for batch in [fragments] if at_once else [[fragment] for fragment in fragments]:
        call.add_all([("user", text) for text in batch])
    assert messages(call) == [("user", said)]
    learn()
    [request] = model.requests
    assert heard(request) == [f"user: {one_line(said)}"]


@pytest.mark.rows("A94", "A95")
def test_a_change_of_role_cuts_even_a_character_and_blank_messages_still_cut(agent: VoiceAgent) -> None:
    call = agent.connect("ada")
    call.add_all([("user", "\ud83d"), ("assistant", "x"), ("user", "\ude00"), ("assistant", " \x00"), ("user", "y")])
    assert messages(call) == [("user", "\ufffd"), ("assistant", "x"), ("user", "\ufffd"), ("user", "y")]


@pytest.mark.parametrize("role", ["system", "tool", "User", "", "user "])
def test_only_user_and_assistant_speak(agent: VoiceAgent, role: str) -> None:
    call = agent.connect("ada")
    with pytest.raises(InvalidError) as raised:
        call.add_all([("user", "fine"), (role, "I am the system.")])
    assert list(raised.value.fields or {}) == ["items[1].role"]
    assert messages(call) == []


@pytest.mark.rows("A94")
def test_what_many_threads_add_at_once_is_all_there(agent: VoiceAgent) -> None:
    call = agent.connect("ada")
    with ThreadPoolExecutor(8) as pool:
        for done in [background(pool, call.add, "user", f"<{n}>") for n in range(24)]:
            done.result()
    [(_, said)] = messages(call)
    assert sorted(said[1:-1].split("><"), key=int) == [str(n) for n in range(24)]


# --- a hundred thousand


class Counted:
    """Fragments that are counted as they are taken; their texts refuse to be added up one by one."""

    class Text(str):
        def __add__(self, other: Any) -> Any:
            raise AssertionError("Joining two by two takes quadratic time.")

        __radd__ = __add__

    def __init__(self, fragments: Iterable[tuple[str, str]]) -> None:
        self.fragments, self.taken = fragments, 0

    def __iter__(self) -> Iterator[tuple[str, str]]:
        for role, text in self.fragments:
            self.taken += 1
            yield role, self.Text(text)


@pytest.mark.rows("A92")
@pytest.mark.parametrize("turn", [1, 10, 100_000])
def test_consolidating_touches_each_fragment_once(turn: int) -> None:
    fragments = Counted((("user", "assistant")[n // turn % 2], "a ") for n in range(100_000))
    merged = consolidate(fragments)
    assert fragments.taken == 100_000
    assert len(merged) == 100_000 // turn
    assert sum(len(message["content"]) + 1 for message in merged) == 200_000


@pytest.mark.rows("A92", "A97")
def test_a_session_of_a_hundred_thousand_fragments_is_read_once_in_a_few_statements(
    agent: VoiceAgent, model: ScriptedModelServer
) -> None:
    statements = []
    for batches in (1, 10):
        call = agent.connect("ada")
        for _ in range(batches):
            call.add_all([(("user", "assistant")[n // 1_000 % 2], "a ") for n in range(10_000)])
        with CaptureQueriesContext(connection) as queries:
            assert len(call.close()) == 10 * batches
            learn()
        statements.append(len(queries))
    assert statements[1] <= statements[0]
    assert len(model.requests) == 2
    assert len(model.requests[-1].text) > 100_000
    with pytest.raises(InvalidError):
        agent.connect("ada").add_all([("user", "a")] * 10_001)


# --- too long, and no text at all


@pytest.mark.rows("A96")
def test_of_a_message_too_long_for_the_model_the_end_is_read(
    agent: VoiceAgent, model: ScriptedModelServer, settings: Settings
) -> None:
    settings.MEMORYGW_MODELS = {"text": {"context_window": 8_192, "output_reserve": 1_024}}
    with agent.connect("ada") as call:
        call.add_all([("user", f"word{n} ") for n in range(9_000)])
        call.add("user", "and I live in Pune.")
    learn()
    [request] = model.requests
    assert heard(request)[-1].endswith("and I live in Pune.")


@pytest.mark.parametrize("text", [None, 5, b"x", ["x"]])
def test_a_fragment_that_is_no_text_is_refused_and_does_no_harm(
    agent: VoiceAgent, model: ScriptedModelServer, text: Any
) -> None:
    call, other = agent.connect("ada"), agent.connect("bob")
    with pytest.raises((InvalidError, TypeError)):
        call.add_all([("user", "fine"), ("user", text)])
    for session in (call, other):
        session.add("user", "Hello")
        assert messages(session) == [("user", "Hello")]
    learn()
    assert len(model.requests) == 2
