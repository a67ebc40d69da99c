"""Threads, turns, leases and windows, as the store keeps them."""

import re
from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import IntegrityError, connection, transaction
from django.db.models import ForeignObjectRel
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries, Settings

from memorygw import gateway
from memorygw.exceptions import (
    InvalidError,
    LeaseLostError,
    ThreadAwaitingHumanError,
    ThreadBusyError,
    ThreadClosedError,
    ThreadNotFoundError,
)
from memorygw.models import Tenant
from memorygw.testing import ScriptedModelServer
from tests.conftest import extractions, learn
from threads.models import Thread, Turn
from threads.store import Counts, ThreadStore
from threads.turns import TurnDraft
from usermemory.models import ExtractionState, Fact

store = ThreadStore()


def make(tenant: Tenant, user: str = "ada", **values: Any) -> Thread:
    return store.create_thread(tenant.pk, user, **values)


def say(thread: Thread, *roles_and_texts: str) -> list[Turn]:
    """Append turns given as "u: text" or "a: text", under a lease of their own."""
    roles = {"u": "user", "a": "assistant", "s": "system", "t": "tool"}
    drafts = [TurnDraft(role=roles[text[0]], content=text[3:]) for text in roles_and_texts]
    token = store.acquire_lease(thread.tenant_id, thread.pk, user_id=thread.user_id)
    return store.append_turns(thread, drafts, token=token, lease="release")


def expire(thread: Thread) -> None:
    Thread.objects.filter(pk=thread.pk).update(lease_expires_at=timezone.now() - timedelta(seconds=1))


# --- threads


@pytest.mark.rows("T16", "T17", "T18", "T20", "T21", "T22")
def test_a_new_thread_is_open_and_empty(tenant: Tenant) -> None:
    thread = store.get_thread(tenant.pk, make(tenant).pk)
    assert (thread.status, thread.turn_count, thread.title, thread.lease_token) == ("OPEN", 0, "", None)
    assert make(tenant, title="Plans").title == "Plans"
    assert thread.pk.version == 7


@pytest.mark.rows("T11", "T13", "T26", "T27", "T28", "T29", "T30", "T32", "T64", "T65")
def test_missing_deleted_and_foreign_threads_are_the_same_error(tenant: Tenant, other_tenant: Tenant) -> None:
    deleted, foreign, mine = make(tenant), make(other_tenant), make(tenant)
    Thread.objects.filter(pk=deleted.pk).update(deleted_at=timezone.now())
    for pk in (uuid4(), deleted.pk, foreign.pk):
        assert store.find_thread(tenant.pk, pk) is None
        for call in (store.get_thread, store.get_turns):
            with pytest.raises(ThreadNotFoundError):
                call(tenant.pk, pk)
        with pytest.raises(ThreadNotFoundError):
            store.acquire_lease(tenant.pk, pk, user_id="ada")
        with pytest.raises(ThreadNotFoundError):
            store.append_turns(Thread(pk=pk, tenant=tenant), [TurnDraft(role="user", content="x")], token=uuid4())
    with pytest.raises(ThreadNotFoundError):
        store.get_thread(tenant.pk, mine.pk, user_id="bob")
    assert store.get_thread(tenant.pk, mine.pk, user_id="ada").pk == mine.pk


@pytest.mark.rows("T31")
def test_a_thread_that_was_given_is_a_copy(tenant: Tenant) -> None:
    made = make(tenant, title="Plans")
    say(made, "u: hello")
    [listed] = store.list_threads(tenant.pk, "ada", limit=1).items
    found = store.find_thread(tenant.pk, made.pk)
    assert found is not None
    before = Thread.objects.values().get()
    for copy in (made, store.get_thread(tenant.pk, made.pk), found, listed):
        copy.title, copy.user_id, copy.status = "Changed", "bob", Thread.Status.CLOSED
        copy.turn_count += 7
    assert Thread.objects.values().get() == before


