"""Learning facts from what is stored: which thread is due, what the model is asked, what its answer changes."""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import F, Q
from django.db.models.functions import Now

from memorygw.claims import MAX_ATTEMPTS
from memorygw.conf import component, conf
from memorygw.database import after
from memorygw.exceptions import ErasureRunningError, ExtractionError, UsageRefusedError
from memorygw.models import Persona, Tenant
from threads.turns import ThreadLike, to_transcript
from usermemory.changes import APPLIED, PROPOSED, change, fitted
from usermemory.extraction import Operation, Proposal, check_evidence
from usermemory.models import ExtractionState, Fact, Owner, UserMemory, identity
from usermemory.reading import Reading, read_for_facts
from usermemory.review import SCANNER, TURNS, is_reviewed
from usermemory.rows import Source, drop_stalest_texts, lock_record, note_new_words

logger = logging.getLogger(__name__)

BATCH_TURNS = 50
_SCANNED_THREADS, _SCANNED_ANYWAY, _SCANNED_FACTS, _SCANNED_CONFIDENCE = 20, 50, 10, 0.3
_MASS_DELETES = 3


@dataclass(frozen=True)
class Watermark:
    """Where a user's record stood before a model was asked; without a record, at the beginning."""

    record_id: UUID | None = None
    cleared_at: datetime | None = None

    def is_before(self, stored_at: datetime) -> bool:
        """Whether what was stored then may be learned from."""
        return self.cleared_at is None or stored_at > self.cleared_at

    def holds(self, tenant_id: UUID, user_id: str) -> bool:
        """Whether the user has not cleared their facts since, nor switched memory off, nor been erased. Locks the
        record."""
        if self.record_id is None:
            record: UserMemory | None = lock_record(tenant_id, user_id)
        else:
            record = UserMemory.objects.select_for_update().filter(pk=self.record_id, erasing_at__isnull=True).first()
        return record is not None and record.memory_enabled and record.cleared_at == self.cleared_at


@dataclass
class Merge:
    """What a list of operations did: how many took effect or wait for review, and why the others did nothing."""

    applied: int = 0
    proposed: int = 0
    skipped: list[str] = field(default_factory=list)

    def count(self, outcome: str) -> None:
        """``outcome`` of one of them: `APPLIED`, `PROPOSED`, or a code."""
        if outcome == APPLIED:
            self.applied += 1
        elif outcome == PROPOSED:
            self.proposed += 1
        else:
            self.skipped.append(outcome)


