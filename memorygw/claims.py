"""One mechanism for all late work: extraction, notes, titles, vectors and voice sessions.

A state row per subject says what is covered and when to work on it next. A Celery message is only a wake-up: a lost one
is found by the sweep, a doubled one finds its row claimed. The queue may lose, the database may not (K18).
"""

import logging
import os
import random
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from typing import Any, ClassVar, Self
from uuid import UUID, uuid4

from celery import Task, current_app, shared_task
from django.db import models
from django.db.models import Count, DurationField, ExpressionWrapper, F, Max, Q
from django.db.models.functions import Now
from kombu.exceptions import KombuError

from memorygw.conf import conf
from memorygw.database import after
from memorygw.metrics import ENQUEUE_FAILED, JOB_ATTEMPTS

logger = logging.getLogger(__name__)

MAX_ATTEMPTS = 12
GIVEN_UP = Q(due_at__isnull=True, attempts__gt=0)
"""Nothing to do, and not because it was done: what succeeds or is answered has no attempts."""

_FIRST_DELAY_SECONDS = 20
_LONGEST_DELAY_SECONDS = 6 * 3600
_BROKER_PAUSE_SECONDS = 10


def late_work(work: Callable[[str], None]) -> "Task[..., None]":
    """Make a task of ``work``: its message carries an id only and outlives the worker that took it."""
    decorate = shared_task(
        acks_late=True, reject_on_worker_lost=True, ignore_result=True, soft_time_limit=540, time_limit=600
    )
    task: Task[..., None] = decorate(work)
    return task


class LateWorkQuerySet(models.QuerySet[Any]):
    """The verbs, on the database's clock, and what makes a row due."""

    def note_answer(self, pk: UUID, turn_count: int, *, due: Callable[[int, int], bool]) -> UUID | None:
        """The thread was answered at ``turn_count`` turns: forget failures, decide anew; the id when it is due now.

        ``due(covered, answered)`` is the learner's beat. Call it in the transaction of the answer, under the thread's
        lock.
        """
        covered = self.filter(pk=pk).values_list("covered", flat=True).first()
        is_due = due(covered or 0, turn_count)
        values = {"answered": turn_count, "due_at": Now() if is_due else None, "attempts": 0}
        if covered is None:
            self.create(pk=pk, **values)
        else:
            self.filter(pk=pk).update(**values)
        return pk if is_due else None

    def rewind(self, pk: UUID, turn_count: int, **lost: Any) -> None:
        """The thread is shorter than it was: who is at work loses the claim, and what was covered behind its end is
        covered no more, which ``lost`` columns go with."""
        self.filter(pk=pk, answered__gt=turn_count).update(answered=turn_count, claim_token=None, claim_expires_at=None)
        self.filter(pk=pk, covered__gt=turn_count).update(**{"covered": turn_count, **lost})

    def due(self) -> Self:
        """Rows whose time has come and that nobody is working on."""
        return self.filter(due_at__lte=Now()).exclude(claim_expires_at__gt=Now())

    def claimed(self) -> Self:
        """Rows that somebody is working on right now."""
        return self.filter(claim_expires_at__gt=Now())

    def claim(self, pk: UUID) -> UUID | None:
        """Take a due row for one attempt; the token, or None when it is not due (any more) or already taken.

        The attempt is counted before it starts, so work that kills its process does not run for ever.
        """
        token = uuid4()
        taken = (
            self.due()
            .filter(pk=pk)
            .update(claim_token=token, claim_expires_at=after(claim_seconds()), attempts=F("attempts") + 1)
        )
        return token if taken else None

    def settle(self, pk: UUID, token: UUID, **result: Any) -> bool:
        """Write the result, in the caller's transaction; False (and nothing written) when the claim was lost."""
        done = self.filter(pk=pk, claim_token=token).update(
            **{"due_at": None, **result}, claim_token=None, claim_expires_at=None, attempts=0, last_error=""
        )
        JOB_ATTEMPTS.labels(self.model.kind, "done" if done else "lost").inc()
        return bool(done)

    def fail(self, pk: UUID, token: UUID, code: str) -> None:
        """Keep the error's code and try again later, more rarely each time; after `MAX_ATTEMPTS` wait for an answer."""
        attempts = self.filter(pk=pk).values_list("attempts", flat=True).first() or 1
        again = attempts < MAX_ATTEMPTS
        self.filter(pk=pk, claim_token=token).update(
            due_at=after(_delay_seconds(attempts)) if again else None,
            claim_token=None,
            claim_expires_at=None,
            last_error=code,
        )
        JOB_ATTEMPTS.labels(self.model.kind, "failed" if again else "given_up").inc()

    def retry(self, pks: Iterable[UUID]) -> int:
        """Have rows worked on now, as if for the first time: those that wait for their time and those given up, unless
        somebody is at it; how many. What has nothing to do is not done twice."""
        undone = self.filter(Q(due_at__isnull=False) | GIVEN_UP, pk__in=pks)
        return undone.exclude(claim_expires_at__gt=Now()).update(due_at=Now(), attempts=0)

    def backlog(self) -> dict[str, float]:
        """How many rows are ``pending`` (due), ``running`` and ``waiting`` for their time, and for how many seconds the
        oldest pending one has been due. Read through the index of what is due."""
        running, due = Q(claim_expires_at__gt=Now()), Q(due_at__lte=Now())
        age = ExpressionWrapper(Now() - F("due_at"), output_field=DurationField())
        numbers = self.filter(due_at__isnull=False).aggregate(
            pending=Count("pk", filter=due & ~running),
            running=Count("pk", filter=running),
            waiting=Count("pk", filter=~due & ~running),
            oldest=Max(age, filter=due & ~running),
        )
        oldest = numbers.pop("oldest")
        return {**numbers, "oldest_seconds": oldest.total_seconds() if oldest else 0.0}