@pytest.mark.rows("T31")
def test_writing_with_a_changed_copy_writes_none_of_its_changes(tenant: Tenant) -> None:
    made = make(tenant, title="Plans")
    copy = store.get_thread(tenant.pk, made.pk)
    copy.title, copy.user_id, copy.status = "Changed", "bob", Thread.Status.CLOSED
    copy.token_count, copy.instructions_seq = 999, 7
    token = store.acquire_lease(tenant.pk, made.pk, user_id="ada")
    [turn] = store.append_turns(copy, [TurnDraft(role="user", content="hello")], token=token)
    thread = store.get_thread(tenant.pk, made.pk)
    assert (thread.title, thread.user_id, thread.status, thread.turn_count) == ("Plans", "ada", "OPEN", 1)
    assert (thread.token_count, thread.instructions_seq) == (turn.token_count, None)


@pytest.mark.rows("T35")
def test_a_thread_has_one_of_three_states(tenant: Tenant) -> None:
    thread = make(tenant)
    assert thread.status == "OPEN"
    for status in ("AWAITING_HUMAN", "CLOSED", "OPEN"):
        Thread.objects.update(status=status)
    with pytest.raises(IntegrityError), transaction.atomic():
        Thread.objects.update(status="WAITING")
    assert store.get_thread(tenant.pk, thread.pk).status == "OPEN"


def test_a_read_without_tenant_or_user_fails_closed(tenant: Tenant) -> None:
    make(tenant)
    with pytest.raises(ValueError, match="tenant"):
        Thread.objects.live(None)
    with pytest.raises(ValueError, match="user"):
        Thread.objects.of_user(tenant.pk, "")


@pytest.mark.rows("T37", "T38", "T39", "T40", "T41", "T42", "T44", "T50", "T52")
def test_pages_are_adjacent_in_both_directions(tenant: Tenant, other_tenant: Tenant) -> None:
    threads = [make(tenant) for _ in range(5)]
    make(tenant, "bob"), make(other_tenant)
    Thread.objects.filter(pk=make(tenant).pk).update(deleted_at=timezone.now())
    newest_first = [thread.pk for thread in reversed(threads)]

    def page(**cursor: UUID) -> tuple[list[UUID], bool]:
        found = store.list_threads(tenant.pk, "ada", limit=2, **cursor)
        return [thread.pk for thread in found.items], found.has_more

    assert page() == (newest_first[:2], True)
    assert page(ending_before=newest_first[1]) == (newest_first[2:4], True)
    assert page(ending_before=newest_first[3]) == (newest_first[4:], False)
    assert page(starting_after=newest_first[4]) == (newest_first[2:4], True)
    assert page(starting_after=newest_first[2]) == (newest_first[:2], False)


@pytest.mark.rows("T43")
def test_equal_creation_times_lose_no_thread(tenant: Tenant) -> None:
    threads = [make(tenant) for _ in range(7)]
    Thread.objects.update(created_at=datetime(2026, 1, 1, tzinfo=UTC))
    seen: list[UUID] = []
    cursor = None
    while True:
        page = store.list_threads(tenant.pk, "ada", limit=3, ending_before=cursor)
        seen += [thread.pk for thread in page.items]
        if not page.has_more:
            break
        cursor = seen[-1]
    assert sorted(seen) == sorted(thread.pk for thread in threads)


@pytest.mark.rows("T45", "T46", "T47", "T48")
def test_impossible_pages_are_refused(tenant: Tenant) -> None:
    mine, theirs = make(tenant), make(tenant, "bob")
    for limit in (0, 201, -1):
        with pytest.raises(InvalidError):
            store.list_threads(tenant.pk, "ada", limit=limit)
    assert len(store.list_threads(tenant.pk, "ada", limit=200).items) == 1
    with pytest.raises(InvalidError):
        store.list_threads(tenant.pk, "ada", limit=1, starting_after=mine.pk, ending_before=mine.pk)
    for cursor in (theirs.pk, uuid4()):
        with pytest.raises(ThreadNotFoundError):
            store.list_threads(tenant.pk, "ada", limit=1, ending_before=cursor)


