"""How the database answers the hot reads: along an index, reading little more than it returns, whatever else is stored.

The statements are those that the stores send, captured and explained on the database under test.
"""

from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import Any

from django.db import connection
from django.db.models import Model
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from memorygw.models import ModelCall, Tenant
from threads.models import Run, Thread, Turn
from threads.store import ThreadStore
from usermemory.models import ExtractionState, Fact, identity
from usermemory.store import UserMemoryStore

BIG_TABLES = (Thread, Turn, Run, ExtractionState, Fact, ModelCall)
# Next to the rows that are returned: spare turns before a window, a cursor's own row, a page's first row too many.
SPARE_ROWS = 40
# What SQLite's machine takes to read and sort a row of many columns; one that it only passes by takes some ten.
STEPS_PER_ROW = 40

store = ThreadStore()


class Reading(CaptureQueriesContext):
    """The statements sent inside the block, to be looked at after it."""

    def __init__(self) -> None:
        super().__init__(connection)

    def assert_reads_only(self, rows: int, of: type[Model] | None = None) -> None:
        """Every read (of that table) walked an index, and read and sorted little more than ``rows`` rows."""
        reads = [query["sql"] for query in self.captured_queries if query["sql"].startswith("SELECT")]
        reads = [sql for sql in reads if of is None or of._meta.db_table in sql]
        assert reads
        check = _check_postgresql if connection.vendor == "postgresql" else _check_sqlite
        for sql in reads:
            check(sql, 2 * rows + SPARE_ROWS)


def _check_postgresql(sql: str, most: int) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {sql}")
        [[[explained]]] = cursor.fetchall()
    for node in nodes(explained["Plan"]):
        kind, loops = node["Node Type"], node["Actual Loops"]
        touched = node["Actual Rows"] + sum(
            node.get(f"Rows Removed by {step}", 0) for step in ("Filter", "Index Recheck")
        )
        assert not (kind == "Seq Scan" and node["Relation Name"] in _names(BIG_TABLES)), explained
        assert touched * loops <= most, explained


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for inner in plan.get("Plans", ()):
        yield from nodes(inner)


def _check_sqlite(sql: str, most: int) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN QUERY PLAN {sql}")
        plan = [row[-1] for row in cursor.fetchall()]
    searched = [line for line in plan if line.startswith("SEARCH")]
    assert any("INDEX" in line for line in searched), plan
    assert not [line for line in plan for name in _names(BIG_TABLES) if line.startswith(f"SCAN {name}")], plan
    assert sqlite_steps(sql) <= STEPS_PER_ROW * most, plan


def sqlite_steps(sql: str) -> int:
    """How many steps SQLite's machine takes for it: the plan does not tell how many rows a search walks."""
    steps = 0

    def count() -> int:
        nonlocal steps
        steps += 1
        return 0

    database = connection.connection
    database.set_progress_handler(count, 1)
    try:
        database.execute(sql).fetchall()
    finally:
        database.set_progress_handler(None, 1)
    return steps


def _names(models: Iterable[type[Model]]) -> list[str]:
    return [model._meta.db_table for model in models]


def analyze() -> None:
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")


def make_threads(tenant: Tenant, count: int, users: int) -> list[Thread]:
    """``count`` threads of ``users`` by turns, a minute apart; the last is the newest."""
    start = timezone.now() - timedelta(minutes=count)
    return Thread.objects.bulk_create(
        [
            Thread(tenant=tenant, user_id=f"user {n % users}", created_at=start + timedelta(minutes=n))
            for n in range(count)
        ],
        batch_size=1_000,
    )


def fill(thread: Thread, length: int) -> None:
    """Turns of 10 tokens each, user and assistant by turns."""
    Turn.objects.bulk_create(
        [
            Turn(
                thread=thread,
                seq=seq,
                role=Turn.Role.USER if seq % 2 else Turn.Role.ASSISTANT,
                content="Hello",
                token_count=10,
                tokens_through=10 * seq,
            )
            for seq in range(1, length + 1)
        ],
        batch_size=1_000,
    )
    thread.turn_count, thread.token_count = length, 10 * length
    thread.save(update_fields=["turn_count", "token_count"])


def test_a_window_reads_what_it_returns_in_a_thread_of_ten_thousand_turns(tenant: Tenant) -> None:
    long, *others = make_threads(tenant, 500, users=50)
    fill(long, 10_000)
    for thread in others[:20]:
        fill(thread, 20)
    analyze()
    # A sliding window; one after the notes; notes that lag, so that the budget decides.
    for budget, from_seq in ((200, 1), (10**6, 9_981), (200, 5_001)):
        with Reading() as reading:
            window = store.get_window(long, budget_tokens=budget, from_seq=from_seq)
        assert [turn.seq for turn in window] == list(range(9_981, 10_001))
        reading.assert_reads_only(len(window))


