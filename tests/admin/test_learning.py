"""What is learned late is seen by where it stands and had again by an editor, without a word of anybody."""

import re
from collections.abc import Mapping
from datetime import timedelta
from functools import partial
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Group
from django.utils import timezone
from pytest_django import Settings

from memorygw import gateway
from memorygw.claims import MAX_ATTEMPTS, LateWork
from memorygw.exceptions import InvalidError
from memorygw.ids import new_id
from memorygw.models import Tenant, VoiceBatch, VoiceSession
from memorygw.testing import ScriptedModelServer
from tests.admin.conftest import WORD, Operator, queries
from tests.cases.test_o27_failed_updates_and_doubled_jobs import wake_ups
from tests.conftest import extractions, learn
from tests.threads.test_plans import Reading, analyze, make_threads
from threads.models import TitleState
from usermemory.models import EmbeddingState, ExtractionState
from workingmemory.models import WorkingMemoryState

pytestmark = pytest.mark.django_db

States = type[LateWork]
LISTS: dict[States, str] = {
    ExtractionState: "memorygw_usermemory/extractionstate/",
    WorkingMemoryState: "memorygw_workingmemory/workingmemorystate/",
    TitleState: "memorygw_threads/titlestate/",
    EmbeddingState: "memorygw_usermemory/embeddingstate/",
    VoiceSession: "memorygw/voicesession/",
}
KINDS = pytest.mark.parametrize("states", LISTS, ids=lambda states: states.kind)


def ago(**time: float) -> Any:
    return timezone.now() - timedelta(**time)


def columns_of(name: str) -> dict[str, Any]:
    """A row as it is in each situation."""
    given: Mapping[str, dict[str, Any]] = {
        "due": {"due_at": ago(hours=2)},
        "running": {"due_at": ago(hours=3), "attempts": 1, "claim_token": uuid4(), "claim_expires_at": ago(hours=-1)},
        "left": {"due_at": ago(hours=1), "attempts": 1, "claim_token": uuid4(), "claim_expires_at": ago(minutes=1)},
        "failed": {"due_at": ago(hours=-1), "attempts": 3, "last_error": "timeout"},
        "given_up": {"attempts": MAX_ATTEMPTS, "last_error": "http_500"},
        "answered": {"last_error": "http_500"},
        "done": {},
    }
    return given[name]


def add(tenant: Tenant, states: States, user: str = "ada", **columns: Any) -> LateWork:
    if states is EmbeddingState:
        # One for each owner.
        whose: dict[str, Any] = {"tenant": tenant, "scope": "persona_user", "owner_id": str(new_id()), "user_id": user}
    elif states is VoiceSession:
        whose = {"tenant": tenant, "user_id": user}
    else:
        whose = {"thread": gateway.create_thread(tenant, user, title=f"On the {WORD}")}
    return states.objects.create(**whose, **columns)


def add_all(tenant: Tenant, states: States) -> dict[str, LateWork]:
    names = ("due", "running", "left", "failed", "given_up", "answered", "done")
    return {name: add(tenant, states, **columns_of(name)) for name in names}


def listed(editor: Operator, states: States, **query: str) -> list[str]:
    """The ids of the rows of a list, in its order."""
    return re.findall(r'name="_selected_action" value="([^"]+)"', editor.get(LISTS[states], **query))


# --- what is shown


@KINDS
def test_a_list_has_what_lags_and_by_its_filter_the_rest(editor: Operator, tenant: Tenant, states: States) -> None:
    rows = add_all(tenant, states)

    def shown(*names: str) -> list[str]:
        return [str(rows[name].pk) for name in names]

    lags = shown("running", "due", "left", "failed")
    assert listed(editor, states) == lags
    for nonsense in ("", "x"):
        assert listed(editor, states, state=nonsense) == lags
    assert listed(editor, states, state="failed") == shown("failed")
    assert listed(editor, states, state="running") == shown("running")
    assert listed(editor, states, state="given_up") == shown("given_up")
    assert listed(editor, states, state="all") == shown(*reversed(rows))


@KINDS
def test_a_row_says_whose_it_is_and_how_it_stands(viewer: Operator, tenant: Tenant, states: States) -> None:
    rows = add_all(tenant, states)
    html = viewer.get(LISTS[states], state="all")
    found = re.findall(r'<td class="field-state">(.*?)</td>', html)
    assert found == [
        "nothing to do",
        "nothing to do",
        "given up after 12 attempts",
        "waits for its time",
        "due",
        "running",
        "due",
    ]
    assert re.findall(r'<td class="field-tries">(.*?)</td>', html)[2:4] == ["12 of 12", "3 of 12"]
    assert [html.count(text) for text in (">acme<", ">ada<", ">timeout<", ">http_500<")] == [len(rows), len(rows), 1, 2]