@pytest.mark.rows("T51", "T66", "T67", "T68", "T73")
def test_renaming_moves_the_time_of_change_and_nothing_else(tenant: Tenant) -> None:
    first, second = make(tenant), make(tenant)
    Thread.objects.update(updated_at=timezone.now() - timedelta(hours=1))
    renamed = store.rename_thread(tenant.pk, first.pk, "Plans", user_id="ada")
    assert (renamed.title, renamed.status) == ("Plans", "OPEN")
    assert timezone.now() - renamed.updated_at < timedelta(minutes=1)
    assert [thread.pk for thread in store.list_threads(tenant.pk, "ada", limit=5).items] == [second.pk, first.pk]


@pytest.mark.rows("T53", "T54", "T94", "T95", "T96", "T97", "T98", "T102")
def test_deleting_takes_what_is_the_users_and_ignores_the_rest(tenant: Tenant, other_tenant: Tenant) -> None:
    mine, second = make(tenant), make(tenant)
    survivors = [make(tenant, "bob"), make(other_tenant)]
    say(mine, "u: hello", "a: hi")
    say(second, "u: again")
    assert store.list_thread_ids(tenant.pk, user_id="ada") == sorted([mine.pk, second.pk])

    assert store.delete(tenant.pk, [], user_id="ada") == Counts(0, 0, 0)
    wanted = [mine.pk, survivors[0].pk, survivors[1].pk, uuid4()]
    assert store.delete(tenant.pk, wanted, user_id="ada") == Counts(1, 2, 0)
    assert store.delete(tenant.pk, "all", user_id="ada") == Counts(1, 1, 0)
    assert set(Thread.objects.all()) == set(survivors)
    assert Turn.objects.count() == 0


def left_of(ids: Collection[UUID]) -> dict[str, int]:
    """Rows of these threads, by table: their own and, of every table that belongs to threads, what hangs on them."""
    counts = {"Thread": Thread._base_manager.filter(pk__in=ids).count()}
    for relation in Thread._meta.get_fields(include_hidden=True):
        if isinstance(relation, ForeignObjectRel):
            rows = relation.related_model._base_manager.filter(**{f"{relation.field.name}__in": ids})
            counts[relation.related_model.__name__] = rows.count()
    return counts


@pytest.mark.rows("T10")
def test_many_threads_go_at_once_and_no_row_of_theirs_stays(
    tenant: Tenant, model: ScriptedModelServer, settings: Settings
) -> None:
    settings.MEMORYGW_TITLES_ENABLED = True
    settings.MEMORYGW_UPDATE_EVERY_TURNS = 2
    *doomed, survivor = (gateway.ask(tenant, "ada", f"Hello {n}").thread_id for n in range(11))
    with_facts = {"operations": [{"op": "SET", "key": "city", "value": "Turin"}]}
    model.defaults["cheap"] = lambda request: (
        with_facts if '"operations"' in request.text else {"summary": "S", "facts": []}
    )
    learn()
    Fact.objects.update(source_thread=doomed[0])
    each = {"Thread": 1, "Turn": 2, "Run": 1, "TitleState": 1, "ExtractionState": 1, "WorkingMemoryState": 1}
    stored = left_of(doomed)
    assert stored == stored | {name: 10 * count for name, count in each.items()} | {"Fact": 1}
    kept = left_of([survivor])
    assert kept == kept | each

    assert store.delete(tenant.pk, doomed, user_id="ada") == Counts(10, 20, 10)
    assert left_of(doomed) == dict.fromkeys(stored, 0)
    assert left_of([survivor]) == kept
    assert Fact.objects.get().source_thread is None


@pytest.mark.rows("T100", "T101")
def test_a_busy_thread_stops_the_whole_deletion(tenant: Tenant) -> None:
    busy, idle = make(tenant), make(tenant)
    store.acquire_lease(tenant.pk, busy.pk, user_id="ada")
    with pytest.raises(ThreadBusyError) as error:
        store.delete(tenant.pk, "all", user_id="ada")
    assert error.value.details == {"thread_ids": [busy.pk]}
    assert set(Thread.objects.all()) == {busy, idle}


# --- the lease


