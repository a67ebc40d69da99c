"""What is measured, each time twice: by hand on the floor, and through memorygw."""

from collections.abc import Callable, Iterator
from itertools import cycle

from django.db import connection

from benchmarks.floor import Floor, columns, position, table
from benchmarks.raw import RawAppend
from benchmarks.seed import FACTS, LISTED, LISTER, LISTER_THREADS, USER, Seeded
from benchmarks.timing import Goal, Operation
from memorygw import gateway
from memorygw.conf import component, conf
from threads.models import Thread, Turn
from threads.turns import TurnDraft
from usermemory.models import Fact
from workingmemory.models import WorkingMemoryState

BATCH_TURNS = gateway.MAX_APPENDED_TURNS
BATCH_LENGTH = 10
WINDOW_TURNS = 20
HISTORY_LENGTH = 1_000
CONTEXT_TOKENS = 2_000

_TURNS = f"SELECT {columns(Turn)} FROM {table(Turn)} WHERE thread_id = %s"
_FACTS = (
    f"SELECT {columns(Fact)} FROM {table(Fact)} "
    "WHERE tenant_id = %s AND scope = 'user' AND owner_id = %s AND status = 'active' ORDER BY created_at, id"
)
_THREAD = (
    f"SELECT {columns(Thread)} FROM {table(Thread)} "
    "WHERE id = %s AND tenant_id = %s AND user_id = %s AND deleted_at IS NULL"
)
_NEWEST_THREADS = (
    f"SELECT {columns(Thread)} FROM {table(Thread)} "
    "WHERE tenant_id = %s AND user_id = %s AND deleted_at IS NULL "
    f"ORDER BY created_at DESC, id DESC LIMIT {LISTED + 1}"
)
_STATE = f"SELECT {columns(WorkingMemoryState)} FROM {table(WorkingMemoryState)} WHERE thread_id = %s"


def all_operations(seeded: Seeded, floor: Floor) -> Iterator[list[Operation]]:
    """Each operation at all its lengths."""
    yield from _appends(seeded, floor)
    yield from _windows(seeded, floor)
    yield [_history(seeded, floor)]
    yield [
        Operation(
            name=f"{LISTED} of {LISTER_THREADS:,} threads",
            length=None,
            raw=_list_raw(seeded, floor),
            ours=_list_ours(seeded),
        )
    ]
    yield [Operation(name=f"{FACTS} facts", length=None, raw=_facts_raw(seeded, floor), ours=_facts_ours(seeded))]


def _appends(seeded: Seeded, floor: Floor) -> Iterator[list[Operation]]:
    yield [
        Operation(
            name="append a turn",
            length=length,
            raw=_append_raw(seeded, floor, length),
            ours=_append_ours(seeded, length),
            goal=Goal(times=2.5),
        )
        for length in seeded.append_ours
    ]
    # Few enough for the pool: a thread gets one batch or two.
    yield [
        Operation(
            name=f"append {BATCH_TURNS} turns",
            length=BATCH_LENGTH,
            raw=_batch_raw(seeded, floor),
            ours=_batch_ours(seeded),
            repeats=100,
        )
    ]


def _windows(seeded: Seeded, floor: Floor) -> Iterator[list[Operation]]:
    yield [
        Operation(
            name=f"window of {WINDOW_TURNS} turns",
            length=length,
            raw=_window_raw(floor, thread),
            ours=_window_ours(thread),
            goal=Goal(times=4),
        )
        for length, thread in seeded.read.items()
    ]
    yield [
        Operation(
            name=f"context of {CONTEXT_TOKENS:,} tokens",
            length=length,
            raw=_context_raw(seeded, floor, thread),
            ours=_context_ours(seeded, thread),
            goal=Goal(ms=3),
        )
        for length, thread in seeded.read.items()
    ]


def _history(seeded: Seeded, floor: Floor) -> Operation:
    thread = seeded.read[HISTORY_LENGTH]
    return Operation(
        name="whole history",
        length=HISTORY_LENGTH,
        raw=_history_raw(floor, thread),
        ours=_history_ours(seeded, thread),
        goal=Goal(times=7),
        repeats=100,
    )


def bytes_per_turn() -> dict[str, float]:
    """Rows, indexes and both, per stored turn; empty where the database does not tell."""
    if connection.vendor != "postgresql":
        return {}
    name = Turn._meta.db_table
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_table_size(%s), pg_indexes_size(%s), pg_total_relation_size(%s)", [name, name, name])
        sizes = cursor.fetchone()
    count = Turn.objects.count()
    return {part: size / count for part, size in zip(("rows", "indexes", "all"), sizes, strict=True)}


# --- append


def _append_raw(seeded: Seeded, floor: Floor, length: int) -> Callable[[], int]:
    threads, texts, append = cycle(seeded.append_raw[length]), cycle(seeded.texts), RawAppend(floor, seeded.tenant.pk)
    return lambda: append(next(threads), [next(texts)])


