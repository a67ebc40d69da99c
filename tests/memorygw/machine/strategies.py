"""What the rules draw."""

from collections.abc import Sequence

from hypothesis import strategies as st

from tests.memorygw.machine.fates import DIES_AFTER, DIES_BEFORE, Fate
from tests.memorygw.machine.script import APPROVED, AT_ONCE, CLIENT, FORGETS, HELPER_FAULTS, REFUSED, UNKNOWN, Script
from tests.memorygw.machine.world import TIMES

ON_A_RUN = (
    "the lease runs out",
    "taken over",
    "taken over and given back",
    "taken over by an ask",
    "asked",
    "cancelled",
    "decided",
    "answered again",
    "everything runs out and is swept",
)
ON_AN_APPEND = (
    "the lease runs out",
    "taken over",
    "taken over and given back",
    "taken over by an ask",
    "asked",
    "appended under the lease",
    "results sent again",
)
ON_MEMORY = ("asked", "swept", "everything runs out and is swept", "facts cleared", "notes reset", "fact set")


def deaths(statements: int) -> st.SearchStrategy[Fate | None]:
    """Undisturbed, or a death within about so many statements."""
    whats = st.sampled_from([DIES_BEFORE, DIES_AFTER])
    return st.none() | st.builds(Fate, at=st.integers(0, statements), what=whats, expires=st.booleans())


def fates(statements: int, events: Sequence[str]) -> st.SearchStrategy[Fate | None]:
    """The same, or one of the events meanwhile."""
    return deaths(statements) | st.builds(Fate, at=st.integers(0, statements), what=st.sampled_from(events))


calls = st.sampled_from([APPROVED, AT_ONCE, CLIENT, FORGETS, REFUSED, UNKNOWN])
steps = st.lists(st.lists(calls, min_size=1, max_size=3), min_size=1, max_size=2)
scripts = st.builds(Script, steps=steps, fails=st.sampled_from([False, False, True]))
approvals = st.lists(st.booleans(), min_size=1, max_size=3)
kinds = st.sampled_from(["user", "aside", "assistant", "call", "result", "late result", "instructions"])
usual = [["user"], ["user", "assistant"], ["user", "call"], ["result"], ["result", "assistant"]]
batches = st.sampled_from(usual) | st.lists(kinds, min_size=1, max_size=3)
picks = st.integers(0, 3)
helper_faults = st.sampled_from(["", "", *HELPER_FAULTS])
times = st.lists(st.sampled_from(TIMES), min_size=1, max_size=3, unique=True) | st.just(list(TIMES))