class LearningStore:
    """The part of `usermemory.store.UserMemoryStore` that learns."""

    def is_extract_due(self, previous_turn_count: int, turn_count: int, *, every: int | None = None) -> bool:
        """Early once, then on a beat: after a thread's first answer, then whenever it passed a multiple of ``every``,
        by default of ``EXTRACT_EVERY_TURNS`` (U74–U83). Pure."""
        if not conf.EXTRACTION_ENABLED or "turns" not in conf.EXTRACTION_TRIGGERS:
            return False
        if turn_count <= previous_turn_count:
            return False
        every = every or conf.EXTRACT_EVERY_TURNS
        return previous_turn_count == 0 or turn_count // every > previous_turn_count // every

    def note_answer(self, thread: ThreadLike, persona: Persona | None) -> UUID | None:
        """Say that the thread was answered, in the transaction of the answer; the id to wake when it is due."""
        if not conf.EXTRACTION_ENABLED:
            return None
        due = partial(self.is_extract_due, every=_beat(persona))
        return ExtractionState.objects.note_answer(thread.id, thread.turn_count, due=due)

    def rewind(self, thread: ThreadLike) -> None:
        """The thread lost its newest turn: the next one in its place is learned from. What was learned stays."""
        ExtractionState.objects.rewind(thread.id, thread.turn_count)

    def mark_scanned(self) -> list[UUID]:
        """One pass of the scanner: the threads that have been quiet and have enough in them that nobody has read become
        due; their states (R80, R85). At most 20, longest quiet first."""
        if not conf.EXTRACTION_ENABLED:
            return []
        states = ExtractionState.objects.filter(
            Q(thread__updated_at__lte=after(-conf.SCAN_IDLE_SECONDS)) | Q(answered__gte=F("covered") + _SCANNED_ANYWAY),
            answered__gt=F("covered"),
            answered__gte=F("covered") + conf.SCAN_MIN_TURNS,
            due_at__isnull=True,
            attempts__lt=MAX_ATTEMPTS,
            thread__deleted_at__isnull=True,
            thread__tenant__memory_extraction_enabled=True,
        )
        found = list(states.order_by("thread__updated_at").values_list("pk", flat=True)[:_SCANNED_THREADS])
        waiting = ExtractionState.objects.filter(pk__in=found, due_at__isnull=True)
        waiting.update(due_at=Now(), scanned_turns=F("answered"), attempts=0)
        return found

    def extract(self, state_id: UUID) -> None:
        """Learn from one thread, if it is due: the late work behind an answer (U85–U113).

        The row is claimed before the model is called, and the marker moves in the transaction that writes the facts: a
        turn reaches one extraction, whoever runs this, however often. A failure keeps the facts and is tried again.
        """
        while conf.EXTRACTION_ENABLED and (token := ExtractionState.objects.claim(state_id)):
            states = ExtractionState.objects.select_related("thread__persona", "thread__tenant")
            state = states.filter(pk=state_id).first()
            if state is None:
                return
            with failures_kept(ExtractionState.objects, state_id, token):
                self._extract(state, token)

    def _extract(self, state: ExtractionState, token: UUID) -> None:
        thread = state.thread
        store = component("USER_MEMORY_STORE")
        if not (thread.tenant.memory_extraction_enabled and store.remembers(thread.tenant_id, thread.user_id)):
            # Read later, with the first answer or scan after it is switched on.
            ExtractionState.objects.settle(state.pk, token)
            return
        batch = state.batch_of(BATCH_TURNS) if state.last_error == "reply_cut" else BATCH_TURNS
        through = min(state.answered, state.covered + batch)
        watermark = self.watermark(thread.tenant_id, thread.user_id)
        turns = component("THREAD_STORE").get_turns_between(thread.tenant_id, thread.id, state.covered, through)
        fresh = [
            turn for turn in turns if turn.learnable and turn.teaches_facts and watermark.is_before(turn.stored_at)
        ]
        transcript = to_transcript(fresh)
        learns = thread.persona is None or thread.persona.memory_enabled
        reading = Reading(
            tenant_id=thread.tenant_id,
            owner=_owner(state),
            transcript=transcript if learns else "",
            kind=thread.persona.fact_kind if thread.persona else Fact.Kind.KEYED,
            persona=thread.persona,
            thread_id=thread.id,
        )
        proposal = check_evidence(read_for_facts(reading), fresh)
        self._settle(state, token, through, proposal, watermark)

    def watermark(self, tenant_id: UUID, user_id: str) -> Watermark:
        """Where the user's record stands before a model is asked. `ErasureRunningError` while the person is erased."""
        record = UserMemory.objects.filter(tenant_id=tenant_id, user_id=user_id).first()
        if record and record.erasing_at:
            raise ErasureRunningError
        return Watermark(record.pk, record.cleared_at) if record else Watermark()

    def learn(
        self, reading: Reading, *, watermark: Watermark, settle: Callable[[], bool] = lambda: True
    ) -> Merge | None:
        """Learn about a user from what is no thread: a list of messages, a voice session.

        ``settle`` runs in the transaction that writes the facts, before them; where it says no, or the user has cleared
        their facts or was erased since ``watermark``, nothing is written: None. Raises what `read_for_facts` does, and
        `ErasureRunningError`.
        """
        proposal, user_id = read_for_facts(reading), reading.owner.person
        tenant = Tenant.objects.get(pk=reading.tenant_id)
        with transaction.atomic():
            if not settle() or not watermark.holds(reading.tenant_id, user_id):
                return None
            review = is_reviewed(TURNS, reading.persona, tenant)
            most = reading.persona.max_facts if reading.persona else reading.max_facts
            return self.merge(reading.tenant_id, reading.owner, proposal.operations, review=review, most_texts=most)

    @transaction.atomic
    def _settle(
        self,
        state: ExtractionState,
        token: UUID,
        through: int,
        proposal: Proposal,
        watermark: Watermark,
    ) -> None:
        """Facts and marker in one transaction, behind the fence: thread first, then the record.

        Nothing is written when the thread is gone or re-owned, the user is being erased (`ErasureRunningError`), or the
        claim was lost; nothing but the marker when the user cleared their facts while the model was reading.
        """
        thread = state.thread
        fenced = component("THREAD_STORE").fence(thread.tenant_id, thread.id, thread.user_id)
        if fenced is None:
            ExtractionState.objects.settle(state.pk, token)
            return
        # It may have been deleted while the model was reading.
        thread.persona = fenced.persona
        lock_record(thread.tenant_id, thread.user_id)
        answered = ExtractionState.objects.filter(pk=state.pk).values_list("answered", flat=True).first() or 0
        # The rest of a long thread is for the scanner's next pass: so much at a time, and no more (R85).
        due = self.is_extract_due(through, answered, every=_beat(thread.persona))
        result = {"covered": through, "due_at": Now() if due else None, "scanned_turns": None}
        if not ExtractionState.objects.settle(state.pk, token, **result):
            return
        if watermark.holds(thread.tenant_id, thread.user_id):
            done = self._merge_learned(state, proposal.operations)
            skipped = proposal.skipped + done.skipped
            logger.info(
                "Extraction of thread %s: %d applied, %d skipped %s, %d to review",
                thread.id,
                done.applied,
                len(skipped),
                skipped,
                done.proposed,
            )

    def _merge_learned(self, state: ExtractionState, operations: Sequence[Operation]) -> Merge:
        thread = state.thread
        review = is_reviewed(SCANNER if state.is_scanned else TURNS, thread.persona, thread.tenant)
        if state.is_scanned:
            sure = [operation for operation in operations if operation.confidence >= _SCANNED_CONFIDENCE]
            operations = sure[:_SCANNED_FACTS]
        most = thread.persona.max_facts if thread.persona else None
        return self.merge(
            thread.tenant_id, _owner(state), operations, thread_id=thread.id, review=review, most_texts=most
        )

    def merge(
        self,
        tenant_id: UUID,
        owner: Owner,
        operations: Sequence[Operation],
        *,
        thread_id: UUID | None = None,
        review: bool = False,
        most_texts: int | None = None,
    ) -> Merge:
        """Apply operations in order, or propose them (U90–U100, C1). The caller holds the owner's lock.

        Whatever the policy, many deletions at once wait for a person, and what is doubtful. A DELETE of what the same
        list sets later is a model's way to replace a value.
        """
        keys = [identity(fitted(operation).key) for operation in operations]
        replaced = {
            index
            for index, operation in enumerate(operations)
            if operation.op == "DELETE" and _is_set_later(operations[index:], keys[index:])
        }
        known = set(Fact.objects.of(tenant_id, owner).active().values_list("identity", flat=True))
        kept = [index for index in range(len(operations)) if index not in replaced]
        deleted = known & {keys[index] for index in kept if operations[index].op == "DELETE"}
        mass = len(deleted) >= _MASS_DELETES and 2 * len(deleted) > len(known)
        done = Merge(skipped=["replaced"] * len(replaced))
        for operation in (operations[index] for index in kept):
            source = Source(Fact.Origin.AUTO, operation.confidence, thread_id, operation.source_seq)
            doubtful = review or (mass and operation.op == "DELETE")
            done.count(change(tenant_id, owner, operation, source, review=doubtful))
        drop_stalest_texts(tenant_id, owner, most_texts if done.applied else None)
        if done.applied or done.proposed:
            note_new_words(tenant_id, owner)
        return done