@pytest.mark.parametrize("states", [ExtractionState, WorkingMemoryState])
def test_a_thread_is_a_link_with_how_many_turns_it_is_behind(viewer: Operator, tenant: Tenant, states: States) -> None:
    row = add(tenant, states, due_at=ago(hours=1), covered=3, answered=9)
    html = viewer.get(LISTS[states])
    assert f'<a href="/admin/memorygw_threads/thread/{row.pk}/change/">{row.pk}</a>' in html
    assert '<td class="field-behind">6</td>' in html


@KINDS
def test_above_it_stands_how_much_there_is(
    viewer: Operator, tenant: Tenant, states: States, settings: Settings
) -> None:
    settings.MEMORYGW_TITLES_ENABLED, settings.MEMORYGW_EMBEDDING_MODEL = True, "vectors"
    assert "0 due, 0 running, 0 waiting for their time.</p>" in viewer.get(LISTS[states])
    add_all(tenant, states)
    text = "2 due, 1 running, 1 waiting for their time. The oldest has been due for 2:00:"
    html = viewer.get(LISTS[states])
    assert text in html
    assert "This is switched off" not in html
    settings.MEMORYGW_TITLES_ENABLED = settings.MEMORYGW_EXTRACTION_ENABLED = False
    settings.MEMORYGW_WORKING_MEMORY_ENABLED, settings.MEMORYGW_EMBEDDING_MODEL = False, ""
    html = viewer.get(LISTS[states])
    assert text in html
    assert "This is switched off: nothing is worked on." in html


def test_no_word_is_shown_or_loaded(root: Operator, tenant: Tenant) -> None:
    for states in LISTS:
        add_all(tenant, states)
    WorkingMemoryState.objects.update(summary=f"The {WORD}.", facts=[WORD])
    VoiceBatch.objects.create(session=VoiceSession.objects.all()[0], seq=1, fragments=WORD)
    for states, path in LISTS.items():
        for state in ("", "all"):
            assert WORD not in root.get(path, state=state)
        asked = [sql for sql in queries(partial(root.get, path)) if states._meta.db_table in sql]
        assert asked
        for column in ('"summary"', '"facts"', '"title"', '"fragments"'):
            assert not [sql for sql in asked if column in sql]
        for lookup in ("summary__contains", "thread__title__contains", "thread__turns__content__contains"):
            root.get(path, 400, **{lookup: WORD})


@KINDS
def test_hostile_text_is_shown_as_text(viewer: Operator, tenant: Tenant, states: States) -> None:
    hostile = '"><script>alert(1)</script>{{ 7|add:7 }}'
    add(tenant, states, user=hostile, due_at=ago(hours=1), last_error=hostile)
    html = viewer.get(LISTS[states])
    assert "<script>alert" not in html
    assert ">14<" not in html
    assert html.count("&lt;script&gt;alert(1)") == 2


# --- who may do what


@KINDS
def test_nobody_changes_a_row_and_none_has_a_page(root: Operator, tenant: Tenant, states: States) -> None:
    row = add(tenant, states, **columns_of("due"))
    for place in ("add/", f"{row.pk}/change/", f"{row.pk}/delete/", f"{row.pk}/history/", f"{row.pk}/"):
        root.get(f"{LISTS[states]}{place}", 404)
        root.post(f"{LISTS[states]}{place}", 404, post="yes", attempts="1")
    root.try_to(LISTS[states], "delete_selected", row)
    row.refresh_from_db()
    assert row.attempts == 0


@KINDS
def test_only_an_editor_retries(viewer: Operator, reader: Operator, tenant: Tenant, states: States) -> None:
    row = add(tenant, states, **columns_of("given_up"))
    for operator in (viewer, reader):
        assert not listed(operator, states, state="given_up")
        operator.try_to(f"{LISTS[states]}?state=given_up", "retry", row)
    row.refresh_from_db()
    assert (row.due_at, row.attempts) == (None, MAX_ATTEMPTS)
    viewer.user.groups.set([Group.objects.get(name="memorygw editor")])
    viewer.act(f"{LISTS[states]}?state=given_up", "retry", [row])
    assert "1 due now." in viewer.messages(LISTS[states])
    row.refresh_from_db()
    assert row.due_at
    assert row.attempts == 0


# --- another try


