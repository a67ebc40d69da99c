"""Facts as rows: written under the owner's lock, held to the cap, proposed, approved.

The rules of every way in are here once; the parts of the store decide which of them a way in takes.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import UUID

from django.db import transaction
from django.utils import timezone

from memorygw.claims import wake
from memorygw.conf import conf
from memorygw.exceptions import ErasureRunningError, PersonaNotFoundError
from memorygw.models import Persona
from memorygw.text import fold
from usermemory.embedding import NO_VECTOR, note_change
from usermemory.models import Fact, Owner, UserMemory, identity
from usermemory.tasks import embed_facts


@dataclass(frozen=True)
class Source:
    """Where a fact comes from: who wrote it, how sure, and out of which thread and turn of it."""

    origin: str
    confidence: float = 1.0
    thread_id: UUID | None = None
    seq: int | None = None


def lock_record(tenant_id: UUID, user_id: str, *, erasing: bool = False) -> UserMemory:
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


def lock_owner(tenant_id: UUID, owner: Owner) -> None:
    """Let one writer at a time at an owner's facts: the user's record, or the persona for what all its users share."""
    if owner.person:
        lock_record(tenant_id, owner.person)
    elif not Persona.objects.select_for_update(no_key=True).filter(tenant_id=tenant_id, pk=owner.owner_id).first():
        raise PersonaNotFoundError


def write(tenant_id: UUID, owner: Owner, key: str, value: str, source: Source) -> Fact:
    """Insert or replace the active fact of this key, and hold the cap. The id and place of a replaced one stay."""
    values = content(key, value) | origin_of(source)
    known = Fact.objects.of(tenant_id, owner).active().keyed(key)
    if known.update(**values):
        fact = known.get()
    else:
        fact = Fact.objects.create(
            tenant_id=tenant_id, scope=owner.scope, owner_id=owner.owner_id, user_id=owner.user_id, **values
        )
    drop_stalest(tenant_id, owner, keep=fact)
    note_new_words(tenant_id, owner)
    return fact


def propose(tenant_id: UUID, owner: Owner, proposal: Fact) -> str:
    """Put an unsaved fact into the queue of its owner, instead of an earlier proposal for its key.

    Why nothing was done, as a code: it waits already, or a reviewer has rejected it before (R57, C16).
    """
    facts = Fact.objects.of(tenant_id, owner).filter(identity=proposal.identity)
    waiting = facts.pending().first()
    if waiting and (waiting.operation, waiting.value) == (proposal.operation, proposal.value):
        return "unchanged"
    if proposal.operation == Fact.Operation.SET and facts.filter(rejected=True, value=proposal.value).exists():
        return "rejected_before"
    if waiting:
        waiting.delete()
    proposal.tenant_id, proposal.status = tenant_id, Fact.Status.PENDING_REVIEW
    proposal.scope, proposal.owner_id, proposal.user_id = owner.scope, owner.owner_id, owner.user_id
    proposal.save(force_insert=True)
    note_new_words(tenant_id, owner)
    return ""


def note_new_words(tenant_id: UUID, owner: Owner) -> None:
    """Have vectors made for what was written, once it is committed; nothing without an embedder."""
    if state_id := note_change(tenant_id, owner):
        transaction.on_commit(partial(wake, embed_facts, state_id), robust=True)


def drop_stalest(tenant_id: UUID, owner: Owner, *, keep: Fact) -> None:
    """Hold the cap: the active facts changed longest ago go, never the one just written (K9, C4, C5)."""
    if not conf.MAX_FACTS:
        return
    others = Fact.objects.of(tenant_id, owner).active().exclude(pk=keep.pk)
    stalest = others.order_by("-updated_at", "-created_at", "-pk").values_list("pk", flat=True)
    if surplus := list(stalest[conf.MAX_FACTS - 1 :]):
        Fact.objects.filter(pk__in=surplus).delete()


def content(key: str, value: str) -> dict[str, Any]:
    """The columns that hold what a fact says, and when it was said."""
    return {
        "key": key,
        "value": value,
        "identity": identity(key),
        "searchable": fold(f"{key} {value}"),
        # Finer than SQLite's clock: which fact changed last decides who stays at the cap.
        "updated_at": timezone.now(),
        **NO_VECTOR,
    }


def origin_of(source: Source) -> dict[str, Any]:
    return {
        "origin": source.origin,
        "confidence": source.confidence,
        "source_thread_id": source.thread_id,
        "source_seq": source.seq,
    }
