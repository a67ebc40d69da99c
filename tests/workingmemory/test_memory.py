"""Windows and notes of one thread, as asks and the late work behind them make them."""

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries, Settings

from memorygw import gateway, sweep
from memorygw.api import urls
from memorygw.models import ModelCall, Persona, Tenant
from memorygw.testing import ScriptedModelServer
from tests.cases.steps import at_work
from tests.conftest import Api, extractions, learn, note_updates
from threads.models import Run, Thread, Turn
from threads.turns import TurnDraft
from workingmemory.memory import Notes, WorkingMemory
from workingmemory.models import WorkingMemoryState
from workingmemory.tasks import update_notes


@pytest.fixture(autouse=True)
def small(settings: Settings) -> None:
    """Notes every 4 turns, the last 4 turns in the window, and no extraction in the way."""
    settings.MEMORYGW_RECENT_TURNS = settings.MEMORYGW_UPDATE_EVERY_TURNS = 4
    settings.MEMORYGW_EXTRACTION_ENABLED = False


def talk(tenant: Tenant, asks: int, thread_id: Any = None, work: bool = True) -> Any:
    """So many asks ("q1", "q2", …), each followed by its background work."""
    for _ in range(asks):
        count = Thread.objects.get(pk=thread_id).turn_count if thread_id else 0
        thread_id = gateway.ask(tenant, "ada", f"q{count // 2 + 1}", thread_id=thread_id).thread_id
        if work:
            learn()
    return thread_id


def sent(model: ScriptedModelServer) -> list[str]:
    """The texts of the last chat request without its system message."""
    return [message["content"] for message in model.requests_for("main")[-1].messages if message["role"] != "system"]


def notes(model: ScriptedModelServer, summary: str, *facts: str) -> None:
    model.reply({"summary": summary, "facts": list(facts)}, model="cheap")


@pytest.mark.rows("W3", "W16", "W18", "W19", "W21", "W22", "W37", "W48", "W49", "W50")
def test_notes_are_rewritten_every_few_turns_and_enter_the_prompt(tenant: Tenant, model: ScriptedModelServer) -> None:
    notes(model, "S1", "F1")
    thread_id = talk(tenant, 1)
    assert note_updates(model) == []
    assert "About this conversation" not in model.requests_for("main")[0].system
    talk(tenant, 1, thread_id)
    [first] = note_updates(model)
    assert all(text in first.text for text in ("user: q1", "user: q2", "assistant: ok"))

    notes(model, "S2")
    talk(tenant, 2, thread_id)
    assert all(text in model.requests_for("main")[2].system for text in ("About this conversation", "S1", "- F1"))
    _, second = note_updates(model)
    assert all(text in second.text for text in ("S1", "F1", "user: q3", "user: q4"))
    assert "user: q2" not in second.text
    state = gateway.get_thread_memory(tenant, "ada", thread_id)
    assert (state.summary, state.facts, state.turn_count) == ("S2", [], 8)


@pytest.mark.rows("W17", "W23", "W31", "W33")
def test_no_turn_is_lost_between_notes_and_window(
    tenant: Tenant, model: ScriptedModelServer, settings: Settings
) -> None:
    settings.MEMORYGW_RECENT_TURNS, settings.MEMORYGW_UPDATE_EVERY_TURNS = 2, 6
    thread_id = talk(tenant, 3)
    assert sent(model) == ["q1", "ok", "q2", "ok", "q3"]
    talk(tenant, 1, thread_id)
    assert WorkingMemoryState.objects.get().covered == 6
    # The last two turns are the question and the answer before it, which brings its own question along.
    assert sent(model) == ["q3", "ok", "q4"]


@pytest.mark.rows("W43", "W44")
def test_notes_that_lag_behind_do_not_break_the_budget(
    tenant: Tenant, model: ScriptedModelServer, settings: Settings
) -> None:
    thread_id = talk(tenant, 8, work=False)
    settings.MEMORYGW_CONTEXT_WINDOW, settings.MEMORYGW_OUTPUT_RESERVE = 60, 10
    answer = gateway.ask(tenant, "ada", "q9", thread_id=thread_id)
    [warning] = answer.warnings
    assert warning.code == "turns_trimmed"
    assert sent(model)[-1] == "q9"
    assert len(sent(model)) + warning.count == 17
    assert model.requests_for("main")[-1].messages[0]["role"] == "user"