@contextmanager
def failures_kept(states: Any, pk: UUID, token: UUID) -> Iterator[None]:
    """Around an attempt to learn: why it failed is kept with its row, and it is tried again later."""
    try:
        yield
    except ExtractionError as error:
        logger.warning("%s: %s, error %s", states.model(pk=pk), error.reason, error.number)
        states.fail(pk, token, error.reason)
    except (ErasureRunningError, UsageRefusedError) as error:
        states.fail(pk, token, error.code)


def _owner(state: ExtractionState) -> Owner:
    """Whose the learned facts are: the user's; from the scanner, in a persona's thread, the user's with it (R92)."""
    thread = state.thread
    if state.is_scanned and thread.persona_id:
        return Owner.persona_user(thread.persona_id, thread.user_id)
    return Owner.user(thread.user_id)


def _is_set_later(operations: Sequence[Operation], keys: Sequence[str]) -> bool:
    """Whether one behind the first sets the key of the first."""
    return any(operation.op == "SET" and key == keys[0] for operation, key in zip(operations, keys, strict=True))


def _beat(persona: Persona | None) -> int | None:
    """Turns between two extractions: free texts are learned after every answer (A4, C13), else as the setting says."""
    return 1 if persona and persona.fact_kind == Fact.Kind.TEXT else None