def test_a_history_is_read_without_walking_other_threads(tenant: Tenant) -> None:
    threads = make_threads(tenant, 500, users=50)
    # A few in a hundred of all turns: of a larger share a planner may rightly read the whole table.
    for thread in threads[:41]:
        fill(thread, 300)
    analyze()
    with Reading() as reading:
        turns = store.get_turns(tenant.pk, threads[0].pk)
    assert len(turns) == 300
    reading.assert_reads_only(len(turns))


def test_a_stretch_of_turns_is_read_without_walking_the_tenants_threads(tenant: Tenant) -> None:
    threads = make_threads(tenant, 5_000, users=50)
    fill(threads[0], 100)
    fill(threads[1], 100)
    analyze()
    with Reading() as reading:
        between = store.get_turns_between(tenant.pk, threads[0].pk, 50, 70)
        newest = store.get_last_turns(tenant.pk, threads[0].pk, 20)
    assert (len(between), len(newest)) == (20, 20)
    reading.assert_reads_only(20)


def test_the_newest_threads_of_a_user_are_read_without_older_ones_or_those_of_others(tenant: Tenant) -> None:
    threads = make_threads(tenant, 5_000, users=10)
    analyze()
    with Reading() as reading:
        page = store.list_threads(tenant.pk, "user 7", limit=20)
    assert page.items == threads[7::10][:-21:-1]
    reading.assert_reads_only(len(page.items))


def test_a_page_beside_a_cursor_is_read_without_those_before_it(tenant: Tenant) -> None:
    threads = make_threads(tenant, 5_000, users=10)
    mine = threads[7::10]
    analyze()
    with Reading() as reading:
        older = store.list_threads(tenant.pk, "user 7", limit=20, ending_before=mine[100].pk)
        newer = store.list_threads(tenant.pk, "user 7", limit=20, starting_after=mine[400].pk)
    assert (older.items, newer.items) == (mine[99:79:-1], mine[420:400:-1])
    reading.assert_reads_only(20)


def test_turns_here_and_there_are_read_without_those_beside_them(tenant: Tenant) -> None:
    threads = make_threads(tenant, 500, users=10)
    mine = threads[7::10][:20]
    for thread in mine:
        fill(thread, 300)
    analyze()
    places = [(thread.pk, seq) for thread in mine for seq in (1, 150)]
    with Reading() as reading:
        turns = store.find_turns(tenant.pk, places, user_id="user 7")
    assert {(turn.thread_id, turn.seq) for turn in turns} == set(places)
    reading.assert_reads_only(2 * len(turns))


def test_the_newest_runs_of_a_user_are_read_without_those_of_others(tenant: Tenant) -> None:
    threads = make_threads(tenant, 5_000, users=50)
    for thread in threads:
        thread.updated_at = thread.created_at
    Thread.objects.bulk_update(threads, ["updated_at"], batch_size=100)
    runs = [
        Run(thread=thread, memories=["x"], first_seq=1, last_seq=1, created_at=thread.created_at)
        for thread in threads
        for _ in range(2)
    ]
    Run.objects.bulk_create(runs, batch_size=1_000)
    analyze()
    with Reading() as reading:
        newest = store.recent_runs(tenant.pk, "user 7", limit=20)
    assert [run.thread for run in newest[::2]] == threads[7::50][:-11:-1]
    # Of the 100 threads that changed last, all runs are.
    reading.assert_reads_only(200)


def test_due_work_is_found_without_walking_what_is_not_due(tenant: Tenant) -> None:
    threads, now = make_threads(tenant, 5_000, users=50), timezone.now()
    states = [ExtractionState(thread=thread) for thread in threads]
    # Five are due, some wait for their next attempt, most have nothing to do.
    for n, state in enumerate(states[:505]):
        state.due_at = now + timedelta(hours=-1 if n < 5 else 1)
    ExtractionState.objects.bulk_create(states, batch_size=1_000)
    analyze()
    with Reading() as reading:
        due = list(ExtractionState.objects.due().order_by("due_at")[:500])
    assert {state.pk for state in due} == {thread.pk for thread in threads[:5]}
    reading.assert_reads_only(len(due))


def test_facts_of_a_user_are_read_without_those_of_others(tenant: Tenant) -> None:
    Fact.objects.bulk_create(
        [
            Fact(
                tenant=tenant,
                owner_id=f"user {n % 50}",
                key=f"key {n}",
                value="value",
                identity=identity(f"key {n}"),
                origin=Fact.Origin.MANUAL,
            )
            for n in range(5_000)
        ],
        batch_size=1_000,
    )
    analyze()
    with Reading() as reading:
        facts = UserMemoryStore().get_facts(tenant.pk, "user 7")
    assert len(facts) == 100
    reading.assert_reads_only(len(facts))