@pytest.mark.rows("T76", "T77", "T79", "T84", "T87")
def test_a_lease_lets_one_call_in(tenant: Tenant) -> None:
    thread, other = make(tenant), make(tenant)
    token = store.acquire_lease(tenant.pk, thread.pk, user_id="ada")
    with pytest.raises(ThreadBusyError):
        store.acquire_lease(tenant.pk, thread.pk, user_id="ada")
    store.acquire_lease(tenant.pk, other.pk, user_id="ada")
    store.release_lease(tenant.pk, thread.pk, token)
    store.acquire_lease(tenant.pk, thread.pk, user_id="ada")


@pytest.mark.rows("T81", "T82", "T85")
def test_a_call_that_overran_writes_until_another_took_over_and_frees_nothing_of_it(tenant: Tenant) -> None:
    thread = make(tenant)
    late = store.acquire_lease(tenant.pk, thread.pk, user_id="ada")
    expire(thread)
    store.append_turns(thread, [TurnDraft(role="user", content="still mine")], token=late)

    store.acquire_lease(tenant.pk, thread.pk, user_id="ada")
    with pytest.raises(LeaseLostError):
        store.append_turns(thread, [TurnDraft(role="assistant", content="too late")], token=late)
    store.release_lease(tenant.pk, thread.pk, late)
    with pytest.raises(ThreadBusyError):
        store.acquire_lease(tenant.pk, thread.pk, user_id="ada")
    assert [turn.content for turn in store.get_turns(tenant.pk, thread.pk)] == ["still mine"]


@pytest.mark.rows("T33", "T115", "T120")
@pytest.mark.parametrize(
    ("status", "error"), [("AWAITING_HUMAN", ThreadAwaitingHumanError), ("CLOSED", ThreadClosedError)]
)
def test_a_thread_that_is_not_open_gives_no_lease(tenant: Tenant, status: str, error: type[Exception]) -> None:
    thread = make(tenant)
    Thread.objects.filter(pk=thread.pk).update(status=status)
    with pytest.raises(error):
        store.acquire_lease(tenant.pk, thread.pk, user_id="ada")


# --- turns


@pytest.mark.rows("T14", "T55", "T56", "T57", "T60", "T62", "W4")
def test_turns_are_numbered_without_gaps_and_come_back_as_they_were_said(tenant: Tenant) -> None:
    thread = make(tenant)
    before = thread.updated_at
    parts: list[dict[str, Any]] = [
        {"type": "text", "text": "  look  \n"},
        {"type": "image_url", "image_url": {"url": "data:,x"}},
    ]
    token = store.acquire_lease(tenant.pk, thread.pk, user_id="ada")
    store.append_turns(thread, [TurnDraft(role="user", content=parts)], token=token, lease="release")
    say(thread, "a: one", "u:  two \n")
    turns = store.get_turns(tenant.pk, thread.pk, user_id="ada")
    assert [(turn.seq, turn.role) for turn in turns] == [(1, "user"), (2, "assistant"), (3, "user")]
    assert [turn.content for turn in turns] == [parts, "one", " two \n"]
    thread = store.get_thread(tenant.pk, thread.pk)
    assert thread.turn_count == 3
    assert thread.updated_at >= before
    assert [turn.seq for turn in store.get_last_turns(tenant.pk, thread.pk, 2)] == [2, 3]


@pytest.mark.rows("T31")
def test_turns_that_were_given_and_taken_are_copies(tenant: Tenant) -> None:
    thread, parts, metadata = make(tenant), [{"type": "text", "text": "look"}], {"page": [1]}
    token = store.acquire_lease(tenant.pk, thread.pk, user_id="ada")
    draft = TurnDraft(role="user", content=parts, metadata=metadata)
    [appended] = store.append_turns(thread, [draft], token=token)
    before = Turn.objects.values().get()
    assert (before["content"], before["metadata"]) == ([{"type": "text", "text": "look"}], {"page": [1]})
    for turn in (appended, *store.get_turns(tenant.pk, thread.pk), *store.get_last_turns(tenant.pk, thread.pk, 1)):
        turn.role = Turn.Role.ASSISTANT
        turn.content[0]["text"] = "changed"
        turn.metadata["page"].append(2)
    parts.clear()
    metadata.clear()
    assert Turn.objects.values().get() == before


