"""The tables of a run."""

import platform
import sys
from collections.abc import Sequence

import django
from django.db import connection
from rich.console import Console
from rich.table import Table

from benchmarks.seed import FACTS, THREADS_IN_TABLE, TURN_CHARS
from benchmarks.timing import Goal, Timing
from benchmarks.writers import RateGoal, Result

BYTES_GOAL = 600

console = Console(width=None if sys.stdout.isatty() else 100)


def print_heading() -> None:
    version = ".".join(map(str, connection.get_database_version()))
    console.print(
        f"{connection.display_name} {version}, Python {platform.python_version()}, Django {django.get_version()}. "
        f"Turns of {TURN_CHARS} characters, contexts with {FACTS} facts, {THREADS_IN_TABLE:,} threads; medians. "
        "Raw: the bare driver, plain SQL, the same tables. By hand: model view sets on the same tables and server.",
        highlight=False,
    )


def print_timings(title: str, floor: str, timings: Sequence[Timing]) -> None:
    """``floor`` is what the other side is called."""
    rows = []
    for timing in timings:
        rows.append(
            (
                timing.operation.name,
                _length(timing),
                f"{timing.raw_ms:.3f}",
                f"{timing.ours_ms:.3f}",
                f"{timing.ratio:.2f}",
                _goal(timing),
            )
        )
    _print(title, ("operation", "thread length", f"{floor} ms", "ours ms", "ratio", "goal"), rows)


def print_growth(timings: Sequence[Timing]) -> None:
    """The longest thread's time by the shortest's: 1 is flat. A thread of 10 also has fewer turns to return."""
    rows = []
    for name in dict.fromkeys(timing.operation.name for timing in timings):
        same = sorted((t for t in timings if t.operation.name == name), key=lambda t: t.operation.length or 0)
        for shorter in same[:-1]:
            longest = same[-1]
            lengths = f"{_length(shorter)} → {_length(longest)}"
            raw, ours = longest.raw_ms / shorter.raw_ms, longest.ours_ms / shorter.ours_ms
            rows.append((name, lengths, f"{raw:.2f}", f"{ours:.2f}"))
    _print("Growth with the thread: time at the longest ÷ time at a shorter one", _GROWTH, rows)


def print_races(results: Sequence[Result]) -> None:
    """Beside the rates, how often a turn of ours had to wait for a busy thread."""
    rows = []
    for result in results:
        goal, met = result.race.goal, result.race.goal.met(result.raw, result.ours)
        rows.append(
            (
                result.race.name,
                result.race.way,
                f"{result.raw:,.0f}",
                f"{result.ours:,.0f}",
                f"{result.ours / result.raw:.2f}",
                f"{result.busy:.1f}",
                _judged(goal, met),
            )
        )
    _print(
        "Turns a second of concurrent writers; floor: raw in process, by hand over HTTP",
        _RACES,
        rows,
    )
    if not any(result.problems for result in results):
        console.print("Checked: no turn is lost, doubled or out of order.", highlight=False)


def print_sizes(sizes: dict[str, float]) -> None:
    if sizes:
        parts = f"{sizes['rows']:.0f} in rows, {sizes['indexes']:.0f} in indexes"
        console.print(f"Bytes per turn: {sizes['all']:.0f} ({parts}); goal ≤ {BYTES_GOAL}.", highlight=False)


_GROWTH = ("operation", "thread length", "raw ×", "ours ×")
_RACES = ("operation", "way", "floor/s", "ours/s", "ratio", "busy/turn", "goal")


def _goal(timing: Timing) -> str:
    goal = timing.operation.goal
    return _judged(goal, goal is not None and goal.met(timing.raw_ms, timing.ours_ms))


def _judged(goal: Goal | RateGoal | None, met: bool) -> str:
    """Goals are for PostgreSQL: beside a driver that has no server to ask, any layer is many times the floor."""
    if goal is None or connection.vendor != "postgresql":
        return "–"
    return f"{goal}, {'met' if met else 'missed'}"


def _length(timing: Timing) -> str:
    return f"{timing.operation.length:,}" if timing.operation.length else "–"


def _print(title: str, names: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    table = Table(title=title, title_justify="left")
    for name in names:
        table.add_column(name, justify="left" if name in ("operation", "way", "goal") else "right")
    for row in rows:
        table.add_row(*row)
    console.print(table)
