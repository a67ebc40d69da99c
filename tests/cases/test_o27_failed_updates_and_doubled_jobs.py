"""O27: updates that fail, jobs that run twice, an answer that is rolled back. Rules K4, K5, K18."""

import logging
from uuid import UUID, uuid4

import pytest
from celery import current_app
from django.db import IntegrityError
from pytest_django import Settings

from memorygw import gateway
from memorygw.models import Persona
from memorygw.testing import ScriptedModelServer
from tests.cases.steps import at_work, put
from tests.conftest import Api, extractions, learn, note_updates
from threads.models import Thread, Turn
from threads.turns import ThreadLike
from usermemory.models import ExtractionState, Fact, identity
from usermemory.store import UserMemoryStore
from usermemory.tasks import extract_facts
from workingmemory.models import WorkingMemoryState
from workingmemory.tasks import update_notes


@pytest.fixture(autouse=True)
def every_four(settings: Settings) -> None:
    settings.MEMORYGW_UPDATE_EVERY_TURNS = settings.MEMORYGW_RECENT_TURNS = 4
    settings.MEMORYGW_EXTRACT_EVERY_TURNS = 4


# --- notes


class Conversation:
    """A thread in which every turn, of either side, says its number."""

    def __init__(self, api: Api, model: ScriptedModelServer) -> None:
        self.api, self.model, self.count = api, model, 0
        self.id = api("POST", "/threads", {}).body["id"]

    def append(self, turns: int) -> None:
        roles = ("user", "assistant")
        drafts = [{"role": roles[n % 2], "content": f"turn-{self.count + n + 1}."} for n in range(turns)]
        assert self.api("POST", f"/threads/{self.id}/turns", {"turns": drafts}).status == 201
        self.count += turns

    def chat(self) -> tuple[str, list[str]]:
        """One more question, which must be answered; system message and texts of its request to the model."""
        self.model.reply(f"turn-{self.count + 2}.", model="main")
        assert self.api.ask(f"turn-{self.count + 1}.", self.id).status == 200
        self.count += 2
        request = self.model.requests_for("main")[-1]
        return request.system, [message["content"] for message in request.messages if message["role"] != "system"]

    @property
    def turns(self) -> list[str]:
        return [turn["content"] for turn in self.api("GET", f"/threads/{self.id}/turns").body["items"]]

    @property
    def notes(self) -> tuple[str, list[str], int]:
        memory = self.api("GET", f"/threads/{self.id}/memory").body
        return memory["summary"], memory["facts"], memory["turn_count"]


def numbered(first: int, last: int) -> list[str]:
    return [f"turn-{n}." for n in range(first, last + 1)]


def fail(model: ScriptedModelServer, fault: str) -> None:
    match fault:
        case "429" | "500":
            model.fail(int(fault), model="cheap")
        case "cut connection":
            model.disconnect(model="cheap", after_bytes=20)
        case "empty":
            model.reply("", model="cheap")


