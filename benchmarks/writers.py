"""Several writers at once: how many turns a second they store, and whether every turn is where its writer was told."""

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from statistics import median
from threading import Barrier
from time import monotonic, sleep

import requests
from django.db import connection

from benchmarks.floor import open_floor
from benchmarks.over_http import turn
from benchmarks.raw import RawAppend
from benchmarks.seed import TURN_CHARS, USER, Seeded, Text
from benchmarks.server import Site, kept_connection
from memorygw import gateway
from memorygw.exceptions import ThreadBusyError
from memorygw.models import Tenant
from threads.models import Thread, Turn
from threads.turns import TurnDraft

WRITERS = 8
ROUNDS = 3
ROUND_SECONDS = 1.5
# After which a busy thread is tried again.
_JITTER_SECONDS = (0.001, 0.005)
_START_SECONDS = 30

Write = Callable[[Thread, str], int | None]
"""Stores one turn; its number, or None when the thread is busy."""
Side = Callable[[], AbstractContextManager[Write]]
"""Opens what one writer needs, in the writer's own thread."""


@dataclass(frozen=True)
class RateGoal:
    """At least so many turns a second, or so many times the floor's."""

    per_second: float = 0
    times: float = 0

    def __str__(self) -> str:
        return f"≥ {self.per_second:,.0f}/s" if self.per_second else f"≥ {self.times:g} ×"

    def met(self, raw: float, ours: float) -> bool:
        return ours >= self.per_second and ours >= self.times * raw


@dataclass(frozen=True, kw_only=True)
class Race:
    """``WRITERS`` writers on so many threads, first on the floor, then through memorygw, several times."""

    name: str
    way: str
    threads: int
    raw: Side
    ours: Side
    goal: RateGoal


@dataclass(frozen=True)
class Result:
    """Turns a second on both sides, how often ours was refused per turn stored, and what went wrong."""

    race: Race
    raw: float
    ours: float
    busy: float
    problems: list[str]


@dataclass
class _Log:
    """What one writer was told: numbers and contents in its own order, and how often the thread was busy."""

    thread: Thread
    turns: list[tuple[int, str]] = field(default_factory=list)
    busy: int = 0
    start: float = 0
    end: float = 0

    @property
    def timed(self) -> int:
        """Turns after the first, which is stored before the start."""
        return max(len(self.turns) - 1, 0)


def all_races(seeded: Seeded, site: Site) -> Iterator[Race]:
    tenant = seeded.tenant
    for threads, per_second in ((WRITERS, 1_200), (1, 1_000)):
        name = f"{WRITERS} writers, {f'{threads} threads' if threads > 1 else 'one thread'}"
        yield Race(
            name=name,
            way="in process",
            threads=threads,
            raw=lambda: _by_sql(tenant),
            ours=lambda: _in_process(tenant),
            goal=RateGoal(per_second=per_second),
        )
        yield Race(
            name=name,
            way="HTTP",
            threads=threads,
            raw=lambda: _by_hand(site),
            ours=lambda: _over_http(site),
            goal=RateGoal(times=1),
        )


def run(race: Race, seeded: Seeded) -> Result:
    """Medians of rounds in turns, each on fresh threads; every round is checked."""
    rates: dict[Side, list[float]] = {race.raw: [], race.ours: []}
    problems, busy, stored = [], 0, 0
    for _ in range(ROUNDS):
        for side in rates:
            threads = [Thread.objects.create(tenant=seeded.tenant, user_id=USER) for _ in range(race.threads)]
            logs = _round(side, threads, seeded.texts[0].content)
            count = sum(log.timed for log in logs)
            rates[side].append(count / (max(log.end for log in logs) - min(log.start for log in logs)))
            for thread in threads:
                found = _problems(thread, [log for log in logs if log.thread is thread])
                whose = "ours" if side is race.ours else "floor"
                problems += [f"{race.name}, {race.way}, {whose}: {text}." for text in found]
            if side is race.ours:
                busy, stored = busy + sum(log.busy for log in logs), stored + count
    return Result(race, median(rates[race.raw]), median(rates[race.ours]), busy / max(stored, 1), problems)


