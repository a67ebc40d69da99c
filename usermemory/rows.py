"""Facts as rows: written under the owner's lock, held to the cap, proposed, approved.

The rules of every way in are here once; the parts of the store decide which of them a way in takes.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any
from uuid import UUID

from django.db import transaction
from django.utils import timezone

from memorygw.claims import wake
from memorygw.conf import conf
from memorygw.exceptions import ErasureRunningError, MemoryOffError, PersonaNotFoundError
from memorygw.models import Persona
from memorygw.retention import days_kept
from memorygw.text import fold
from usermemory.embedding import NO_VECTOR, note_change
from usermemory.models import Fact, FactQuerySet, Owner, UserMemory, identity
from usermemory.tasks import embed_facts

_NEWEST_FIRST = ("-updated_at", "-created_at", "-pk")
_PROPOSED_COLUMNS = (
    "operation", "key", "value", "searchable", "updated_at", "embedding", "embedding_model",
    "origin", "confidence", "source_thread_id", "source_seq",
)  # fmt: skip


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
    # An erasure may take away what somebody else has just made.
    while (record := records.first()) is None:
        UserMemory.objects.get_or_create(tenant_id=tenant_id, user_id=user_id)
    if record.erasing_at and not erasing:
        raise ErasureRunningError
    return record


def lock_known(tenant_id: UUID, owner: Owner) -> None:
    """The same for taking facts away: nobody's record is made for that, and no erasure stops it."""
    if owner.person:
        UserMemory.objects.select_for_update().filter(tenant_id=tenant_id, user_id=owner.person).first()


def lock_owner(tenant_id: UUID, owner: Owner, origin: str = Fact.Origin.MANUAL) -> None:
    """Let one writer at a time at an owner's facts: the user's record, or the persona for what all its users share.

    `MemoryOffError` for what no hand writes, where memory is off for the user.
    """
    if owner.person:
        if not lock_record(tenant_id, owner.person).memory_enabled and origin != Fact.Origin.MANUAL:
            raise MemoryOffError
    elif not Persona.objects.select_for_update(no_key=True).filter(tenant_id=tenant_id, pk=owner.owner_id).first():
        raise PersonaNotFoundError


def write(tenant_id: UUID, owner: Owner, key: str, value: str, source: Source) -> Fact:
    """Insert or replace the active fact of this key, and hold the cap. The id and place of a replaced one stay.

    What waits for a decision about the key as it was does not outlive that: a deletion of the old value, and, when a
    person has spoken, whatever a model had proposed. The caller says `note_new_words` last.
    """
    values = content(key, value) | origin_of(source)
    same = Fact.objects.of(tenant_id, owner).filter(identity=values["identity"])
    by_hand = source.origin == Fact.Origin.MANUAL
    (same.pending() if by_hand else same.pending().filter(operation=Fact.Operation.DELETE)).delete()
    known = same.active()
    if known.update(**values):
        fact = known.get()
    else:
        fact = Fact.objects.create(tenant_id=tenant_id, **asdict(owner), **values)
    drop_stalest(tenant_id, owner, keep=fact)
    return fact


def add_texts(tenant_id: UUID, owner: Owner, texts: Sequence[str], source: Source, *, first_id: UUID) -> list[Fact]:
    """Insert the free texts that are not known yet, in their order, and hold the cap; of two spellings of one the first
    (A37–A41). The first new one has the id ``first_id``. The caller says `note_new_words` last."""
    spelt: dict[str, str] = {}
    for text in texts:
        spelt.setdefault(identity("", text), text)
    active = Fact.objects.of(tenant_id, owner).active()
    if days_kept(tenant_id, "facts"):
        # Said again, it is new: what is hidden goes before it would be purged.
        active.filter(identity__in=spelt).exclude(pk__in=active.kept(tenant_id).values("pk")).delete()
    known = set(active.filter(identity__in=spelt).values_list("identity", flat=True))
    new = [text for same, text in spelt.items() if same not in known][-conf.MAX_FACTS :]
    # One time for all, in the precision in which it is looked for: `added_with` finds them by it.
    columns = {"tenant_id": tenant_id, **asdict(owner), **origin_of(source), "created_at": timezone.now()}
    facts = [Fact(**columns, **content("", text)) for text in new]
    if facts:
        facts[0].pk = first_id
        Fact.objects.bulk_create(facts)
        drop_stalest(tenant_id, owner)
    return facts


def propose(tenant_id: UUID, owner: Owner, proposal: Fact) -> str:
    """Put an unsaved fact into the queue of its owner, or into the place of an earlier proposal for its key.

    "unchanged" when nothing was done: it waits already, or a person has corrected what waits. The caller says
    `note_new_words` last.
    """
    waiting = Fact.objects.of(tenant_id, owner).pending().filter(identity=proposal.identity).first()
    if waiting is None:
        place = {"tenant_id": tenant_id, **asdict(owner), "status": Fact.Status.PENDING_REVIEW}
        for name, column in place.items():
            setattr(proposal, name, column)
        proposal.save(force_insert=True)
        return ""
    same = (waiting.operation, waiting.value) == (proposal.operation, proposal.value) or not proposal.key
    if same or waiting.origin == Fact.Origin.MANUAL:
        return "unchanged"
    for name in _PROPOSED_COLUMNS:
        setattr(waiting, name, getattr(proposal, name))
    waiting.save(update_fields=_PROPOSED_COLUMNS)
    return ""


def note_new_words(tenant_id: UUID, owner: Owner) -> None:
    """Have vectors made for what was written, once it is committed; nothing without an embedder."""
    if state_id := note_change(tenant_id, owner):
        transaction.on_commit(partial(wake, embed_facts, state_id), robust=True)


def drop_stalest(tenant_id: UUID, owner: Owner, *, keep: Fact | None = None) -> None:
    """Hold the cap: the active facts changed longest ago go, never the one just written (K9, C4, C5)."""
    if conf.MAX_FACTS:
        active = Fact.objects.of(tenant_id, owner).active()
        _keep_newest(active.exclude(pk=keep.pk) if keep else active, conf.MAX_FACTS - bool(keep))


def next_dropped(tenant_id: UUID, owner: Owner) -> Fact | None:
    """The fact that one more would cost; None while there is room."""
    active = Fact.objects.of(tenant_id, owner).active().order_by(*_NEWEST_FIRST)
    return active[conf.MAX_FACTS - 1 : conf.MAX_FACTS].first() if conf.MAX_FACTS else None


def drop_stalest_texts(tenant_id: UUID, owner: Owner, most: int | None) -> None:
    """Hold an agent's own cap. It is for free texts alone: what others keep by key is not an agent's to drop."""
    if most:
        _keep_newest(Fact.objects.of(tenant_id, owner).active().filter(kind=Fact.Kind.TEXT), most)


def _keep_newest(facts: FactQuerySet, most: int) -> None:
    newest_first = facts.order_by(*_NEWEST_FIRST).values_list("pk", flat=True)
    if surplus := list(newest_first[most:]):
        Fact.objects.filter(pk__in=surplus).delete()


def content(key: str, value: str) -> dict[str, Any]:
    """The columns that hold what a fact says, and when it was said; without a key it is a free text."""
    return {
        "kind": Fact.Kind.KEYED if key else Fact.Kind.TEXT,
        "key": key,
        "value": value,
        "identity": identity(key, value),
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