@pytest.mark.rows("W20", "W30", "W58", "W68", "W69", "W70", "W71", "W72", "W74")
def test_a_reset_forgets_the_notes_and_keeps_the_turns(tenant: Tenant, model: ScriptedModelServer) -> None:
    gateway.upsert_user_fact(tenant, "ada", "lang", "de")
    notes(model, "S1")
    thread_id = talk(tenant, 2)
    gateway.reset_thread_memory(tenant, "ada", thread_id)
    state = gateway.get_thread_memory(tenant, "ada", thread_id)
    assert (state.summary, state.facts, state.turn_count) == ("", [], 4)
    talk(tenant, 1, thread_id)
    assert sent(model) == ["q1", "ok", "q2", "ok", "q3"]
    assert "S1" not in model.requests_for("main")[-1].system
    assert len(note_updates(model)) == 1
    talk(tenant, 1, thread_id)
    assert "q2" not in note_updates(model)[-1].text
    assert "q3" in note_updates(model)[-1].text
    assert len(gateway.get_turns(tenant, "ada", thread_id)) == 8
    assert [fact.value for fact in gateway.get_user_facts(tenant, "ada")] == ["de"]


@pytest.mark.rows("W2", "W6", "W9", "W11", "W12", "W62", "W75", "W76")
def test_a_sliding_window_ignores_the_notes_and_a_switch_back_finds_them(
    tenant: Tenant, model: ScriptedModelServer, settings: Settings
) -> None:
    notes(model, "S1")
    thread_id = talk(tenant, 2)
    settings.MEMORYGW_WORKING_MEMORY = "SLIDING_WINDOW"
    talk(tenant, 3, thread_id)
    assert "S1" not in model.requests_for("main")[-1].system
    assert sent(model) == ["q1", "ok", "q2", "ok", "q3", "ok", "q4", "ok", "q5"]
    assert len(note_updates(model)) == 1
    assert gateway.get_thread_memory(tenant, "ada", thread_id).summary == "S1"

    settings.MEMORYGW_WORKING_MEMORY = "SUMMARY_BUFFER"
    notes(model, "S2")
    talk(tenant, 1, thread_id)
    assert "S1" in model.requests_for("main")[-1].system
    assert "q2" not in note_updates(model)[-1].text
    assert all(text in note_updates(model)[-1].text for text in ("q3", "q4", "q5", "q6"))


@pytest.mark.rows("W2", "W42", "W52")
def test_a_personas_strategy_and_helper_model_win(tenant: Tenant, model: ScriptedModelServer) -> None:
    Persona.objects.create(tenant=tenant, name="coach", working_memory="SLIDING_WINDOW")
    Persona.objects.create(tenant=tenant, name="guide", cheap_model="tiny")
    coached = gateway.create_thread(tenant, "ada", persona="coach")
    guided = gateway.create_thread(tenant, "ada", persona="guide")
    model.defaults["tiny"] = '{"summary": "S", "facts": []}'
    talk(tenant, 2, coached.pk)
    talk(tenant, 2, guided.pk)
    assert note_updates(model) == []
    assert len(model.requests_for("tiny")) == 1


@pytest.mark.rows("W9", "W40", "W41")
def test_a_sliding_window_holds_its_share_of_the_budget(
    tenant: Tenant, model: ScriptedModelServer, settings: Settings
) -> None:
    settings.MEMORYGW_WORKING_MEMORY = "SLIDING_WINDOW"
    settings.MEMORYGW_CONTEXT_WINDOW, settings.MEMORYGW_OUTPUT_RESERVE = 300, 100
    thread_id = talk(tenant, 30)
    whole = len(sent(model))
    settings.MEMORYGW_CHAT_HISTORY_RATIO = 0.2
    talk(tenant, 1, thread_id)
    share = len(sent(model))
    assert 1 < share < whole < 59
    settings.MEMORYGW_CHAT_HISTORY_RATIO, settings.MEMORYGW_OUTPUT_RESERVE = 0.7, 200
    talk(tenant, 1, thread_id)
    assert share < len(sent(model)) < whole


@pytest.mark.rows("W27", "W28", "W29", "W30")
def test_switched_off_the_window_is_the_20_newest_turns_without_notes(
    tenant: Tenant, model: ScriptedModelServer, settings: Settings
) -> None:
    notes(model, "S1")
    thread_id = talk(tenant, 2)
    settings.MEMORYGW_WORKING_MEMORY_ENABLED = False
    talk(tenant, 13, thread_id)
    # The question is one of the twenty; the nineteen before it open on the answer to q5, which brings q5 along.
    assert sent(model) == [text for n in range(5, 15) for text in (f"q{n}", "ok")] + ["q15"]
    assert "S1" not in model.requests_for("main")[-1].system
    assert len(note_updates(model)) == 1
    settings.MEMORYGW_WORKING_MEMORY_ENABLED = True
    talk(tenant, 1, thread_id)
    assert "S1" in model.requests_for("main")[-1].system