def _round(side: Side, threads: Sequence[Thread], text: str) -> list[_Log]:
    """All writers start together and stop after the same time."""
    barrier = Barrier(WRITERS, timeout=2 * _START_SECONDS)
    with ThreadPoolExecutor(WRITERS) as pool:
        logs = [
            pool.submit(_write, side, barrier, threads[writer % len(threads)], f"Writer {writer}, turn {{}}. {text}")
            for writer in range(WRITERS)
        ]
        return [log.result() for log in logs]


def _write(side: Side, barrier: Barrier, thread: Thread, text: str) -> _Log:
    """``text`` has a place for the writer's own count of its turns, so that each is told from all others."""
    log, rng = _Log(thread), random.Random(text)
    with side() as write:

        def store() -> None:
            content = text.format(len(log.turns))[:TURN_CHARS]
            seq = write(thread, content)
            if seq is None:
                log.busy += 1
                sleep(rng.uniform(*_JITTER_SECONDS))
            else:
                log.turns.append((seq, content))

        # The first turn opens connections, here and in the server; a thread that stays busy must not hang the run.
        give_up = monotonic() + _START_SECONDS
        while not log.turns and monotonic() < give_up:
            store()
        barrier.wait()
        log.busy, log.start = 0, monotonic()
        while monotonic() - log.start < ROUND_SECONDS:
            store()
        log.end = monotonic()
    return log


def _problems(thread: Thread, logs: Sequence[_Log]) -> list[str]:
    """How what is stored differs from what the writers were told, and the counters from what is stored."""
    thread.refresh_from_db()
    rows = list(Turn.objects.filter(thread=thread).order_by("seq").values_list("seq", "content", "tokens_through"))
    stored = Counter(content for _, content, _ in rows)
    told = Counter(content for log in logs for _, content in log.turns)
    places = {content: seq for seq, content, _ in rows}
    moved = sum(places.get(content) != seq for log in logs for seq, content in log.turns)
    counters = (len(rows), rows[-1][2] if rows else 0)
    found = {
        "a writer stored nothing": not all(log.turns for log in logs),
        f"{(told - stored).total()} turns are lost": told - stored,
        f"{(stored - told).total()} turns are doubled or unknown": stored - told,
        f"{moved} turns are not at the number that was told": moved,
        "the numbers have gaps": [seq for seq, _, _ in rows] != list(range(1, len(rows) + 1)),
        "a writer's turns are out of order": any(log.turns != sorted(log.turns) for log in logs),
        "the thread's counters are wrong": (thread.turn_count, thread.token_count) != counters,
    }
    return [text for text, wrong in found.items() if wrong]


# --- the sides


@contextmanager
def _by_sql(tenant: Tenant) -> Iterator[Write]:
    """Without a lease: the lock of the UPDATE makes writers of one thread wait for each other."""
    with open_floor() as floor:
        append = RawAppend(floor, tenant.pk, leased=False)
        yield lambda thread, content: append(thread, [Text(content, TURN_CHARS // 4)])


@contextmanager
def _in_process(tenant: Tenant) -> Iterator[Write]:
    def write(thread: Thread, content: str) -> int | None:
        try:
            [stored] = gateway.append_turns(tenant, USER, thread.pk, [TurnDraft(role="user", content=content)])
        except ThreadBusyError:
            return None
        return int(stored.seq)

    try:
        yield write
    finally:
        connection.close()


@contextmanager
def _by_hand(site: Site) -> Iterator[Write]:
    with kept_connection() as session:
        client = site.by_hand(USER, session)
        yield lambda thread, content: int(client.post(f"/threads/{thread.pk}/turns/", turn(content))["seq"])


@contextmanager
def _over_http(site: Site) -> Iterator[Write]:
    with kept_connection() as session:
        client = site.ours(USER, session)

        def write(thread: Thread, content: str) -> int | None:
            try:
                answer = client.post(f"/threads/{thread.pk}/turns", {"turns": [turn(content)]})
            except requests.HTTPError as error:
                if error.response.status_code == 409 and error.response.json()["error"]["code"] == "thread_busy":
                    return None
                raise
            return int(answer["items"][0]["seq"])

        yield write
