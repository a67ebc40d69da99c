"""The same done in two ways, on threads of several lengths, timed in turns."""

import gc
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from time import monotonic, perf_counter_ns

_WARM_UP = 10
_LONGEST_SECONDS = 4


@dataclass(frozen=True)
class Goal:
    """At most so many times the floor, or so many milliseconds."""

    times: float = float("inf")
    ms: float = float("inf")

    def __str__(self) -> str:
        return f"≤ {self.times:g} ×" if self.ms == float("inf") else f"≤ {self.ms:g} ms"

    def met(self, raw_ms: float, ours_ms: float) -> bool:
        return ours_ms <= self.ms and ours_ms <= self.times * raw_ms


@dataclass(frozen=True, kw_only=True)
class Operation:
    """``raw`` and ``ours`` do the same and return what shows it: how many turns or facts, or which turn."""

    name: str
    length: int | None
    raw: Callable[[], int]
    ours: Callable[[], int]
    goal: Goal | None = None
    repeats: int = 300


@dataclass(frozen=True)
class Timing:
    operation: Operation
    raw_ms: float
    ours_ms: float

    @property
    def ratio(self) -> float:
        return self.ours_ms / self.raw_ms


def measure_all(groups: Iterable[Sequence[Operation]]) -> list[Timing]:
    return [timing for group in groups for timing in measure(group)]


def measure(operations: Sequence[Operation]) -> list[Timing]:
    """Medians of runs in turns, so that a slow moment meets all alike; cut short on a slow machine."""
    for operation in operations:
        _warm_up(operation)
    rounds = min(operation.repeats for operation in operations)
    times: dict[Callable[[], int], list[float]] = {}
    for operation in operations:
        times |= {operation.raw: [], operation.ours: []}
    calls, done = list(times), 0
    end = monotonic() + _LONGEST_SECONDS * len(operations)
    with _without_garbage_collector():
        while done < rounds and monotonic() < end:
            for call in calls:
                times[call].append(_time(call))
            calls.reverse()
            done += 1
    return [Timing(operation, median(times[operation.raw]), median(times[operation.ours])) for operation in operations]


def _warm_up(operation: Operation) -> None:
    for _ in range(_WARM_UP):
        raw, ours = operation.raw(), operation.ours()
        if raw != ours:
            raise RuntimeError(f"{operation.name}: the floor gives {raw}, memorygw gives {ours}.")


def _time(call: Callable[[], int]) -> float:
    start = perf_counter_ns()
    call()
    return (perf_counter_ns() - start) / 1e6


@contextmanager
def _without_garbage_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
