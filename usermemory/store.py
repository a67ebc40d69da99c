"""The owner of what is known about a user across threads (rows U1–U113, R1–R66).

Every write locks the user's record first, so two writers never lose each other's facts, and holds the caps: at most
``MAX_FACTS`` active facts of an owner, key and value at most ``MAX_FACT_CHARS`` code points.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any
from uuid import UUID

from django.db import IntegrityError, transaction
from django.db.models.functions import Now
from django.utils import timezone

from memorygw.conf import conf
from memorygw.database import after
from memorygw.exceptions import (
    BlankFactError,
    ErasureRunningError,
    FactRefusedError,
    FactTooLongError,
    InvalidError,
    MemoryKeyTakenError,
    MemoryNotFoundError,
)
from memorygw.ids import new_id
from memorygw.text import NOBODY, fold, normalize_key, one_line
from threads.turns import ThreadLike, TurnLike, text_of
from usermemory.changes import APPLIED, PROPOSED, change
from usermemory.embedding import recall_facts
from usermemory.extraction import Operation
from usermemory.learning import LearningStore
from usermemory.models import EmbeddingState, ExtractionState, Fact, FactQuerySet, Owner, UserMemory, is_shown_key
from usermemory.recall import Hit
from usermemory.refusals import refusal
from usermemory.review import ReviewStore
from usermemory.rows import (
    Source,
    add_texts,
    content,
    drop_stalest_texts,
    lock_known,
    lock_owner,
    lock_record,
    note_new_words,
    write,
)


class UserMemoryStore(ReviewStore, LearningStore):
    """The shipped implementation of ``MEMORYGW_USER_MEMORY_STORE``."""

    # --- reading

    def get_facts(self, tenant_id: UUID, user_id: str) -> list[Fact]:
        """The active facts of the user, in the order in which they came; [] for an unknown user (U26–U36)."""
        facts = Fact.objects.of_user(tenant_id, user_id).kept(tenant_id).active().in_order()
        return list(facts.only("key", "value", "created_at", "updated_at", "origin", "source_thread_id"))

    def get_facts_in_reach(self, tenant_id: UUID, user_id: str, persona_id: UUID | None) -> list[Fact]:
        """The active facts that a prompt may have: the user's, the persona's, the user's with the persona (R95)."""
        facts = Fact.objects.in_reach(tenant_id, user_id, persona_id).kept(tenant_id).active().in_order()
        return list(facts.only("key", "value", "created_at", "updated_at"))

    def recall(
        self, tenant_id: UUID, user_id: str, query: str, *, persona_id: UUID | None = None, only_matches: bool = True
    ) -> list[Hit]:
        """The facts in reach that fit ``query``, best first, by words and, with an embedder, by meaning (R74–R77).

        Without ``only_matches`` all of them, the others last. An embedder that fails is done without (R101).
        """
        facts = Fact.objects.in_reach(tenant_id, user_id, persona_id).kept(tenant_id).active()
        return recall_facts(tenant_id, list(facts), query, only_matches=only_matches)

    def list_memories(self, tenant_id: UUID, user_id: str) -> FactQuerySet:
        """Everything that is about the user alone, in every status, newest change first (R21–R34)."""
        return Fact.objects.personal_to(tenant_id, user_id).kept(tenant_id).shown().order_by("-updated_at", "pk")

    def get_memory(self, tenant_id: UUID, user_id: str, memory_id: UUID) -> Fact:
        """One of `list_memories`; what is not there or somebody else's: `MemoryNotFoundError`."""
        fact = Fact.objects.personal_to(tenant_id, user_id).kept(tenant_id).filter(pk=memory_id).first()
        if fact is None:
            raise MemoryNotFoundError
        return fact

    def find_used(self, tenant_id: UUID, user_id: str, fact_ids: Collection[UUID]) -> list[Fact]:
        """Those of the facts that are active still, and the user's or a persona's: what prompts of theirs had."""
        reach = Fact.objects.personal_to(tenant_id, user_id) | Fact.objects.filter(
            tenant_id=tenant_id, scope=Fact.Scope.PERSONA
        )
        return list(reach.kept(tenant_id).active().filter(pk__in=fact_ids).shown()) if fact_ids else []

    # --- the record

    def open_record(self, tenant_id: UUID, user_id: str) -> UUID:
        """The id of the user's record, made when missing. `ErasureRunningError` while the person is being erased."""
        with transaction.atomic():
            return lock_record(tenant_id, user_id).pk

    def admit(self, tenant_id: UUID, user_id: str) -> bool:
        """Let something of the user's begin, in the caller's transaction: whether memory is on for them.

        `ErasureRunningError` while the person is being erased; an erasure waits for the end of that transaction (S3).
        """
        return user_id == NOBODY or lock_record(tenant_id, user_id).memory_enabled

    def remembers(self, tenant_id: UUID, user_id: str) -> bool:
        """Whether memory is on for the user. `ErasureRunningError` as above."""
        records = UserMemory.objects.filter(tenant_id=tenant_id, user_id=user_id)
        enabled, erasing_at = records.values_list("memory_enabled", "erasing_at").first() or (True, None)
        if erasing_at:
            raise ErasureRunningError
        return enabled

    def set_memory(self, tenant_id: UUID, user_id: str, *, enabled: bool) -> None:
        """Switch memory on or off for the user: off, it is neither read nor written; what is there stays."""
        with transaction.atomic():
            record = lock_record(tenant_id, user_id)
            UserMemory.objects.filter(pk=record.pk).update(memory_enabled=enabled)

    def find_record(self, record_id: UUID) -> tuple[UUID, str] | None:
        """Tenant and user of a record; None when it is gone or being erased."""
        records = UserMemory.objects.filter(pk=record_id, erasing_at__isnull=True)
        return records.values_list("tenant_id", "user_id").first()

    # --- edits

    def upsert_fact(
        self, tenant_id: UUID, user_id: str, key: str, value: str, *, origin: str = Fact.Origin.MANUAL
    ) -> Fact:
        """Set one fact by hand, or by the remember tool, at once (U37–U54). Its date moves even when the value is the
        same."""
        return self.set_fact(tenant_id, Owner.user(user_id), key, value, Source(origin))

    def set_fact(self, tenant_id: UUID, owner: Owner, key: str, value: str, source: Source) -> Fact:
        """Set one fact of any owner. Raises `BlankFactError`, `FactTooLongError`, `FactRefusedError`."""
        key, value = checked(key, value)
        with transaction.atomic():
            lock_owner(tenant_id, owner, source.origin)
            fact = write(tenant_id, owner, key, value, source)
            note_new_words(tenant_id, owner)
        return fact

    def add_texts(
        self,
        tenant_id: UUID,
        user_id: str,
        texts: Sequence[str],
        source: Source,
        *,
        most: int | None = None,
        first_id: UUID | None = None,
    ) -> list[Fact]:
        """Keep free texts about the user, all or none; which of them are new, the first with the id ``first_id``.

        Blank ones and those that are known in another spelling are skipped (A37–A44). Above ``most`` free texts those
        that came first go (A17–A20). Raises `FactTooLongError`, `FactRefusedError`.
        """
        owner, texts = Owner.user(user_id), [checked_text(text) for text in texts if normalize_key(text)]
        with transaction.atomic():
            lock_owner(tenant_id, owner, source.origin)
            facts = add_texts(tenant_id, owner, texts, source, first_id=first_id or new_id())
            note_new_words(tenant_id, owner)
            drop_stalest_texts(tenant_id, owner, most if facts else None)
        return facts

    def added_with(self, tenant_id: UUID, user_id: str, first_id: UUID) -> list[Fact]:
        """What `add_texts` made together with the fact of this id, as far as it is still there; [] without that."""
        facts = Fact.objects.of_user(tenant_id, user_id).filter(kind=Fact.Kind.TEXT)
        first = facts.filter(pk=first_id).first()
        return list(facts.filter(created_at=first.created_at).in_order()) if first else []

    def suggest(self, tenant_id: UUID, owner: Owner, operation: Operation, source: Source, *, review: bool) -> str:
        """A model's tool wants to set or delete a fact: what became of it, as `usermemory.changes.change` says it.

        Raises `BlankFactError`, `FactTooLongError`.
        """
        if operation.op == "SET":
            fitting(operation.key, operation.value)
        with transaction.atomic():
            lock_owner(tenant_id, owner, source.origin)
            outcome = change(tenant_id, owner, operation, source, review=review)
            if outcome in (APPLIED, PROPOSED):
                note_new_words(tenant_id, owner)
        return outcome

    def count_tool_writes(self, tenant_id: UUID, user_id: str) -> int:
        """How many facts about the user the tools of models wrote within a day (S48)."""
        facts = Fact.objects.personal_to(tenant_id, user_id).filter(origin=Fact.Origin.TOOL)
        return facts.filter(updated_at__gte=after(-24 * 3600)).count()

    def remove_fact(self, tenant_id: UUID, user_id: str, key: str) -> bool:
        """Forget one fact; nothing happens when there is none of this key, which the answer says (U58–U63).

        A free text goes by the key that it is shown under (C3).
        """
        return self.unset_fact(tenant_id, Owner.user(user_id), key)

    def unset_fact(self, tenant_id: UUID, owner: Owner, key: str) -> bool:
        """The same for any owner."""
        with transaction.atomic():
            lock_known(tenant_id, owner)
            facts = Fact.objects.of(tenant_id, owner).named(key)
            # What is forgotten does not come back because somebody approves it later.
            facts.pending().delete()
            removed, _ = facts.active().delete()
        return bool(removed)

    def change_memory(self, tenant_id: UUID, user_id: str, memory_id: UUID, changes: Mapping[str, Any]) -> Fact:
        """Change key, value or confidence of a fact of the user's own scope, in any status (R39–R45).

        A free text keeps the key that it is shown under. Raises `MemoryNotFoundError`, `MemoryKeyTakenError`,
        `InvalidError` for the key of a free text, and what `set_fact` raises.
        """
        with transaction.atomic():
            lock_record(tenant_id, user_id)
            fact = self._own(tenant_id, user_id, memory_id)
            columns = _changed(fact, changes)
            for name, column in columns.items():
                setattr(fact, name, column)
            try:
                with transaction.atomic():
                    fact.save(update_fields=list(columns))
            except IntegrityError:
                raise MemoryKeyTakenError from None
            note_new_words(tenant_id, Owner.user(user_id))
        return fact

    def delete_memory(self, tenant_id: UUID, user_id: str, memory_id: UUID) -> None:
        """Remove a fact of the user's own scope, in any status (R46–R48)."""
        with transaction.atomic():
            lock_known(tenant_id, Owner.user(user_id))
            self._own(tenant_id, user_id, memory_id).delete()

    def clear(self, tenant_id: UUID, user_id: str) -> None:
        """Forget every fact, in whatever state. The record stays, with a watermark: turns stored up to now are never
        learned from again, not even by a job that is running (U64–U68, C28)."""
        with transaction.atomic():
            lock_record(tenant_id, user_id)
            UserMemory.objects.filter(tenant_id=tenant_id, user_id=user_id).update(cleared_at=Now())
            Fact.objects.personal_to(tenant_id, user_id).delete()

    # --- what was learned from where

    def learned_from(self, tenant_id: UUID, user_id: str, thread_ids: Sequence[UUID]) -> list[UUID]:
        """Facts about the user that no hand has written, and whose source is one of the threads, in every status."""
        facts = Fact.objects.personal_to(tenant_id, user_id).exclude(origin=Fact.Origin.MANUAL)
        return list(facts.filter(source_thread_id__in=thread_ids).values_list("pk", flat=True))

    def learned_from_turn(self, thread: ThreadLike, turn: TurnLike) -> list[UUID]:
        """The same for one turn: those that quote it, and those without a quote that say what it says."""
        facts = Fact.objects.filter(pk__in=self.learned_from(thread.tenant_id, thread.user_id, [thread.id]))
        said = fold(text_of(turn.content))
        return [
            fact.pk
            for fact in facts.only("source_seq", "value")
            if fact.source_seq == turn.seq or (fact.source_seq is None and fold(fact.value) in said)
        ]

    def reread(self, thread: ThreadLike) -> None:
        """A turn of the thread is no more what it was: who is reading it loses the claim, and it is read anew."""
        claimed = ExtractionState.objects.filter(pk=thread.id, claim_token__isnull=False)
        claimed.update(claim_token=None, claim_expires_at=None, due_at=Now())

    def unlearn(self, tenant_id: UUID, user_id: str, fact_ids: Sequence[UUID]) -> None:
        """Take these facts away, in the caller's transaction."""
        lock_known(tenant_id, Owner.user(user_id))
        Fact.objects.personal_to(tenant_id, user_id).filter(pk__in=fact_ids).delete()

    def delete_by_persona(self, tenant_id: UUID, persona_id: UUID) -> int:
        """The facts of a persona go, those that it has about single users too; how many there were."""
        scopes = (Fact.Scope.PERSONA, Fact.Scope.PERSONA_USER)
        facts = Fact.objects.filter(tenant_id=tenant_id, scope__in=scopes, owner_id=str(persona_id))
        _, rows = facts.delete()
        EmbeddingState.objects.filter(tenant_id=tenant_id, scope__in=scopes, owner_id=str(persona_id)).delete()
        return rows.get(Fact._meta.label, 0)

    def _own(self, tenant_id: UUID, user_id: str, memory_id: UUID) -> Fact:
        fact = Fact.objects.of_user(tenant_id, user_id).kept(tenant_id).filter(pk=memory_id).first()
        if fact is None:
            raise MemoryNotFoundError
        return fact


