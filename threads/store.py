"""The owner of conversations: threads, their turns, their runs and the lease that lets one call at a time in.

Every method takes the tenant. A thread that is missing, marked as deleted, or another tenant's is the same
`ThreadNotFoundError` (T13, T27–T29); with ``user_id`` so is another user's.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import accumulate
from operator import or_
from typing import Any, Literal
from uuid import UUID, uuid4

from django.db import transaction
from django.db.models import Q, QuerySet
from django.db.models.functions import Now

from memorygw.conf import conf
from memorygw.database import after
from memorygw.exceptions import (
    DoubleResultError,
    InvalidError,
    LeaseLostError,
    MemorygwError,
    ThreadAwaitingHumanError,
    ThreadBusyError,
    ThreadClosedError,
    ThreadNotFoundError,
)
from memorygw.ids import new_id
from memorygw.paging import Page, newest_first
from memorygw.retention import kept
from threads.models import Run, Thread, ThreadQuerySet, TitleState, Turn
from threads.runs import RunStore
from threads.seen import SeenStore, histories_of
from threads.titles import forget_title
from threads.turns import INSTRUCTION_ROLES, TurnDraft, turn_tokens
from threads.windows import WindowStore


@dataclass(frozen=True)
class Counts:
    threads: int = 0
    turns: int = 0
    runs: int = 0


class ThreadStore(RunStore, SeenStore, WindowStore):
    """The shipped implementation of ``MEMORYGW_THREAD_STORE``."""

    # --- threads

    def create_thread(
        self,
        tenant_id: UUID,
        user_id: str,
        *,
        title: str = "",
        persona_id: UUID | None = None,
        leased: bool = False,
        thread_id: UUID | None = None,
    ) -> Thread:
        """A new thread: OPEN, no turns; ``leased``: with a lease already taken, so that nobody comes in between."""
        lease = {"lease_token": uuid4(), "lease_expires_at": after(conf.LEASE_SECONDS)} if leased else {}
        place = {"tenant_id": tenant_id, "user_id": user_id, "persona_id": persona_id}
        return Thread.objects.create(pk=thread_id or new_id(), title=title, **place, **lease)

    def find_thread(self, tenant_id: UUID, thread_id: UUID, *, user_id: str | None = None) -> Thread | None:
        return self._threads(tenant_id, user_id).select_related("persona").filter(pk=thread_id).first()

    def get_thread(self, tenant_id: UUID, thread_id: UUID, *, user_id: str | None = None) -> Thread:
        thread = self.find_thread(tenant_id, thread_id, user_id=user_id)
        if thread is None:
            raise ThreadNotFoundError
        return thread

    def find_threads(self, tenant_id: UUID, thread_ids: Collection[UUID], *, user_id: str) -> list[Thread]:
        """Those of the threads that are the user's, in any order."""
        return list(self._threads(tenant_id, user_id).filter(pk__in=thread_ids)) if thread_ids else []

    def open_session(self, tenant_id: UUID, user_id: str, session_id: str, *, persona_id: UUID | None = None) -> Thread:
        """The user's thread of this session id, made when missing; it is this persona's from now on (C24)."""
        threads = Thread.objects.of_user(tenant_id, user_id).select_related("persona")
        thread = threads.filter(session_id=session_id).first()
        if thread is None:
            place = {"tenant_id": tenant_id, "user_id": user_id, "session_id": session_id}
            # One that nobody sees any more has the name no longer.
            hidden = Thread.objects.filter(**place).exclude(pk__in=threads.filter(session_id=session_id).values("pk"))
            hidden.update(session_id=None)
            Thread.objects.get_or_create(**place, defaults={"persona_id": persona_id})
            thread = threads.get(session_id=session_id)
        if persona_id and thread.persona_id != persona_id:
            Thread.objects.filter(pk=thread.pk).update(persona_id=persona_id)
            thread = threads.get(session_id=session_id)
        return thread

    def is_leased(self, thread: Thread) -> bool:
        return Thread.objects.leased().filter(pk=thread.pk).exists()

    def list_threads(
        self,
        tenant_id: UUID,
        user_id: str,
        *,
        limit: int,
        starting_after: UUID | None = None,
        ending_before: UUID | None = None,
    ) -> Page[Thread]:
        """One page, newest first. ``ending_before`` a thread: the next older ones; ``starting_after``: the adjacent
        newer ones (K13). A cursor that is no live thread of this user: `ThreadNotFoundError`."""
        return newest_first(
            Thread.objects.of_user(tenant_id, user_id).select_related("persona"),
            limit=limit,
            starting_after=starting_after,
            ending_before=ending_before,
            missing=ThreadNotFoundError,
        )

    def lock_threads(self, tenant_id: UUID, thread_ids: Sequence[UUID] | Literal["all"], *, user_id: str) -> list[UUID]:
        """Those of the threads that are the user's, locked until the end of the caller's transaction, in the order of
        their ids."""
        threads = self._threads(tenant_id, user_id)
        threads = threads if thread_ids == "all" else threads.filter(pk__in=thread_ids)
        return list(threads.order_by("pk").select_for_update().values_list("pk", flat=True))

    def list_thread_ids(self, tenant_id: UUID, *, user_id: str | None = None) -> list[UUID]:
        """Every live thread of the user, or of the tenant; no paging (T53, T54)."""
        return list(self._threads(tenant_id, user_id).order_by("pk").values_list("pk", flat=True))

    def rename_thread(self, tenant_id: UUID, thread_id: UUID, title: str, *, user_id: str) -> Thread:
        changed = self._threads(tenant_id, user_id).filter(pk=thread_id).update(title=title, updated_at=Now())
        if not changed:
            raise ThreadNotFoundError
        if title:
            # It is nobody's to make any more, and to take away.
            TitleState.objects.filter(pk=thread_id).delete()
        return self.get_thread(tenant_id, thread_id, user_id=user_id)

    def delete(
        self, tenant_id: UUID, thread_ids: Sequence[UUID] | Literal["all"], *, user_id: str | None = None
    ) -> Counts:
        """Hard-delete threads with all that hangs on them. Ids that are not there are ignored; a busy thread stops it
        all with `ThreadBusyError` and nothing is deleted (T94–T102)."""
        threads = self._threads(tenant_id, user_id)
        return self._delete(threads if thread_ids == "all" else threads.filter(pk__in=thread_ids))

    def fence(self, tenant_id: UUID, thread_id: UUID, user_id: str) -> Thread | None:
        """Lock the thread for a late write, in the caller's transaction; None: it is gone, or someone else's now."""
        threads = Thread.objects.of_user(tenant_id, user_id).select_related("persona")
        return threads.select_for_update(of=("self",)).filter(pk=thread_id).first()

    # --- the lease

    def acquire_lease(self, tenant_id: UUID, thread_id: UUID, *, user_id: str, seconds: int | None = None) -> UUID:
        """Mark the thread busy for one call; the token every write of the call carries (T76–T88).

        One conditional UPDATE on the database's clock. Held: `ThreadBusyError`; not OPEN: the error of that status.
        """
        token = uuid4()
        free = self._threads(tenant_id, user_id).filter(pk=thread_id, status=Thread.Status.OPEN).unleased()
        if free.update(lease_token=token, lease_expires_at=after(seconds or conf.LEASE_SECONDS)):
            return token
        raise self._refusal(self.get_thread(tenant_id, thread_id, user_id=user_id))

    def renew_lease(self, tenant_id: UUID, thread_id: UUID, token: UUID) -> bool:
        """Let the lease with this token last as long as a new one; False when it is another's."""
        held = Thread.objects.filter(tenant_id=tenant_id, pk=thread_id, lease_token=token)
        return bool(held.update(lease_expires_at=after(conf.LEASE_SECONDS)))

    def release_lease(self, tenant_id: UUID, thread_id: UUID, token: UUID) -> None:
        """Free the lease with this token; one that another call took since stays (T85)."""
        held = Thread.objects.filter(tenant_id=tenant_id, pk=thread_id, lease_token=token)
        held.update(lease_token=None, lease_expires_at=None)

    def _refusal(self, thread: Thread) -> MemorygwError:
        """Why a thread that is there takes no call."""
        if thread.status == Thread.Status.AWAITING_HUMAN:
            return ThreadAwaitingHumanError(thread_ids=[thread.pk], run_id=self.waiting_run_id(thread.pk))
        return (ThreadClosedError if thread.status == Thread.Status.CLOSED else ThreadBusyError)(thread_ids=[thread.pk])

    # --- turns

    def append_turns(
        self,
        thread: Thread,
        drafts: Sequence[TurnDraft],
        *,
        token: UUID | None,
        model: str = "",
        lease: Literal["keep", "renew", "release"] = "keep",
    ) -> list[Turn]:
        """Store turns at the end, all or none, in the caller's transaction or their own: two statements for any number.

        Their numbers follow from the counters of ``thread``; the UPDATE that moves the counters holds only where they
        are still as they were read, and only under the token. So no number is given twice, and a call that outlived its
        lease writes until another call took over (T82), then gets `LeaseLostError`. Without a token it holds only while
        nobody has the thread, and the errors are those of `acquire_lease`. ``lease`` says what the same statement makes
        of the caller's lease. ``thread`` is moved along.
        """
        costs = [turn_tokens(draft, model) for draft in drafts]
        counted = [0 if draft.role in INSTRUCTION_ROLES else cost for draft, cost in zip(drafts, costs, strict=True)]
        histories = histories_of(thread, drafts)
        with transaction.atomic(savepoint=False):
            if self._move_counters(thread, drafts, sum(counted), histories, token=token, lease=lease):
                seqs = range(thread.turn_count - len(drafts) + 1, thread.turn_count + 1)
                through = list(accumulate(counted, initial=thread.token_count - sum(counted)))[1:]
                places = zip(drafts, seqs, costs, through, histories, strict=True)
                return _insert(
                    [
                        _turn(
                            draft, thread_id=thread.pk, seq=seq, token_count=cost, tokens_through=total, history=history
                        )
                        for draft, seq, cost, total, history in places
                    ]
                )
        # The lease is lost, or this copy of the thread is old.
        fresh = self.get_thread(thread.tenant_id, thread.pk)
        if token is None and fresh.turn_count == thread.turn_count:
            raise self._refusal(fresh)
        if token is not None and fresh.lease_token != token:
            raise LeaseLostError
        turns = self.append_turns(fresh, drafts, token=token, model=model, lease=lease)
        thread.turn_count, thread.token_count, thread.history = fresh.turn_count, fresh.token_count, fresh.history
        thread.instructions_seq = fresh.instructions_seq
        return turns

    def get_turns(self, tenant_id: UUID, thread_id: UUID, *, user_id: str | None = None) -> list[Turn]:
        """The whole history, oldest first, in one read (T62)."""
        self.get_thread(tenant_id, thread_id, user_id=user_id)
        return list(Turn.objects.filter(thread_id=thread_id).order_by("seq"))

    def find_turn(self, thread: Thread, turn_id: UUID) -> Turn | None:
        return Turn.objects.filter(thread_id=thread.pk, pk=turn_id).first()

    def find_turns(self, tenant_id: UUID, places: Collection[tuple[UUID, int]], *, user_id: str) -> list[Turn]:
        """The turns of these numbers in these threads, as far as the threads are the user's; some hundred at most."""
        if not places:
            return []
        # Pair by pair: each is one place of an index, and what others there are in these threads stays unread.
        wanted = reduce(or_, (Q(thread_id=thread_id, seq=seq) for thread_id, seq in places))
        owner = {"thread__tenant_id": tenant_id, "thread__user_id": user_id, "thread__deleted_at__isnull": True}
        alive = kept(tenant_id, "threads", "thread__updated_at")
        found = Turn.objects.filter(wanted, alive, **owner)
        return list(found.defer("tool_calls", "client_view", "extras", "metadata"))

    def has_id(self, made_id: UUID) -> bool:
        """Whether a thread, a turn or a run has this id."""
        return any(model.objects.filter(pk=made_id).exists() for model in (Turn, Run, Thread))

    def get_last_turns(self, tenant_id: UUID, thread_id: UUID, limit: int) -> list[Turn]:
        """The newest ``limit`` turns, oldest first (T60)."""
        return list(self._turns(tenant_id, thread_id).order_by("-seq")[:limit])[::-1]

    def get_turns_between(self, tenant_id: UUID, thread_id: UUID, after_seq: int, through_seq: int) -> list[Turn]:
        """Turns above ``after_seq`` up to and with ``through_seq``, oldest first."""
        stretch = self._turns(tenant_id, thread_id).filter(seq__gt=after_seq, seq__lte=through_seq)
        return list(stretch.order_by("seq"))

    def _move_counters(
        self,
        thread: Thread,
        drafts: Sequence[TurnDraft],
        tokens: int,
        histories: Sequence[UUID | None],
        *,
        token: UUID | None,
        lease: str,
    ) -> bool:
        """One conditional UPDATE of the thread's row; whether it held."""
        unmoved = Thread.objects.live(thread.tenant_id).filter(
            pk=thread.pk, turn_count=thread.turn_count, token_count=thread.token_count
        )
        free = unmoved.filter(status=Thread.Status.OPEN).unleased()
        unmoved = free if token is None else unmoved.filter(lease_token=token)
        instructions = [n for n, draft in enumerate(drafts, thread.turn_count + 1) if draft.role in INSTRUCTION_ROLES]
        counters = {
            "turn_count": thread.turn_count + len(drafts),
            "token_count": thread.token_count + tokens,
            "history": next((history for history in reversed(histories) if history), thread.history),
        } | ({"instructions_seq": instructions[-1]} if instructions else {})
        leases: dict[str, dict[str, Any]] = {
            "keep": {},
            "renew": {"lease_expires_at": after(conf.LEASE_SECONDS)},
            "release": {"lease_token": None, "lease_expires_at": None},
        }
        if not unmoved.update(**counters, updated_at=Now(), **leases[lease]):
            return False
        for name, value in counters.items():
            setattr(thread, name, value)
        return True

    def get_question(self, thread: Thread) -> Turn | None:
        """The thread's latest user turn."""
        return Turn.objects.filter(thread_id=thread.pk, role=Turn.Role.USER).order_by("-seq").first()

    def get_instructions(self, thread: Thread) -> Turn | None:
        """The thread's latest system or developer turn; no query when it has none."""
        if thread.instructions_seq is None:
            return None
        return Turn.objects.filter(thread_id=thread.pk, seq=thread.instructions_seq).first()

    def pop_turn(self, thread: Thread) -> Turn | None:
        """Take the newest turn away again, in the caller's transaction, behind `fence`; None: there was none.

        `ThreadBusyError` and its kin where a call is running. ``thread`` is moved along.
        """
        if thread.status != Thread.Status.OPEN or self.is_leased(thread):
            raise self._refusal(thread)
        turn = Turn.objects.filter(thread_id=thread.pk).order_by("-seq").first()
        if turn:
            self._drop(thread, turn)
        return turn

    def redact_turn(self, thread: Thread, turn: Turn) -> None:
        """Empty a turn, in the caller's transaction, behind `fence`: its number and its times stay, and a title that
        was made of it goes. `ThreadBusyError` and its kin where a call is running."""
        if thread.status == Thread.Status.AWAITING_HUMAN or self.is_leased(thread):
            raise self._refusal(thread)
        said = dict.fromkeys(("content", "tool_calls", "tool_call_id", "refusal", "client_view", "extras", "history"))
        Turn.objects.filter(pk=turn.pk).update(**said, metadata={}, status=Turn.Status.FORGOTTEN)
        # What a client got instead of a later turn may repeat it.
        Turn.objects.filter(thread_id=thread.pk, client_view__isnull=False).update(client_view=None)
        if thread.instructions_seq == turn.seq:
            older = Turn.objects.filter(thread_id=thread.pk, role__in=INSTRUCTION_ROLES, seq__lt=turn.seq)
            latest = older.exclude(status=Turn.Status.FORGOTTEN).order_by("-seq").values_list("seq", flat=True).first()
            Thread.objects.filter(pk=thread.pk).update(instructions_seq=latest)
        forget_title(thread, turn.seq)

    def drop_interrupted(self, thread: Thread) -> None:
        """Take a broken answer at the end away, since the question is answered anew, under the caller's lease."""
        turn = Turn.objects.filter(thread_id=thread.pk, seq=thread.turn_count, status=Turn.Status.INTERRUPTED).first()
        if turn:
            self._drop(thread, turn)

    def _drop(self, thread: Thread, turn: Turn) -> None:
        turns = Turn.objects.filter(thread_id=thread.pk)
        turn.delete()
        instructions = turns.filter(role__in=INSTRUCTION_ROLES).order_by("-seq").values_list("seq", flat=True)
        seen = turns.filter(history__isnull=False).order_by("-seq").values_list("history", flat=True)
        thread.turn_count -= 1
        thread.token_count -= 0 if turn.role in INSTRUCTION_ROLES else turn.token_count
        if thread.instructions_seq == turn.seq:
            thread.instructions_seq = instructions.first()
        thread.history = seen.first()
        thread.save(update_fields=["turn_count", "token_count", "instructions_seq", "history"])

    def check_results(self, thread: Thread, drafts: Sequence[TurnDraft]) -> None:
        """Refuse tool turns that answer no call, or a call that has its result; one query, only for tool turns.

        An unknown call: `InvalidError`; a second result: `DoubleResultError`.
        """
        if not any(draft.role == "tool" for draft in drafts):
            return
        tools = Turn.objects.filter(thread_id=thread.pk).filter(
            Q(tool_calls__isnull=False) | Q(tool_call_id__isnull=False)
        )
        waiting: dict[str, bool] = {}
        for calls, answered in tools.order_by("seq").values_list("tool_calls", "tool_call_id"):
            waiting |= {call["id"]: True for call in calls or ()} | ({answered: False} if answered else {})
        for index, draft in enumerate(drafts):
            waiting |= {call["id"]: True for call in draft.tool_calls or ()}
            if draft.role == "tool":
                call_id = draft.tool_call_id or ""
                if call_id not in waiting:
                    raise InvalidError(fields={f"turns[{index}].tool_call_id": ["No turn made this call."]})
                if not waiting[call_id]:
                    raise DoubleResultError
                waiting[call_id] = False

    def _turns(self, tenant_id: UUID, thread_id: UUID) -> "QuerySet[Turn]":
        """The turns of a live thread of the tenant; a join, since a subquery may list every thread there is."""
        return Turn.objects.filter(thread_id=thread_id, thread__tenant_id=tenant_id, thread__deleted_at__isnull=True)

    def _threads(self, tenant_id: UUID, user_id: str | None) -> ThreadQuerySet:
        return Thread.objects.live(tenant_id) if user_id is None else Thread.objects.of_user(tenant_id, user_id)

    @transaction.atomic
    def _delete(self, threads: ThreadQuerySet) -> Counts:
        # In the order of their ids, like every lock on several threads.
        ids = list(threads.order_by("pk").select_for_update().values_list("pk", flat=True))
        doomed = Thread.objects.filter(pk__in=ids)
        self._refuse_leased(doomed)
        _, rows = doomed.delete()
        return Counts(len(ids), rows.get(Turn._meta.label, 0), rows.get(Run._meta.label, 0))

    def _refuse_leased(self, threads: ThreadQuerySet) -> None:
        if busy := list(threads.leased().values_list("pk", flat=True)):
            raise ThreadBusyError(thread_ids=busy)


def _insert(turns: list[Turn]) -> list[Turn]:
    """One statement; most appends are a single turn, for which bulk_create takes half as long again."""
    if len(turns) == 1:
        turns[0].save(force_insert=True)
        return turns
    return Turn.objects.bulk_create(turns)


def _turn(draft: TurnDraft, **place: Any) -> Turn:
    turn = Turn(
        role=draft.role,
        content=draft.content,
        tool_calls=draft.tool_calls,
        tool_call_id=draft.tool_call_id,
        refusal=draft.refusal,
        model=draft.model,
        metadata=draft.metadata,
        client_view=draft.client_view,
        extras=draft.extras,
        learnable=draft.learnable,
        teaches_facts=draft.teaches_facts,
        status=draft.status,
        **place,
    )
    if draft.id:
        turn.id = draft.id
    if draft.created_at:
        turn.created_at = draft.created_at
    return turn
