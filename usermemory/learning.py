"""Learning facts from what is stored: which thread is due, what the model is asked, what its answer changes."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from django.db import transaction
from django.db.models import F, Q
from django.db.models.functions import Now

from memorygw.conf import component, conf
from memorygw.database import after
from memorygw.exceptions import (
    ErasureRunningError,
    ExtractionCallError,
    ExtractionError,
    ExtractionReplyError,
    ModelFailedError,
    UsageRefusedError,
)
from memorygw.llm.base import CompletionRequest
from memorygw.llm.calls import call_model
from memorygw.models import ModelCall
from memorygw.prompts import render_prompt
from memorygw.text import cut, normalize_key, one_line
from threads.turns import ThreadLike, to_transcript
from usermemory.extraction import SCHEMA, Operation, Proposal, check_evidence, parse
from usermemory.models import ExtractionState, Fact, Owner, UserMemory, identity
from usermemory.refusals import refusal
from usermemory.review import SCANNER, TURNS, is_reviewed
from usermemory.rows import Source, content, lock_record, origin_of, propose, write

logger = logging.getLogger(__name__)

BATCH_TURNS = 50
_SCANNED_THREADS, _SCANNED_ANYWAY, _SCANNED_FACTS, _SCANNED_CONFIDENCE = 20, 50, 10, 0.3
_MASS_DELETES, _LONGEST_READ = 3, 10_000


@dataclass
class Merge:
    """What a list of operations did: how many took effect or wait for review, and why the others did nothing."""

    applied: int = 0
    proposed: int = 0
    skipped: list[str] = field(default_factory=list)


class LearningStore:
    """The part of `usermemory.store.UserMemoryStore` that learns."""

    def is_extract_due(self, previous_turn_count: int, turn_count: int) -> bool:
        """Early once, then on a beat: after a thread's first answer, then whenever it passed a multiple of
        ``EXTRACT_EVERY_TURNS`` (U74–U83). Pure."""
        if not conf.EXTRACTION_ENABLED or "turns" not in conf.EXTRACTION_TRIGGERS:
            return False
        if turn_count <= previous_turn_count:
            return False
        every = conf.EXTRACT_EVERY_TURNS
        return previous_turn_count == 0 or turn_count // every > previous_turn_count // every

    def note_answer(self, thread: ThreadLike) -> UUID | None:
        """Say that the thread was answered, in the transaction of the answer; the id to wake when it is due."""
        if not conf.EXTRACTION_ENABLED:
            return None
        return ExtractionState.objects.note_answer(thread.id, thread.turn_count, due=self.is_extract_due)

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
            try:
                self._extract(state, token)
            except ExtractionError as error:
                logger.warning("Extraction of thread %s: %s, error %s", state_id, error.reason, error.number)
                ExtractionState.objects.fail(state_id, token, error.reason)
            except (ErasureRunningError, UsageRefusedError) as error:
                ExtractionState.objects.fail(state_id, token, error.code)

    def _extract(self, state: ExtractionState, token: UUID) -> None:
        thread = state.thread
        if not thread.tenant.memory_extraction_enabled:
            # Read later, with the first answer or scan after it is switched on.
            ExtractionState.objects.settle(state.pk, token)
            return
        batch = max(BATCH_TURNS // 2 ** (state.attempts - 1), 1) if state.last_error == "reply_cut" else BATCH_TURNS
        through = min(state.answered, state.covered + batch)
        record = UserMemory.objects.filter(tenant_id=thread.tenant_id, user_id=thread.user_id).first()
        if record and record.erasing_at:
            raise ErasureRunningError
        cleared_at = record.cleared_at if record else None
        turns = component("THREAD_STORE").get_turns_between(thread.tenant_id, thread.id, state.covered, through)
        fresh = [turn for turn in turns if turn.learnable and not (cleared_at and turn.stored_at <= cleared_at)]
        transcript = to_transcript(fresh)
        learns = transcript and (thread.persona is None or thread.persona.memory_enabled)
        proposal = self._ask(state, transcript) if learns else Proposal([], [])
        self._settle(state, token, through, check_evidence(proposal, fresh), cleared_at)

    def _ask(self, state: ExtractionState, transcript: str) -> Proposal:
        thread = state.thread
        facts = Fact.objects.of(thread.tenant_id, _owner(state)).active().in_order()
        known = "\n".join(one_line(f"{fact.key}: {fact.value}" if fact.key else fact.value) for fact in facts)
        request = CompletionRequest(
            kind=ModelCall.Kind.MEMORY_USER,
            model=conf.MEMORY_MODEL or (thread.persona and thread.persona.cheap_model) or conf.CHEAP_MODEL,
            messages=[
                {"role": "user", "content": render_prompt("user_memory", facts=known, transcript=transcript)},
            ],
            temperature=0,
            max_output_tokens=2_000,
            json_schema=SCHEMA,
        )
        try:
            completion = call_model(request, tenant_id=thread.tenant_id, thread_id=thread.id)
        except UsageRefusedError:
            raise
        except ModelFailedError as error:
            raise ExtractionCallError(error.reason) from None
        if completion.finish_reason == "length":
            raise ExtractionReplyError("reply_cut")
        proposal = parse(completion.content or "")
        if proposal is None:
            raise ExtractionReplyError("reply_malformed")
        return proposal

    @transaction.atomic
    def _settle(
        self,
        state: ExtractionState,
        token: UUID,
        through: int,
        proposal: Proposal,
        cleared_at: datetime | None,
    ) -> None:
        """Facts and marker in one transaction, behind the fence: thread first, then the record.

        Nothing is written when the thread is gone or re-owned, the user is being erased (`ErasureRunningError`), or the
        claim was lost; nothing but the marker when the user cleared their facts while the model was reading.
        """
        thread = state.thread
        if component("THREAD_STORE").fence(thread.tenant_id, thread.id, thread.user_id) is None:
            ExtractionState.objects.settle(state.pk, token)
            return
        record = lock_record(thread.tenant_id, thread.user_id)
        answered = ExtractionState.objects.values_list("answered", flat=True).get(pk=state.pk)
        unscanned = state.is_scanned and through < state.answered
        due = unscanned or self.is_extract_due(through, answered)
        result = {
            "covered": through,
            "due_at": Now() if due else None,
            "scanned_turns": answered if unscanned else None,
        }
        if not ExtractionState.objects.settle(state.pk, token, **result):
            return
        if record.cleared_at == cleared_at:
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
        return self.merge(thread.tenant_id, _owner(state), operations, thread_id=thread.id, review=review)

    def merge(
        self, tenant_id: UUID, owner: Owner, operations: Sequence[Operation], *, thread_id: UUID, review: bool = False
    ) -> Merge:
        """Apply operations in order, under the owner's lock, or propose them (U90–U100, C1).

        Whatever the policy, what is doubtful waits for a person: low confidence, no evidence where it is required, a
        fact set by hand where those are protected, and many deletions at once.
        """
        known = set(Fact.objects.of(tenant_id, owner).active().values_list("identity", flat=True))
        deleted = known & {identity(operation.key) for operation in operations if operation.op == "DELETE"}
        mass = len(deleted) >= _MASS_DELETES and 2 * len(deleted) > len(known)
        done = Merge()
        for operation in operations:
            doubtful = review or (mass and operation.op == "DELETE")
            outcome = _apply(tenant_id, owner, operation, thread_id, review=doubtful)
            if outcome == "applied":
                done.applied += 1
            elif outcome == "proposed":
                done.proposed += 1
            else:
                done.skipped.append(outcome)
        return done


def _owner(state: ExtractionState) -> Owner:
    """Whose the learned facts are: the user's; from the scanner, in a persona's thread, the user's with it (R92)."""
    thread = state.thread
    if state.is_scanned and thread.persona_id:
        return Owner.persona_user(thread.persona_id, thread.user_id)
    return Owner.user(thread.user_id)