@pytest.mark.rows("T61")
def test_the_newest_turns_are_what_a_call_has_stored(tenant: Tenant, model: ScriptedModelServer) -> None:
    thread_id = gateway.ask(tenant, "ada", "first").thread_id
    before = store.get_thread(tenant.pk, thread_id).turn_count
    answer = gateway.ask(tenant, "ada", "second", thread_id=thread_id)
    stored = store.get_thread(tenant.pk, thread_id).turn_count - before
    newest = store.get_last_turns(tenant.pk, thread_id, stored)
    assert newest == answer.turns
    assert [turn.content for turn in newest] == ["second", "ok"]


@pytest.mark.rows("T61")
def test_the_newest_turns_are_what_no_extraction_has_read(
    tenant: Tenant, model: ScriptedModelServer, settings: Settings
) -> None:
    settings.MEMORYGW_EXTRACT_EVERY_TURNS = 6
    thread_id = gateway.ask(tenant, "ada", "said-1.").thread_id
    learn()
    for n in (2, 3):
        gateway.ask(tenant, "ada", f"said-{n}.", thread_id=thread_id)
    unread = store.get_thread(tenant.pk, thread_id).turn_count - ExtractionState.objects.get().covered
    newest = store.get_last_turns(tenant.pk, thread_id, unread)
    assert [turn.content for turn in newest] == ["said-2.", "ok", "said-3.", "ok"]
    learn()
    _, request = extractions(model)
    said = re.findall(r"^\[\S+\] \w+: (.*)$", request.text, re.MULTILINE)
    assert said == [turn.content for turn in newest]


@pytest.mark.rows("T60")
def test_the_newest_turns_are_never_more_than_there_are(tenant: Tenant) -> None:
    thread = make(tenant)
    say(thread, "u: one", "a: two")
    wanted = {limit: [turn.seq for turn in store.get_last_turns(tenant.pk, thread.pk, limit)] for limit in (0, 1, 3)}
    assert wanted == {0: [], 1: [2], 3: [1, 2]}


def test_a_client_may_say_when_a_turn_was_said(tenant: Tenant) -> None:
    thread, said = make(tenant), datetime(2023, 5, 24, 23, 30, tzinfo=UTC)
    token = store.acquire_lease(tenant.pk, thread.pk, user_id="ada")
    draft = TurnDraft(role="user", content="x", created_at=said)
    store.append_turns(thread, [draft], token=token)
    [turn] = store.get_turns(tenant.pk, thread.pk)
    assert turn.created_at == said
    assert timezone.now() - turn.stored_at < timedelta(minutes=1)


def test_appending_costs_the_same_at_any_length(
    tenant: Tenant,
    django_assert_num_queries: DjangoAssertNumQueries,
    django_assert_max_num_queries: DjangoAssertNumQueries,
) -> None:
    for length in (1, 60):
        thread = make(tenant)
        say(thread, *["u: x"] * length)
        token = store.acquire_lease(tenant.pk, thread.pk, user_id="ada")
        drafts = [TurnDraft(role="user", content="x")] * 100
        # The thread's counters moved, the turns inserted.
        with django_assert_num_queries(2):
            store.append_turns(thread, drafts[:1], token=token)
        # The same for a hundred, but an older SQLite takes fewer values per statement, so there they are three.
        with django_assert_max_num_queries(2 if connection.vendor == "postgresql" else 4):
            store.append_turns(thread, drafts, token=token)


# --- windows


def window(thread: Thread, budget: int = 10**6, **options: Any) -> list[int]:
    fresh = store.get_thread(thread.tenant_id, thread.pk)
    return [turn.seq for turn in store.get_window(fresh, budget_tokens=budget, **options)]


def cost(thread: Thread, first: int, last: int) -> int:
    turns = Turn.objects.filter(thread=thread, seq__gte=first, seq__lte=last)
    return sum(turn.token_count for turn in turns)


@pytest.fixture
def talk(tenant: Tenant) -> Thread:
    """1 user, 2 assistant, 3 user, 4 assistant, 5 assistant, 6 user, 7 assistant; costs differ."""
    thread = make(tenant)
    say(thread, "u: one two", "a: three", "u: four five six", "a: seven", "a: eight nine", "u: ten", "a: eleven twelve")
    return thread