@pytest.mark.rows("W17", "W18", "W22", "W23", "W54", "W55", "W56")
def test_notes_survive_failing_updates_and_a_second_delivery_while_no_turn_is_lost(
    api: Api, model: ScriptedModelServer, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    settings.MEMORYGW_EXTRACTION_ENABLED = False
    talk = Conversation(api, model)
    talk.append(4)
    model.reply({"summary": "S1: plans", "facts": []}, model="cheap")
    learn()
    talk.append(4)
    assert talk.notes == ("S1: plans", [], 4)

    for fault in ("429", "500", "cut connection", "empty"):
        system, texts = talk.chat()
        assert "S1: plans" in system
        assert texts == numbered(5, talk.count - 1)
        attempts = len(note_updates(model))
        fail(model, fault)
        caplog.clear()
        with caplog.at_level(logging.WARNING, logger="workingmemory"):
            learn()
        assert (len(note_updates(model)), len(caplog.records)) == (attempts + 1, 1)
        assert talk.notes == ("S1: plans", [], 4)
        assert talk.turns == numbered(1, talk.count)

    system, texts = talk.chat()
    assert "S1: plans" in system
    assert texts == numbered(5, 17)
    model.reply('{"summary": "S2: trip to Bergen planned", "facts": []}', model="cheap")
    learn()
    assert talk.notes == ("S2: trip to Bergen planned", [], 18)
    last = note_updates(model)[-1].text
    assert "S1: plans" in last
    assert [n for n in range(1, 30) if f"turn-{n}." in last] == list(range(5, 19))

    before, calls = WorkingMemoryState.objects.values().get(), len(model.requests)
    update_notes(talk.id)
    assert (WorkingMemoryState.objects.values().get(), len(model.requests)) == (before, calls)

    system, texts = talk.chat()
    assert "S2: trip to Bergen planned" in system
    assert "S1: plans" not in system
    assert texts == numbered(15, 19)
    assert talk.turns == numbered(1, 20)


# --- extraction


@pytest.mark.rows("U108", "U109")
def test_an_extraction_delivered_twice_has_one_effect_and_new_turns_wait_for_the_next(
    transactional_db: None, api: Api, model: ScriptedModelServer
) -> None:
    model.reply({"operations": [put("city", "Turin")]}, model="cheap")
    thread_id = api.ask("I live in Turin.").body["thread_id"]
    with at_work(extract_facts, thread_id, model):
        extract_facts(thread_id)
        assert api.ask("I have a cat.", thread_id).status == 200
    learned = api("GET", "/facts").body
    assert api.facts() == {"city": "Turin"}
    extract_facts(thread_id)
    learn()
    assert api("GET", "/facts").body == learned
    texts = [request.text for request in extractions(model)]
    assert [("I live in Turin." in text, "I have a cat." in text) for text in texts] == [(True, False), (False, True)]


# --- an answer that is rolled back


class RefusesLast(UserMemoryStore):
    """Marks the extraction as due and then fails, in the transaction of the answer."""

    def note_answer(self, thread: ThreadLike, persona: Persona | None) -> UUID | None:
        super().note_answer(thread, persona)
        raise RuntimeError("The host's own store is broken.")


class FailsAtCommit(UserMemoryStore):
    """Writes what the database refuses only when the transaction ends: a fact from a thread that is none."""

    def note_answer(self, thread: ThreadLike, persona: Persona | None) -> UUID | None:
        where = {"tenant_id": Thread.objects.get(pk=thread.id).tenant_id, "owner_id": "ada"}
        Fact.objects.create(
            key="k", value="v", identity=identity("k"), origin="auto", source_thread_id=uuid4(), **where
        )
        return super().note_answer(thread, persona)


def wake_ups() -> list[str]:
    """The ids in the messages that are waiting on the broker, once there is one at least."""
    with current_app.connection_for_read() as broker, broker.SimpleQueue("celery") as queue:
        messages = [queue.get(timeout=10)]
        messages += [queue.get(block=False) for _ in range(queue.qsize())]
        for message in messages:
            message.ack()
    return [str(message.payload[0][0]) for message in messages]


@pytest.mark.rows("T8", "T86")
@pytest.mark.parametrize(("store", "error"), [("RefusesLast", RuntimeError), ("FailsAtCommit", IntegrityError)])
def test_an_answer_that_is_rolled_back_leaves_no_job_behind(
    transactional_db: None,
    model: ScriptedModelServer,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    store: str,
    error: type[Exception],
) -> None:
    monkeypatch.setenv("CELERY_BROKER_URL", "memory://localhost/")
    settings.MEMORYGW_USER_MEMORY_STORE = f"{__name__}.{store}"
    with pytest.raises(error):
        gateway.ask("default", "ada", "This one is lost.")
    lost = Thread.objects.get()
    assert not ExtractionState.objects.exists()
    assert not WorkingMemoryState.objects.exists()
    assert not Fact.objects.exists()
    assert list(Turn.objects.values_list("role", "content")) == [("user", "This one is lost.")]

    settings.MEMORYGW_USER_MEMORY_STORE = "usermemory.store.UserMemoryStore"
    extract_facts(str(lost.pk))
    update_notes(str(lost.pk))
    learn()
    assert model.requests_for("cheap") == []
    assert "DoesNotExist" not in caplog.text

    kept = gateway.ask("default", "ada", "This one is kept.").thread_id
    assert wake_ups() == [str(kept)]
    gateway.ask("default", "ada", "Once more.", thread_id=lost.pk)
    assert wake_ups() == [str(lost.pk)]
    learn()
    assert sorted("This one is lost." in request.text for request in extractions(model)) == [False, True]