def _append_ours(seeded: Seeded, length: int) -> Callable[[], int]:
    threads, texts, store = cycle(seeded.append_ours[length]), cycle(seeded.texts), component("THREAD_STORE")

    def append() -> int:
        thread, draft = next(threads), TurnDraft(role="user", content=next(texts).content)
        [turn] = store.append_turns(thread, [draft], token=thread.lease_token, model=conf.MODEL)
        return int(turn.seq)

    return append


def _batch_raw(seeded: Seeded, floor: Floor) -> Callable[[], int]:
    threads, texts = cycle(seeded.append_raw[BATCH_LENGTH]), seeded.texts[:BATCH_TURNS]
    append = RawAppend(floor, seeded.tenant.pk, count=BATCH_TURNS)
    return lambda: append(next(threads), texts)


def _batch_ours(seeded: Seeded) -> Callable[[], int]:
    """Through the gateway: what it looks at in every turn is a part of what a batch costs."""
    threads, texts = cycle(seeded.append_ours[BATCH_LENGTH]), seeded.texts[:BATCH_TURNS]

    def append() -> int:
        thread, drafts = next(threads), [TurnDraft(role="user", content=text.content) for text in texts]
        turns = gateway.append_turns(seeded.tenant, USER, thread.pk, drafts, lease_token=thread.lease_token)
        return int(turns[-1].seq)

    return append


# --- read


def _window_raw(floor: Floor, thread: Thread) -> Callable[[], int]:
    sql, parameters = floor.sql(f"{_TURNS} ORDER BY seq DESC LIMIT {WINDOW_TURNS}"), (floor.id(thread.pk),)
    return lambda: len(floor.rows(sql, parameters))


def _window_ours(thread: Thread) -> Callable[[], int]:
    newest = Turn.objects.filter(thread=thread).order_by("-seq")[:WINDOW_TURNS]
    budget = sum(newest.values_list("token_count", flat=True))
    store = component("THREAD_STORE")
    return lambda: len(store.get_window(thread, budget_tokens=budget))


def _history_raw(floor: Floor, thread: Thread) -> Callable[[], int]:
    sql, parameters = floor.sql(f"{_TURNS} ORDER BY seq"), (floor.id(thread.pk),)
    return lambda: len(floor.rows(sql, parameters))


def _history_ours(seeded: Seeded, thread: Thread) -> Callable[[], int]:
    store = component("THREAD_STORE")
    return lambda: len(store.get_turns(seeded.tenant.pk, thread.pk, user_id=USER))


def _list_raw(seeded: Seeded, floor: Floor) -> Callable[[], int]:
    """One more than a page, to know whether there are more."""
    sql, parameters = floor.sql(_NEWEST_THREADS), (floor.id(seeded.tenant.pk), LISTER)
    return lambda: len(floor.rows(sql, parameters)[:LISTED])


def _list_ours(seeded: Seeded) -> Callable[[], int]:
    return lambda: len(gateway.list_threads(seeded.tenant, LISTER, limit=LISTED).items)


def _facts_raw(seeded: Seeded, floor: Floor) -> Callable[[], int]:
    sql, parameters = floor.sql(_FACTS), (floor.id(seeded.tenant.pk), USER)
    return lambda: len(floor.rows(sql, parameters))


def _facts_ours(seeded: Seeded) -> Callable[[], int]:
    store = component("USER_MEMORY_STORE")
    return lambda: len(store.get_facts(seeded.tenant.pk, USER))


def _context_raw(seeded: Seeded, floor: Floor, thread: Thread) -> Callable[[], int]:
    """The four reads behind a context: thread, facts, notes, and the turns that fit, whole and from a user turn on."""
    thread_sql, facts_sql, state_sql = floor.sql(_THREAD), floor.sql(_FACTS), floor.sql(_STATE)
    turns_sql = floor.sql(f"{_TURNS} AND tokens_through > %s ORDER BY tokens_through")
    key, owner = floor.id(thread.pk), (floor.id(seeded.tenant.pk), USER)
    tokens, role = position(Thread, "token_count"), position(Turn, "role")
    cost, through = position(Turn, "token_count"), position(Turn, "tokens_through")

    def read() -> int:
        [found] = floor.rows(thread_sql, (key, *owner))
        floor.rows(facts_sql, owner)
        floor.rows(state_sql, (key,))
        spent = max(found[tokens] - CONTEXT_TOKENS, 0)
        turns = floor.rows(turns_sql, (key, spent))
        first = next(n for n, turn in enumerate(turns) if turn[role] == "user" and turn[through] - turn[cost] >= spent)
        return len(turns) - first

    return read


def _context_ours(seeded: Seeded, thread: Thread) -> Callable[[], int]:
    """The thread's read included."""

    def read() -> int:
        context = gateway.get_context(seeded.tenant, USER, thread.pk, budget_tokens=CONTEXT_TOKENS)
        return len(context.turns)

    return read