def checked(key: str, value: str) -> tuple[str, str]:
    """Key and value as they are stored, for every way in that refuses what it does not take."""
    key, value = fitting(key, value)
    return key, _allowed(key, value)


def fitting(key: str, value: str) -> tuple[str, str]:
    """The same, whatever they say."""
    key = one_line(key).strip()
    if not normalize_key(key):
        raise BlankFactError
    if is_shown_key(key):
        raise InvalidError(fields={"key": ["Free texts are shown under keys like this; they are not changed by it."]})
    return key, _fitting_value(key, value)


def checked_text(text: str) -> str:
    """A free text as it is stored, for the same ways in."""
    return _allowed("", _fitting_value("", text))


def _fitting_value(key: str, value: str) -> str:
    value, limit = value.strip(), conf.MAX_FACT_CHARS
    if not value:
        raise BlankFactError
    if limit and max(len(key), len(value)) > limit:
        raise FactTooLongError(f"Key and value can have {limit} characters each.")
    return value


def _allowed(key: str, value: str) -> str:
    if code := refusal(key, value):
        raise FactRefusedError(reason=code)
    return value


def _changed(fact: Fact, changes: Mapping[str, Any]) -> dict[str, Any]:
    """The columns that change. New words are the person's own: no model said them, and no turn is quoted for them."""
    columns = {"confidence": changes["confidence"]} if "confidence" in changes else {}
    key, value = changes.get("key", fact.shown_key), changes.get("value", fact.value)
    if (key, value) == (fact.shown_key, fact.value):
        return {**columns, "updated_at": timezone.now()}
    if fact.operation == Fact.Operation.DELETE:
        raise InvalidError(fields={"value": ["A proposed deletion is approved or rejected, not changed."]})
    if fact.key:
        key, value = checked(key, value)
    elif key.strip() == fact.shown_key:
        key, value = "", checked_text(value)
    else:
        raise InvalidError(fields={"key": ["A free text has no key of its own; this one is only shown."]})
    return {**content(key, value), "origin": Fact.Origin.MANUAL, "source_seq": None, **columns}