@KINDS
def test_what_waits_is_due_and_what_runs_or_is_done_is_left_alone(
    editor: Operator, tenant: Tenant, states: States
) -> None:
    rows = add_all(tenant, states)
    unchosen = add(tenant, states, **columns_of("failed"))
    editor.act(f"{LISTS[states]}?state=all", "retry", list(rows.values()))
    message = editor.messages(LISTS[states])
    assert "4 due now." in message
    assert "3 not: being worked on, or done." in message
    due = states.objects.due()
    assert {row.pk for row in due} == {rows[name].pk for name in ("due", "left", "failed", "given_up")}
    assert set(due.values_list("attempts", flat=True)) == {0}
    for row in (rows["running"], rows["answered"], rows["done"], unchosen):
        before = (row.due_at, row.attempts, row.claim_token)
        row.refresh_from_db()
        assert (row.due_at, row.attempts, row.claim_token) == before
    entries = list(LogEntry.objects.values_list("object_id", "object_repr", "change_message"))
    assert entries == [(None, str(states._meta.verbose_name_plural), "Retried 4.")]


def test_what_was_given_up_is_learned_from_after_it(
    editor: Operator, tenant: Tenant, model: ScriptedModelServer, settings: Settings
) -> None:
    settings.MEMORYGW_EXTRACT_EVERY_TURNS = 2
    thread_id = gateway.ask(tenant, "ada", "I drink tea.").thread_id
    ExtractionState.objects.filter(pk=thread_id).update(due_at=None, attempts=MAX_ATTEMPTS, last_error="http_500")
    learn()
    assert not extractions(model)
    state = ExtractionState.objects.get(pk=thread_id)
    editor.act(f"{LISTS[ExtractionState]}?state=given_up", "retry", [state])
    learn()
    assert len(extractions(model)) == 1
    state.refresh_from_db()
    assert (state.covered, state.answered, state.last_error, state.due_at) == (2, 2, "", None)
    assert not listed(editor, ExtractionState, state="given_up")


def test_an_open_voice_session_is_not_learned_from_before_its_end(
    editor: Operator, tenant: Tenant, model: ScriptedModelServer
) -> None:
    model.defaults["cheap"] = lambda request: '["Drinks tea"]'
    session_id = gateway.open_voice_session(tenant, "ada").id
    gateway.add_voice_fragments(tenant, "ada", session_id, [("user", "I drink tea.")])
    path = f"{LISTS[VoiceSession]}?state=all"
    editor.act(path, "retry", [VoiceSession.objects.get(pk=session_id)])
    learn()
    assert not model.requests_for("cheap")
    gateway.close_voice_session(tenant, "ada", session_id)
    learn()
    editor.act(path, "retry", [VoiceSession.objects.get(pk=session_id)])
    learn()
    assert len(model.requests_for("cheap")) == 1
    assert [fact.value for fact in gateway.get_user_facts(tenant, "ada")] == ["Drinks tea"]


@pytest.mark.django_db(transaction=True)
def test_a_worker_is_woken_for_it(editor: Operator, tenant: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CELERY_BROKER_URL", "memory://localhost/")
    row = add(tenant, ExtractionState, **columns_of("failed"))
    editor.act(LISTS[ExtractionState], "retry", [row])
    assert wake_ups() == [str(row.pk)]


def test_a_kind_has_its_own_rows(tenant: Tenant) -> None:
    row = add(tenant, TitleState, **columns_of("given_up"))
    assert [gateway.retry_learning(kind, [row.pk]) for kind in ("extraction", "notes", "voice", "embedding")] == [0] * 4
    assert gateway.retry_learning("title", [new_id()]) == 0
    assert gateway.retry_learning("title", [row.pk]) == 1
    with pytest.raises(InvalidError):
        gateway.retry_learning("nothing", [row.pk])


# --- what it costs


@KINDS
def test_a_list_costs_the_same_whatever_there_is(editor: Operator, tenant: Tenant, states: States) -> None:
    add_all(tenant, states)
    few = len(queries(lambda: editor.get(LISTS[states], state="all")))
    for number in range(30):
        add(Tenant.objects.create(name=f"tenant {number}"), states, user=f"user {number}", **columns_of("due"))
    assert len(listed(editor, states)) == 34
    assert len(queries(lambda: editor.get(LISTS[states], state="all"))) == few <= 8


def test_what_has_nothing_to_do_is_not_read(editor: Operator, tenant: Tenant) -> None:
    names = ("due", "running", "failed", "given_up")
    threads = make_threads(tenant, 5_000, users=50)
    ExtractionState.objects.bulk_create(
        (
            ExtractionState(thread=thread, **columns_of(names[number // 3] if number < 12 else "done"))
            for number, thread in enumerate(threads)
        ),
        batch_size=1_000,
    )
    analyze()
    for state, found in {"": 9, "failed": 3, "running": 3, "given_up": 3}.items():
        with Reading() as reading:
            assert len(listed(editor, ExtractionState, state=state)) == found
        # PostgreSQL's index may still have the rows that earlier tests rolled back.
        reading.assert_reads_only(60, of=ExtractionState)
