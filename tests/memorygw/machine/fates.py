"""What may befall a call between two of its statements: its process dies, or another process is at work."""

import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from django.db import connection

from tests.conftest import background

DIES_BEFORE, DIES_AFTER = "dies before", "dies after"
_TAKES_LOCKS = re.compile(r"\s*(?:INSERT|UPDATE|DELETE)\b|.*\bFOR UPDATE\b", re.DOTALL)


class Died(BaseException):
    """The process of a call is gone."""


@dataclass(frozen=True)
class Fate:
    """``what`` befalls a call at its statement number ``at``.

    A death, before the statement reaches the database or right after it; or the name of something that happens
    meanwhile. ``expires``: what the dead call held runs out before the next step.
    """

    at: int
    what: str
    expires: bool = False

    @property
    def kills(self) -> bool:
        return self.what in (DIES_BEFORE, DIES_AFTER)


class Process:
    """One call as a process of its own, around whose statements this is wrapped.

    Once it is dead not one more statement of it reaches the database, those of its clean-up neither; what it had not
    committed is rolled back. ``met``: its fate has befallen it.
    """

    def __init__(self, fate: Fate | None, meanwhile: Callable[[str], object]) -> None:
        self.dead = self.met = False
        self._fate, self._meanwhile = fate, meanwhile
        self._statements, self._has_locks = 0, False

    @contextmanager
    def running(self) -> Iterator[None]:
        try:
            with connection.execute_wrapper(self):
                yield
        finally:
            if self.dead:
                # A transaction that it had only begun ends with its connection.
                connection.close()

    def __call__(self, execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any) -> Any:
        if self.dead:
            raise Died
        self._has_locks &= connection.in_atomic_block
        fate = self._fate if self._statements >= (self._fate.at if self._fate else 0) and not self.met else None
        self._statements += 1
        if fate and not fate.kills and self._others_may_write():
            self.met = True
            _elsewhere(self._meanwhile, fate.what)
        if fate and fate.kills:
            self.dead = self.met = True
            if fate.what == DIES_AFTER:
                execute(sql, params, many, context)
            raise Died
        self._has_locks |= bool(_TAKES_LOCKS.match(sql))
        return execute(sql, params, many, context)

    def _others_may_write(self) -> bool:
        """Whether another process would not have to wait for this one: SQLite has one writer, PostgreSQL row locks."""
        return not connection.in_atomic_block or (connection.vendor == "postgresql" and not self._has_locks)


def _elsewhere(work: Callable[[str], object], what: str) -> None:
    """Do ``work`` to its end on a connection of its own."""
    with ThreadPoolExecutor(1) as pool:
        background(pool, work, what).result()
