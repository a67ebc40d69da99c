"""Runs as they are stored: started with the user's turn, paused for a decision, resumed, over.

Whoever locks both locks the thread's row first, then the run's.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid4

from django.db import transaction
from django.db.models import F, Q
from django.db.models.functions import Now

from memorygw.conf import conf
from memorygw.database import after
from memorygw.exceptions import LeaseLostError, RunNotFoundError, RunNotWaitingError, RunOverError, ThreadNotFoundError
from memorygw.ids import new_id
from memorygw.retention import kept
from threads.models import Run, Thread, Turn

_OVER = (Run.Status.COMPLETED, Run.Status.FAILED, Run.Status.CANCELLED)
_PROGRESS = ("last_seq", "tool_steps", "prompt_tokens", "completion_tokens", "memories", "warnings")
_RECENT_THREADS = 100
_NO_LEASE: dict[str, Any] = {"lease_token": None, "lease_expires_at": None}


@dataclass(frozen=True, kw_only=True)
class RunDraft:
    """What a run starts with: how it is to be answered, and what its prompt holds or had no room for."""

    model: str
    id: UUID = field(default_factory=new_id)
    persona_id: UUID | None = None
    tools: Sequence[dict[str, Any]] = ()
    memories: Sequence[UUID] = ()
    warnings: dict[str, int] = field(default_factory=dict)


class RunStore:
    """The part of `threads.store.ThreadStore` that keeps runs."""

    def start_run(self, thread: Thread, draft: RunDraft, *, token: UUID) -> Run:
        """A run for the thread's newest turn, under the lease ``token``."""
        return Run.objects.create(
            pk=draft.id,
            thread_id=thread.pk,
            persona_id=draft.persona_id,
            model=draft.model,
            tools=list(draft.tools),
            memories=[str(pk) for pk in draft.memories],
            warnings=draft.warnings,
            lease_token=token,
            first_seq=thread.turn_count,
            last_seq=thread.turn_count,
        )

    def get_run(self, tenant_id: UUID, run_id: UUID, *, user_id: str) -> Run:
        owner = {"thread__tenant_id": tenant_id, "thread__user_id": user_id, "thread__deleted_at__isnull": True}
        alive = kept(tenant_id, "threads", "thread__updated_at")
        run = Run.objects.filter(alive, pk=run_id, **owner).select_related("persona").first()
        if run is None:
            raise RunNotFoundError
        return run

    def get_run_at(self, thread: Thread, seq: int) -> Run | None:
        """The run whose answer is the turn of this number, if any."""
        return Run.objects.filter(thread_id=thread.pk, first_seq__lte=seq, last_seq__gte=seq).order_by("-pk").first()

    def recent_runs(self, tenant_id: UUID, user_id: str, *, limit: int) -> list[Run]:
        """The user's newest runs whose prompts had facts, each with its thread; of the threads that changed last."""
        latest = Thread.objects.of_user(tenant_id, user_id).order_by("-updated_at", "-pk").only("title")
        threads = {thread.pk: thread for thread in latest[:_RECENT_THREADS]}
        runs = Run.objects.filter(thread_id__in=threads).exclude(memories=[])
        # Not by key, whose index has the runs of everybody: who has none of late would have all of them walked.
        newest = list(runs.order_by("-created_at", "-pk").only("thread_id", "status", "memories", "created_at")[:limit])
        for run in newest:
            run.thread = threads[run.thread_id]
        return newest

    def waiting_run_id(self, thread_id: UUID) -> UUID | None:
        waiting = Run.objects.filter(thread_id=thread_id, status=Run.Status.AWAITING_HUMAN)
        return waiting.values_list("pk", flat=True).first()

    def get_open_calls(self, run: Run) -> list[dict[str, Any]]:
        """The calls of the run's latest tool step that have no result yet, in the order in which they were made."""
        turns = Turn.objects.filter(thread_id=run.thread_id, seq__gte=run.first_seq)
        step = turns.filter(tool_calls__isnull=False).order_by("-seq").first()
        if step is None:
            return []
        results = turns.filter(seq__gt=step.seq, tool_call_id__isnull=False)
        answered = set(results.values_list("tool_call_id", flat=True))
        return [call for call in step.tool_calls if call["id"] not in answered]

    def get_results(self, run: Run) -> list[Any]:
        """What the tools of the run have answered so far, in order."""
        turns = Turn.objects.filter(thread_id=run.thread_id, seq__gte=run.first_seq, tool_call_id__isnull=False)
        return list(turns.order_by("seq").values_list("content", flat=True))

    def finish_run(self, run: Run, status: Run.Status, *, error: str = "") -> bool:
        """Close a run that is still running, with what it has come to; one that was closed meanwhile stays as it is,
        which the answer says."""
        return self._move(run, Run.Status.RUNNING, status=status, error=error, pending=[], **_progress(run))

    def pause_run(self, thread: Thread, run: Run, pending: Sequence[dict[str, Any]]) -> None:
        """Let the run wait for a person: its lease is given back, the thread is AWAITING_HUMAN (T70, T88).

        `LeaseLostError`, and nothing changed, when the lease is another call's by now.
        """
        with transaction.atomic():
            held = Thread.objects.live(thread.tenant_id).filter(pk=thread.pk, lease_token=run.lease_token)
            if not held.update(status=Thread.Status.AWAITING_HUMAN, updated_at=Now(), **_NO_LEASE):
                raise LeaseLostError
            waits = {"status": Run.Status.AWAITING_HUMAN, "pending": list(pending), **_progress(run)}
            if not self._move(run, Run.Status.RUNNING, **waits):
                raise LeaseLostError

    def resume_run(self, thread: Thread, run: Run) -> None:
        """Go on with a waiting run under a new lease; of two that try, one does. Both objects are moved along.

        What it waited for stays noted until it has got further. `RunNotWaitingError` when it does not wait (any more).
        """
        lease = {"lease_token": uuid4(), "lease_expires_at": after(conf.LEASE_SECONDS)}
        with transaction.atomic(durable=True):
            waiting = Thread.objects.live(thread.tenant_id).filter(pk=thread.pk, status=Thread.Status.AWAITING_HUMAN)
            moved = waiting.update(status=Thread.Status.OPEN, **lease) and self._move(
                run,
                Run.Status.AWAITING_HUMAN,
                status=Run.Status.RUNNING,
                lease_token=lease["lease_token"],
            )
            if not moved:
                raise RunNotWaitingError(run_id=run.pk)
        thread.status = Thread.Status.OPEN

    def reopen_run(self, thread: Thread, run: Run, *, token: UUID) -> bool:
        """Run a failed run again under the lease ``token``; False when the conversation has gone on without it, or the
        question was forgotten."""
        later = Turn.objects.filter(thread_id=thread.pk, seq__gt=run.first_seq)
        # What the run itself stores before its answer: calls and their results.
        others = later.filter(tool_calls__isnull=True, tool_call_id__isnull=True).exclude(status="interrupted")
        question = Turn.objects.filter(thread_id=thread.pk, seq=run.first_seq).exclude(status="forgotten")
        return (
            not others.exists()
            and question.exists()
            and self._move(run, run.status, status=Run.Status.RUNNING, error="", lease_token=token, finished_at=None)
        )

    def cancel_run(self, tenant_id: UUID, run_id: UUID, *, user_id: str) -> Run:
        """End a run that waits, or one that is running: its lease is taken away, so it cannot write any more.

        Cancelled twice is cancelled once; over otherwise: `RunOverError`.
        """
        with transaction.atomic():
            run = self.get_run(tenant_id, run_id, user_id=user_id)
            threads = Thread.objects.of_user(tenant_id, user_id)
            thread = threads.select_for_update().filter(pk=run.thread_id).first()
            if thread is None:
                raise ThreadNotFoundError
            run.refresh_from_db(fields=["status", "lease_token", "last_seq"])
            if run.status == Run.Status.CANCELLED:
                return run
            if run.status in _OVER:
                raise RunOverError(run_id=run.pk)
            waits = run.status == Run.Status.AWAITING_HUMAN
            mark = {"status": Thread.Status.AWAITING_HUMAN} if waits else {"lease_token": run.lease_token}
            held = Thread.objects.filter(pk=run.thread_id, **mark)
            last_seq = thread.turn_count if held.update(status=Thread.Status.OPEN, **_NO_LEASE) else run.last_seq
            self._move(run, run.status, status=Run.Status.CANCELLED, pending=[], last_seq=last_seq)
        return run

    def recover_stuck_runs(self) -> int:
        """Take the runs out of the way that nobody can be running any more: their lease is over, or another call's
        (T116–T118); how many. From then on they cannot write.

        They are failed; one that had got no further since a person decided waits for that person again. Runs that wait
        hold no lease and are left alone.
        """
        alive = Q(thread__lease_token=F("lease_token"), thread__lease_expires_at__gt=Now())
        stuck = Run.objects.filter(status=Run.Status.RUNNING).exclude(alive)
        return sum(self._recover(run) for run in stuck.select_related("thread"))

    @transaction.atomic
    def _recover(self, run: Run) -> bool:
        thread = Thread.objects.select_for_update().filter(pk=run.thread_id).first()
        if thread is None:
            return False
        lost = Thread.objects.filter(pk=thread.pk, lease_token=run.lease_token)
        lost.unleased().update(**_NO_LEASE)
        if lost.exists():
            return False
        free = Thread.objects.filter(pk=thread.pk, status=Thread.Status.OPEN).unleased()
        waits = run.pending and run.last_seq == thread.turn_count and free.exists()
        if not waits:
            return self._move(run, Run.Status.RUNNING, status=Run.Status.FAILED, error="interrupted", pending=[])
        moved = self._move(run, Run.Status.RUNNING, status=Run.Status.AWAITING_HUMAN)
        # A lease that ran out may be another call's, which has written nothing.
        return moved and bool(free.update(status=Thread.Status.AWAITING_HUMAN, **_NO_LEASE))

    def _move(self, run: Run, old: str, **values: Any) -> bool:
        """One conditional UPDATE; whether it held, and then the object is moved along.

        It holds from the status ``old``, and only under the lease that was read: every resumption has another one.
        """
        finished = {"finished_at": Now()} if values["status"] in _OVER else {}
        if not Run.objects.filter(pk=run.pk, status=old, lease_token=run.lease_token).update(**values, **finished):
            return False
        for name, value in values.items():
            setattr(run, name, value)
        return True


def _progress(run: Run) -> dict[str, Any]:
    return {name: getattr(run, name) for name in _PROGRESS}
