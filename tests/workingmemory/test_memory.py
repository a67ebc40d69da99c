"""Windows and notes of one thread, as asks and the late work behind them make them."""

from typing import Any

import pytest
from pytest_django import DjangoAssertNumQueries, Settings

from memorygw import gateway
from memorygw.models import ModelCall, Persona, Tenant
from memorygw.testing import ScriptedModelServer
from tests.conftest import learn, note_updates
from threads.models import Thread
from workingmemory.models import WorkingMemoryState


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
    # The thread with its persona, the facts, the notes, the window.
    with django_assert_num_queries(4):
        gateway.get_context(tenant.pk, "ada", thread_id)
    gateway.get_thread_memory(tenant, "ada", thread_id)
    empty = gateway.get_thread_memory(tenant, "ada", gateway.create_thread(tenant, "ada").pk)
    assert (empty.summary, empty.facts, empty.turn_count) == ("", [], 0)
    assert Thread.objects.values().get(pk=thread_id) == before
    assert len(model.requests) == calls
