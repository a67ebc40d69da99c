"""The owner of what is known about a user across threads (rows U1–U113).

Every write locks the user's record first, so two writers never lose each other's facts, and holds the caps: at most
``MAX_FACTS`` active facts, key and value at most ``MAX_FACT_CHARS`` code points.
"""

import hashlib
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from django.db import transaction
from django.db.models.functions import Now
from django.utils import timezone

from memorygw.conf import component, conf
from memorygw.exceptions import (
    BlankFactError,
    ErasureRunningError,
    ExtractionCallError,
    ExtractionError,
    ExtractionReplyError,
    FactTooLongError,
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
from usermemory.models import ExtractionState, Fact, FactQuerySet, UserMemory

logger = logging.getLogger(__name__)

BATCH_TURNS = 50


@dataclass(frozen=True)
class Origin:
    """Where a fact comes from: who wrote it, how sure, and out of which thread and turn of it."""

    origin: str
    confidence: float = 1.0
    thread_id: UUID | None = None
    seq: int | None = None


@dataclass
class Merge:
    """What a list of operations did."""

    applied: int = 0
    skipped: list[str] = field(default_factory=list)


class UserMemoryStore:
    """The shipped implementation of ``MEMORYGW_USER_MEMORY_STORE``."""

    # --- reading

    def get_facts(self, tenant_id: UUID, user_id: str) -> list[Fact]:
        """The active facts of the user, in the order in which they came; [] for an unknown user (U26–U36)."""
        facts = Fact.objects.of_user(tenant_id, user_id).active().in_order()
        return list(facts.only("key", "value", "updated_at", "origin", "source_thread_id"))

    # --- the record

    def open_record(self, tenant_id: UUID, user_id: str) -> UUID:
        """The id of the user's record, made when missing. `ErasureRunningError` while the person is being erased."""
        with transaction.atomic():
            return self._lock_record(tenant_id, user_id).pk

    def find_record(self, record_id: UUID) -> tuple[UUID, str] | None:
        """Tenant and user of a record; None when it is gone or being erased."""
        records = UserMemory.objects.filter(pk=record_id, erasing_at__isnull=True)
        return records.values_list("tenant_id", "user_id").first()

    # --- the user's own edits

    def upsert_fact(
        self, tenant_id: UUID, user_id: str, key: str, value: str, *, origin: str = Fact.Origin.MANUAL
    ) -> Fact:
        """Set one fact by hand, or by the remember tool, at once (U37–U54). Its date moves even when the value is the
        same."""
        key, value = one_line(key).strip(), value.strip()
        if not normalize_key(key) or not value:
            raise BlankFactError
        limit = conf.MAX_FACT_CHARS
        if limit and max(len(key), len(value)) > limit:
            raise FactTooLongError(f"Key and value can have {limit} characters each.")
        with transaction.atomic():
            self._lock_record(tenant_id, user_id)
            fact = self._write(tenant_id, user_id, key, value, Origin(origin))
            self._drop_stalest(tenant_id, user_id, keep=fact)
        return fact

    def remove_fact(self, tenant_id: UUID, user_id: str, key: str) -> None:
        """Forget one fact; nothing happens when there is none of this key (U58–U63)."""
        self._fact(tenant_id, user_id, key).delete()

    def clear(self, tenant_id: UUID, user_id: str) -> None:
        """Forget every fact, in whatever state. The record stays, with a watermark: turns stored up to now are never
        learned from again, not even by a job that is running (U64–U68, C28)."""
        with transaction.atomic():
            self._lock_record(tenant_id, user_id)
            UserMemory.objects.filter(tenant_id=tenant_id, user_id=user_id).update(cleared_at=Now())
            Fact.objects.personal_to(tenant_id, user_id).delete()

    # --- erasure

    def begin_erasure(self, tenant_id: UUID, user_id: str) -> None:
        """Mark the record, alone: from its commit on nothing is written for this user (S3–S5)."""
        with transaction.atomic():
            self._lock_record(tenant_id, user_id, erasing=True)
            UserMemory.objects.filter(tenant_id=tenant_id, user_id=user_id).update(erasing_at=Now())

    def cancel_erasure(self, tenant_id: UUID, user_id: str) -> None:
        UserMemory.objects.filter(tenant_id=tenant_id, user_id=user_id).update(erasing_at=None)

    def delete_by_user(self, tenant_id: UUID, user_id: str) -> int:
        """The facts and the record go; how many facts there were (U69–U73)."""
        with transaction.atomic():
            self._lock_record(tenant_id, user_id, erasing=True)
            count, _ = Fact.objects.personal_to(tenant_id, user_id).delete()
            UserMemory.objects.filter(tenant_id=tenant_id, user_id=user_id).delete()
        return count

    def has_user(self, tenant_id: UUID, user_id: str) -> bool:
        """Whether anything of the user is stored, in whatever state."""
        record = UserMemory.objects.filter(tenant_id=tenant_id, user_id=user_id)
        return record.exists() or Fact.objects.personal_to(tenant_id, user_id).exists()

    # --- learning

    def is_extract_due(self, previous_turn_count: int, turn_count: int) -> bool:
        """Early once, then on a beat: after a thread's first answer, then whenever it passed a multiple of
        ``EXTRACT_EVERY_TURNS`` (U74–U83). Pure."""
        if not conf.EXTRACTION_ENABLED or turn_count <= previous_turn_count:
            return False
        every = conf.EXTRACT_EVERY_TURNS
        return previous_turn_count == 0 or turn_count // every > previous_turn_count // every

    def note_answer(self, thread: ThreadLike) -> UUID | None:
        """Say that the thread was answered, in the transaction of the answer; the id to wake when it is due."""
        if not conf.EXTRACTION_ENABLED:
            return None
        return ExtractionState.objects.note_answer(thread.id, thread.turn_count, due=self.is_extract_due)

    def extract(self, state_id: UUID) -> None:
        """Learn from one thread, if it is due: the late work behind an answer (U85–U113).

        The row is claimed before the model is called, and the marker moves in the transaction that writes the facts: a
        turn reaches one extraction, whoever runs this, however often. A failure keeps the facts and is tried again.
        """
        while conf.EXTRACTION_ENABLED and (token := ExtractionState.objects.claim(state_id)):
            state = ExtractionState.objects.select_related("thread__persona").filter(pk=state_id).first()
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
        facts = self.get_facts(thread.tenant_id, thread.user_id)
        known = "\n".join(one_line(f"{fact.key}: {fact.value}" if fact.key else fact.value) for fact in facts)
        prompt = render_prompt("user_memory", facts=known, transcript=transcript)
        request = CompletionRequest(
            kind=ModelCall.Kind.MEMORY_USER,
            model=conf.MEMORY_MODEL or (thread.persona and thread.persona.cheap_model) or conf.CHEAP_MODEL,
            messages=[{"role": "user", "content": prompt}],
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
        record = self._lock_record(thread.tenant_id, thread.user_id)
        answered = ExtractionState.objects.values_list("answered", flat=True).get(pk=state.pk)
        more = self.is_extract_due(through, answered)
        if not ExtractionState.objects.settle(state.pk, token, covered=through, due_at=Now() if more else None):
            return
        if record.cleared_at == cleared_at:
            done = self.merge(thread.tenant_id, thread.user_id, proposal.operations, thread_id=thread.id)
            skipped = proposal.skipped + done.skipped
            logger.info(
                "Extraction of thread %s: %d applied, %d skipped %s", thread.id, done.applied, len(skipped), skipped
            )

    def merge(self, tenant_id: UUID, user_id: str, operations: Sequence[Operation], *, thread_id: UUID) -> Merge:
        """Apply operations in order, under the record's lock; "unchanged" is judged after cutting (U90–U100)."""
        done = Merge()
        for operation in operations:
            problem = self._apply(tenant_id, user_id, operation, thread_id)
            if problem:
                done.skipped.append(problem)
            else:
                done.applied += 1
        return done

    def _apply(self, tenant_id: UUID, user_id: str, operation: Operation, thread_id: UUID) -> str:
        """Why the operation did nothing, as a code; empty when it did something."""
        key = cut(one_line(operation.key), conf.MAX_FACT_CHARS)
        if not normalize_key(key):
            return "no_key"
        if operation.op == "DELETE":
            deleted, _ = self._fact(tenant_id, user_id, key).delete()
            return "" if deleted else "unknown_key"
        value = cut(operation.value, conf.MAX_FACT_CHARS)
        if not value:
            return "no_value"
        known = self._fact(tenant_id, user_id, key).first()
        if known and known.value == value:
            return "unchanged"
        origin = Origin(Fact.Origin.AUTO, operation.confidence, thread_id, operation.source_seq)
        self._drop_stalest(tenant_id, user_id, keep=self._write(tenant_id, user_id, key, value, origin))
        return ""

    # --- shared by every way in

    def _lock_record(self, tenant_id: UUID, user_id: str, *, erasing: bool = False) -> UserMemory:
        """The user's record, made when missing, locked until the end of the transaction."""
        if not user_id:
            raise ValueError("A user is required.")
        records = UserMemory.objects.select_for_update().filter(tenant_id=tenant_id, user_id=user_id)
        record = records.first()
        if record is None:
            UserMemory.objects.get_or_create(tenant_id=tenant_id, user_id=user_id)
            record = records.get()
        if record.erasing_at and not erasing:
            raise ErasureRunningError
        return record

    def _fact(self, tenant_id: UUID, user_id: str, key: str) -> FactQuerySet:
        return Fact.objects.of_user(tenant_id, user_id).active().filter(identity=identity(key))

    def _write(self, tenant_id: UUID, user_id: str, key: str, value: str, origin: Origin) -> Fact:
        """Insert or replace the active fact of this key. The id and place of a replaced one stay."""
        values = {
            "key": key,
            "value": value,
            "origin": origin.origin,
            "confidence": origin.confidence,
            "source_thread_id": origin.thread_id,
            "source_seq": origin.seq,
            # Finer than SQLite's clock: which fact changed last decides who stays at the cap.
            "updated_at": timezone.now(),
        }
        if self._fact(tenant_id, user_id, key).update(**values):
            return self._fact(tenant_id, user_id, key).get()
        return Fact.objects.create(
            tenant_id=tenant_id, owner_id=user_id, scope=Fact.Scope.USER, identity=identity(key), **values
        )

    def _drop_stalest(self, tenant_id: UUID, user_id: str, *, keep: Fact) -> None:
        """Hold the cap: the facts changed longest ago go, never the one just written (K9, C5)."""
        if not conf.MAX_FACTS:
            return
        others = Fact.objects.of_user(tenant_id, user_id).active().exclude(pk=keep.pk)
        stalest = others.order_by("-updated_at", "-created_at", "-pk").values_list("pk", flat=True)
        if surplus := list(stalest[conf.MAX_FACTS - 1 :]):
            Fact.objects.filter(pk__in=surplus).delete()


def identity(key: str) -> str:
    """What makes two facts of one owner the same: a digest, since a long key fits no index row."""
    return hashlib.sha256(normalize_key(key).encode()).hexdigest()