def _apply(tenant_id: UUID, owner: Owner, operation: Operation, thread_id: UUID, *, review: bool) -> str:
    """What became of the operation: "applied", "proposed", or the code of why it did nothing."""
    key, value = cut(one_line(operation.key), conf.MAX_FACT_CHARS), cut(operation.value, conf.MAX_FACT_CHARS)
    if not normalize_key(key):
        return "no_key"
    known = Fact.objects.of(tenant_id, owner).active().keyed(key).first()
    deletes = operation.op == "DELETE"
    if deletes and known is None:
        return "unknown_key"
    if not deletes and not value:
        return "no_value"
    if not deletes and known and known.value == value:
        return "unchanged"
    # Before they are cut, since a cut number is no number.
    if not deletes and (refused := refusal(operation.key[:_LONGEST_READ], operation.value[:_LONGEST_READ])):
        return refused
    source = Source(Fact.Origin.AUTO, operation.confidence, thread_id, operation.source_seq)
    if review or _is_doubtful(operation, known):
        shown = (known.key, known.value) if deletes and known else (key, value)
        kind = Fact.Operation.DELETE if deletes else Fact.Operation.SET
        return propose(tenant_id, owner, Fact(operation=kind, **content(*shown), **origin_of(source))) or "proposed"
    if deletes and known:
        known.delete()
    else:
        write(tenant_id, owner, key, value, source)
    return "applied"


def _is_doubtful(operation: Operation, known: Fact | None) -> bool:
    unproven = operation.op == "SET" and operation.source_seq is None and conf.EVIDENCE == "required"
    protected = conf.PROTECT_MANUAL and known is not None and known.origin == Fact.Origin.MANUAL
    return operation.confidence < conf.ACTIVE_CONFIDENCE or unproven or protected