@pytest.mark.rows("W54", "W55", "W56", "W57")
@pytest.mark.parametrize("fault", ["429", "500", "cut connection", "empty", "prose", "wrong shape", "cut reply"])
def test_a_failed_update_leaves_the_notes_and_is_tried_again_after_the_next_answer(
    tenant: Tenant, model: ScriptedModelServer, fault: str
) -> None:
    notes(model, "S1", "F1")
    thread_id = talk(tenant, 3)
    match fault:
        case "429" | "500":
            model.fail(int(fault), model="cheap")
        case "cut connection":
            model.disconnect(model="cheap", after_bytes=20)
        case "empty":
            model.reply("", model="cheap")
        case "prose":
            model.reply("All quiet here.", model="cheap")
        case "wrong shape":
            model.reply({"summary": ["S2"], "facts": "none"}, model="cheap")
        case "cut reply":
            model.reply({"summary": "S2", "facts": []}, model="cheap", finish_reason="length")
    talk(tenant, 1, thread_id)
    state = WorkingMemoryState.objects.get()
    assert (state.summary, state.facts, state.covered, state.attempts) == ("S1", ["F1"], 4, 1)
    assert state.last_error
    assert state.due_at is not None

    notes(model, "S2")
    talk(tenant, 1, thread_id)
    state = WorkingMemoryState.objects.get()
    assert (state.summary, state.facts, state.covered, state.last_error) == ("S2", [], 10, "")


@pytest.mark.rows("W26")
def test_notes_are_bounded(tenant: Tenant, model: ScriptedModelServer, settings: Settings) -> None:
    settings.MEMORYGW_NOTES_MAX_CHARS = 100
    notes(model, "s" * 90, "f" * 10, "one too many")
    talk(tenant, 2)
    state = WorkingMemoryState.objects.get()
    assert (len(state.summary), state.facts) == (90, ["f" * 10])


@pytest.mark.rows("W53")
def test_helper_calls_are_recorded_by_kind(tenant: Tenant, model: ScriptedModelServer) -> None:
    talk(tenant, 2)
    kinds = sorted(ModelCall.objects.values_list("kind", "model", "outcome"))
    assert kinds == [("CHAT", "main", "ok")] * 2 + [("MEMORY_WORKING", "cheap", "ok")]