class LateWork(models.Model):
    """The state of one learner for one subject. ``kind`` names the learner where work is counted."""

    kind: ClassVar[str]

    covered = models.PositiveIntegerField(default=0, help_text="Turns up to this one have been learned from.")
    answered = models.PositiveIntegerField(default=0, help_text="Turns of the thread at its last answer.")
    due_at = models.DateTimeField(null=True, blank=True, help_text="When to work on it next; empty: nothing to do.")
    attempts = models.PositiveSmallIntegerField(default=0, help_text="Attempts since the last success or answer.")
    last_error = models.CharField(max_length=64, blank=True, default="", help_text="A code, never content.")
    claim_token = models.UUIDField(null=True, blank=True, editable=False)
    claim_expires_at = models.DateTimeField(null=True, blank=True, editable=False)

    objects = LateWorkQuerySet.as_manager()

    class Meta:
        abstract = True
        # Few rows: what is due or will be, and what was given up, which is looked for by hand.
        indexes = [
            models.Index(fields=["due_at"], condition=Q(due_at__isnull=False) | Q(attempts__gt=0), name="%(class)s_due")
        ]

    def batch_of(self, most: int) -> int:
        """How much to take on: half as much with each failed attempt. A new answer may have reset the count since the
        claim."""
        return max(most >> max(self.attempts - 1, 0), 1)


def claim_seconds() -> float:
    """How long a claim lasts: just longer than a model call can, so that only a dead worker loses it.

    A call is its attempts, and between them at most a minute each that the server may ask for (Retry-After).
    """
    return float(conf.LLM_TIMEOUT_SECONDS * (conf.LLM_RETRIES + 1) + 60 * conf.LLM_RETRIES + 10)


def _delay_seconds(attempts: int) -> float:
    """Exponential, with jitter, so that what failed together does not come back together."""
    longest = min(_LONGEST_DELAY_SECONDS, _FIRST_DELAY_SECONDS * 2 ** (attempts - 1))
    return random.uniform(longest / 2, longest)  # noqa: S311  spreading load, not keeping a secret


def has_broker() -> bool:
    """Whether other processes hear a message: not without a broker, nor on an in-memory one."""
    url = current_app.conf.broker_url
    return bool(url) and not str(url).startswith("memory:")


class _Publisher:
    """Sends wake-ups; a broker that failed is left alone for a while: another try costs seconds.

    `wake` hands the sending to a thread of its own, so that no request ever waits for a broker.
    """

    def __init__(self) -> None:
        self._silent_until = 0.0
        self._start()
        # A fork takes the executor's bookkeeping along, but not its thread.
        os.register_at_fork(after_in_child=self._start)

    def _start(self) -> None:
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="memorygw-wake")

    def wake(self, task: "Task[..., Any]", pk: UUID) -> None:
        if current_app.conf.broker_url:
            # A process that is shutting down takes no more; the row is found by the sweep.
            with suppress(RuntimeError):
                self._executor.submit(copy_context().run, self.send, task, pk)

    def send(self, task: "Task[..., Any]", pk: UUID) -> None:
        if not current_app.conf.broker_url or time.monotonic() < self._silent_until:
            return
        try:
            task.apply_async((str(pk),), retry=False)
        except (KombuError, OSError) as error:
            self._silent_until = time.monotonic() + _BROKER_PAUSE_SECONDS
            ENQUEUE_FAILED.inc()
            logger.warning("No wake-up sent, the sweep will find the work: %s", type(error).__name__)


_publisher = _Publisher()


def wake(task: "Task[..., Any]", pk: UUID) -> None:
    """Tell a worker, by id, that a state row is due. Call it on commit. Neither waits nor raises."""
    _publisher.wake(task, pk)


def send(task: "Task[..., Any]", pk: UUID) -> None:
    """The same, at once: for callers that can wait. Does not raise for a broker that is down either."""
    _publisher.send(task, pk)