@pytest.mark.rows("W9", "W13", "W31")
def test_a_window_is_the_newest_run_that_fits_and_opens_on_a_user_turn(talk: Thread) -> None:
    assert window(talk) == [1, 2, 3, 4, 5, 6, 7]
    assert window(talk, cost(talk, 3, 7)) == [3, 4, 5, 6, 7]
    assert window(talk, cost(talk, 3, 7) - 1) == [6, 7]
    assert window(talk, cost(talk, 2, 7)) == [3, 4, 5, 6, 7]
    assert window(talk, cost(talk, 6, 7)) == [6, 7]


@pytest.mark.rows("W14", "W34")
def test_the_newest_user_group_is_whole_whatever_the_budget(talk: Thread) -> None:
    assert window(talk, 0) == [6, 7]
    assert window(talk, 0, keep_newest=False) == []
    say(talk, "a: more", "a: and more")
    assert window(talk, 1) == [6, 7, 8, 9]


@pytest.mark.rows("W17", "W34")
def test_a_first_turn_inside_a_group_reaches_back_to_its_user_turn(talk: Thread) -> None:
    assert window(talk, from_seq=5) == [3, 4, 5, 6, 7]
    assert window(talk, from_seq=6) == [6, 7]
    assert window(talk, from_seq=7) == [6, 7]


@pytest.mark.rows("W34")
def test_a_group_of_very_many_turns_is_reached_back_to_its_opening(tenant: Tenant) -> None:
    thread = make(tenant)
    say(thread, "u: one", "a: two", "u: three", *["a: step"] * 40)
    assert window(thread, from_seq=40) == list(range(3, 44))
    assert window(thread, budget=cost(thread, 10, 43), from_seq=40) == list(range(3, 44))
    assert window(thread, budget=cost(thread, 10, 43), from_seq=40, keep_newest=False) == []
    say(thread, "u: four")
    assert window(thread, from_seq=42) == list(range(3, 45))
    assert window(thread, budget=cost(thread, 10, 44), from_seq=42) == [44]


def test_without_a_user_turn_there_is_no_window(tenant: Tenant) -> None:
    thread = make(tenant)
    assert window(thread) == []
    say(thread, "a: Hi, how can I help?")
    assert window(thread) == []


def test_a_greeting_before_the_first_user_turn_costs_no_history(tenant: Tenant) -> None:
    thread = make(tenant)
    say(thread, "a: Hi!", "u: one", "a: two", "u: three", "a: four", "u: five")
    assert window(thread) == [2, 3, 4, 5, 6]


def test_instructions_are_outside_windows_and_their_budget(tenant: Tenant) -> None:
    thread = make(tenant)
    say(thread, "s: long instructions " + "x " * 500, "u: one", "a: two")
    assert cost(thread, 1, 1) > 100
    assert window(thread, cost(thread, 2, 3)) == [2, 3]
    assert store.get_thread(thread.tenant_id, thread.pk).token_count == cost(thread, 2, 3)


def test_turns_that_cost_nothing_break_no_window(tenant: Tenant) -> None:
    thread = make(tenant)
    say(thread, "u: one", "t: ", "a: two", "u: three")
    assert window(thread, cost(thread, 4, 4)) == [4]
    assert window(thread, cost(thread, 1, 4)) == [1, 2, 3, 4]


def test_a_window_is_one_query_at_any_length(tenant: Tenant, django_assert_num_queries: DjangoAssertNumQueries) -> None:
    thread = make(tenant)
    say(thread, *["u: hello", "a: hi"] * 100)
    fresh = store.get_thread(tenant.pk, thread.pk)
    with django_assert_num_queries(1):
        assert len(store.get_window(fresh, budget_tokens=10)) > 0


def test_settings_say_how_long_a_lease_lasts(tenant: Tenant, settings: Settings) -> None:
    settings.MEMORYGW_LEASE_SECONDS = 5
    thread = make(tenant)
    store.acquire_lease(tenant.pk, thread.pk, user_id="ada")
    expires = Thread.objects.get(pk=thread.pk).lease_expires_at
    assert expires is not None
    assert timedelta(seconds=3) < expires - timezone.now() < timedelta(seconds=7)