@pytest.mark.rows("W1", "W36", "W38", "W39", "W59", "W60", "W61", "W63", "W64")
def test_reading_calls_no_model_and_writes_nothing(
    tenant: Tenant, model: ScriptedModelServer, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    thread_id = talk(tenant, 2)
    before = Thread.objects.values().get()
    calls = len(model.requests)
    # The thread with its persona, whether memory is on, the facts, the notes, the window.
    with django_assert_num_queries(5):
        gateway.get_context(tenant.pk, "ada", thread_id)
    gateway.get_thread_memory(tenant, "ada", thread_id)
    empty = gateway.get_thread_memory(tenant, "ada", gateway.create_thread(tenant, "ada").pk)
    assert (empty.summary, empty.facts, empty.turn_count) == ("", [], 0)
    assert Thread.objects.values().get(pk=thread_id) == before
    assert len(model.requests) == calls


# --- what a save works from


@pytest.mark.rows("W47")
def test_one_save_brings_the_notes_up_to_date_however_far_they_lag(tenant: Tenant, model: ScriptedModelServer) -> None:
    thread_id = gateway.create_thread(tenant, "ada").pk
    drafts = [TurnDraft(role=("assistant", "user")[n % 2], content=f"said-{n}.") for n in range(1, 121)]
    for start in (0, 60):
        gateway.append_turns(tenant, "ada", thread_id, drafts[start : start + 60])
    assert gateway.get_thread_memory(tenant, "ada", thread_id).turn_count == 0
    for n in range(1, 4):
        notes(model, f"Summary {n}", f"Fact {n}")
    WorkingMemory().save_context(thread_id)
    state = gateway.get_thread_memory(tenant, "ada", thread_id)
    assert (state.summary, state.facts, state.turn_count) == ("Summary 3", ["Fact 3"], 120)
    texts = [request.text for request in note_updates(model)]
    read = [[int(n) for n in re.findall(r"said-(\d+)\.", text)] for text in texts]
    assert read == [list(range(1, 51)), list(range(51, 101)), list(range(101, 121))]
    assert ["Summary 1" in text for text in texts] == [False, True, False]


@pytest.mark.rows("W51")
def test_notes_are_written_of_turns_that_no_request_of_ours_made(tenant: Tenant, model: ScriptedModelServer) -> None:
    thread_id = gateway.create_thread(tenant, "ada").pk
    spoken = ["user: Which ferry?", "assistant: The one at nine.", "user: And back?", "assistant: At noon."]
    drafts = [TurnDraft(role=role, content=text) for role, text in (line.split(": ") for line in spoken)]
    gateway.append_turns(tenant, "ada", thread_id, drafts)
    notes(model, "Ferries.")
    learn()
    [update] = note_updates(model)
    assert re.findall(r"^\[\S+\] (.+)$", update.text, re.MULTILINE) == spoken
    assert gateway.get_thread_memory(tenant, "ada", thread_id).summary == "Ferries."
    assert (model.requests_for("main"), Run.objects.count()) == ([], 0)


@pytest.mark.rows("W51")
def test_an_answer_that_somebody_edited_is_noted_as_it_is_stored(tenant: Tenant, model: ScriptedModelServer) -> None:
    model.reply("The ferry leaves at nine.", model="main")
    thread_id = talk(tenant, 2, work=False)
    answer = Turn.objects.filter(thread_id=thread_id, content="The ferry leaves at nine.")
    assert answer.update(content="The ferry leaves at ten.") == 1
    learn()
    [update] = note_updates(model)
    assert "assistant: The ferry leaves at ten." in update.text
    assert "nine" not in update.text


# --- what a write does to what is stored


@pytest.mark.rows("T89")
@pytest.mark.parametrize("new", [("S2", "F3"), ("S2",), ("", "F3")])
def test_new_notes_replace_all_of_the_old_ones(
    tenant: Tenant, model: ScriptedModelServer, new: tuple[str, ...]
) -> None:
    notes(model, "Other", "F0")
    other = talk(tenant, 2)
    notes(model, "S1", "F1", "F2")
    thread_id = talk(tenant, 2)
    before = WorkingMemoryState.objects.get(thread_id=thread_id)
    assert (before.summary, before.facts, before.covered) == ("S1", ["F1", "F2"], 4)
    notes(model, *new)
    talk(tenant, 2, thread_id)
    after = WorkingMemoryState.objects.get(thread_id=thread_id)
    assert (after.summary, after.facts, after.covered) == (new[0], list(new[1:]), 8)
    assert before.updated_at < after.updated_at  # type: ignore[operator]
    kept = WorkingMemoryState.objects.get(thread_id=other)
    assert (kept.summary, kept.facts, kept.covered) == ("Other", ["F0"], 4)


@pytest.mark.rows("T90")
@pytest.mark.parametrize("write", ["save", "reset"])
def test_writing_the_notes_leaves_the_thread_as_it_was(tenant: Tenant, model: ScriptedModelServer, write: str) -> None:
    notes(model, "S1")
    thread_id = talk(tenant, 2)
    talk(tenant, 2, thread_id, work=False)
    Thread.objects.update(updated_at=timezone.now() - timedelta(hours=1))
    before = Thread.objects.values().get()
    if write == "save":
        notes(model, "S2")
        learn()
    else:
        gateway.reset_thread_memory(tenant, "ada", thread_id)
    state = gateway.get_thread_memory(tenant, "ada", thread_id)
    assert (state.summary, state.turn_count) == ("S2" if write == "save" else "", 8)
    assert Thread.objects.values().get() == before


@pytest.mark.rows("T91")
def test_notes_are_stored_and_given_as_copies(
    tenant: Tenant, model: ScriptedModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    handed_in = ["F1"]
    monkeypatch.setattr(WorkingMemory, "_rewrite", lambda *arguments: Notes("S1", handed_in, arguments[-1]))
    thread_id = talk(tenant, 2)
    before = WorkingMemoryState.objects.values().get()
    assert (before["summary"], before["facts"], before["covered"]) == ("S1", ["F1"], 4)
    given = gateway.get_thread_memory(tenant, "ada", thread_id)
    given.summary = "forged"
    for facts in (handed_in, given.facts, WorkingMemory().get_notes(thread_id).facts):
        facts.append("forged")  # type: ignore[union-attr]
    assert WorkingMemoryState.objects.values().get() == before
    talk(tenant, 1, thread_id, work=False)
    assert "- F1" in model.requests_for("main")[-1].system
    assert "forged" not in model.requests_for("main")[-1].system


# Taking the notes away is theirs.
REMOVERS = {"reset_memory", "destroy", "delete_many", "forget", "forget_by_query"}


def endpoints(**ids: str) -> Iterator[tuple[str, str, str]]:
    """Action, method and path of every endpoint that is no remover; of an id that is not given, one of nothing."""
    for pattern in urls.api:
        path = re.sub(r"<\w+:(\w+)>", lambda part: ids.get(part[1], str(uuid4())), str(pattern.pattern))
        for method, action in list(getattr(pattern.callback, "actions", {}).items()):
            if method != "head" and action not in REMOVERS:
                yield action, method.upper(), f"/{path}"


@pytest.mark.rows("T92", "T5")
def test_nothing_writes_the_notes_but_a_save_and_a_reset(
    api: Api, tenant: Tenant, model: ScriptedModelServer, settings: Settings
) -> None:
    settings.MEMORYGW_EXTRACTION_ENABLED = settings.MEMORYGW_TITLES_ENABLED = True
    thread_id = talk(tenant, 2, work=False)
    ids = {"thread_id": str(thread_id), "run_id": str(Run.objects.first().pk), "key": "city", "user_id": "ada"}  # type: ignore[union-attr]

    def written() -> tuple[Any, ...]:
        return WorkingMemoryState.objects.values_list("summary", "facts", "covered", "updated_at").get(pk=thread_id)

    notes(model, "S1", "F1")
    update_notes(str(thread_id))
    before = written()
    assert before[:3] == ("S1", ["F1"], 4)
    forged = {"summary": "forged", "facts": ["forged"], "notes": "forged", "covered": 1, "turn_count": 1}
    wanted = {
        "title": "Plans", "content": "Hello", "turns": [{"role": "assistant", "content": "Hi"}], "value": "Turin",
        "token": str(uuid4()), "key": "city",
    }  # fmt: skip
    statuses = {}
    for action, method, path in endpoints(**ids):
        statuses[action] = api(method, path, wanted | forged | {"memory": forged, "state": forged}).status
        assert written() == before, action
        Thread.objects.update(lease_token=None, lease_expires_at=None)
    served = {action for action, status in statuses.items() if status < 300}
    assert served >= {"partial_update", "append_turns", "acquire_lease", "release_lease", "context", "memory", "ask"}

    for learner in sweep.LEARNERS:
        if learner.states is not WorkingMemoryState:
            learner.task(str(thread_id))
    assert extractions(model)
    assert written() == before

    talk(tenant, 1, thread_id, work=False)
    notes(model, "S2")
    update_notes(str(thread_id))
    assert written()[0] == "S2"
    gateway.reset_thread_memory(tenant, "ada", thread_id)
    assert written()[0] == ""


@pytest.mark.rows("T93")
@pytest.mark.parametrize("gone", ["deleted", "marked as deleted", "another user's", "another tenant's"])
def test_notes_of_a_thread_that_went_away_meanwhile_are_not_stored_and_hurt_nobody(
    transactional_db: None, model: ScriptedModelServer, gone: str
) -> None:
    tenant, globex = Tenant.objects.get(name="default"), Tenant.objects.create(name="globex")
    thread_id, kept = talk(tenant, 2, work=False), talk(tenant, 2, work=False)
    row = Thread.objects.filter(pk=thread_id)
    notes(model, "Too late.")
    with at_work(update_notes, str(thread_id), model):
        match gone:
            case "deleted":
                assert gateway.delete_threads(tenant, "ada", [thread_id]).threads == 1
            case "marked as deleted":
                row.update(deleted_at=timezone.now())
            case "another user's":
                row.update(user_id="bob")
            case "another tenant's":
                row.update(tenant=globex)
    notes(model, "In time.")
    learn()
    states = WorkingMemoryState.objects.exclude(summary="", covered=0)
    assert [(state.thread_id, state.summary) for state in states] == [(kept, "In time.")]
    assert gateway.ask(tenant, "ada", "Hello", thread_id=kept).answer.content == "ok"


@pytest.mark.rows("T93")
def test_saving_notes_of_a_thread_that_never_was_does_nothing(tenant: Tenant, model: ScriptedModelServer) -> None:
    thread_id = talk(tenant, 2)
    before, calls = list(WorkingMemoryState.objects.values()), len(model.requests)
    assert [state["thread_id"] for state in before] == [thread_id]
    WorkingMemory().save_context(uuid4())
    assert (list(WorkingMemoryState.objects.values()), len(model.requests)) == (before, calls)
