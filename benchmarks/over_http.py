"""What is measured over HTTP, each time twice: by hand, and through the API of memorygw; one connection for all."""

from collections.abc import Callable, Iterator, Sequence
from itertools import cycle
from typing import Any

from benchmarks.operations import CONTEXT_TOKENS
from benchmarks.seed import LISTED, LISTER, LISTER_THREADS, USER, Seeded
from benchmarks.server import Client, Site, kept_connection
from benchmarks.timing import Goal, Operation
from threads.models import Thread

CONTEXT_LENGTH = 1_000
_AS_BY_HAND = Goal(times=1)


def all_operations(seeded: Seeded, site: Site) -> Iterator[list[Operation]]:
    with kept_connection() as session:
        raw, ours = site.by_hand(USER, session), site.ours(USER, session)
        for length, threads in seeded.http_ours.items():
            yield [
                Operation(
                    name="append a turn",
                    length=length,
                    raw=_append_by_hand(raw, seeded.http_raw[length], seeded),
                    ours=_append_ours(ours, threads, seeded),
                    goal=_AS_BY_HAND,
                )
            ]
        yield [_history(seeded, raw, ours)]
        yield [_list(site.by_hand(LISTER, session), site.ours(LISTER, session))]
        yield [_context(seeded, raw, ours)]


def turn(content: str) -> dict[str, Any]:
    return {"role": "user", "content": content}


def _append_by_hand(client: Client, threads: Sequence[Thread], seeded: Seeded) -> Callable[[], int]:
    paths, texts = cycle([f"/threads/{thread.pk}/turns/" for thread in threads]), cycle(seeded.texts)
    return lambda: int(client.post(next(paths), turn(next(texts).content))["seq"])


def _append_ours(client: Client, threads: Sequence[Thread], seeded: Seeded) -> Callable[[], int]:
    paths, texts = cycle([f"/threads/{thread.pk}/turns" for thread in threads]), cycle(seeded.texts)
    return lambda: int(client.post(next(paths), {"turns": [turn(next(texts).content)]})["items"][0]["seq"])


def _history(seeded: Seeded, raw: Client, ours: Client) -> Operation:
    path = f"/threads/{seeded.history.pk}/turns"
    return Operation(
        name="whole history",
        length=seeded.history.turn_count,
        raw=lambda: len(raw.get(f"{path}/")),
        ours=lambda: len(ours.get(path)["items"]),
        goal=_AS_BY_HAND,
    )


def _list(raw: Client, ours: Client) -> Operation:
    return Operation(
        name=f"{LISTED} of {LISTER_THREADS:,} threads",
        length=None,
        raw=lambda: len(raw.get("/threads/")["results"]),
        ours=lambda: len(ours.get("/threads", limit=LISTED)["items"]),
        goal=_AS_BY_HAND,
    )


def _context(seeded: Seeded, raw: Client, ours: Client) -> Operation:
    path, budget = f"/threads/{seeded.read[CONTEXT_LENGTH].pk}/context", {"budget_tokens": CONTEXT_TOKENS}
    return Operation(
        name=f"context of {CONTEXT_TOKENS:,} tokens",
        length=CONTEXT_LENGTH,
        raw=lambda: len(raw.get(f"{path}/", **budget)["messages"]),
        ours=lambda: len(ours.post(path, budget)["messages"]),
        goal=Goal(ms=6),
    )
