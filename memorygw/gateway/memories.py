"""The queue of what a model proposed, and every memory with its status: the words of the seeds' REST page."""

from collections.abc import Iterable, Sequence
from typing import Any
from uuid import UUID

from memorygw.conf import component, conf
from memorygw.exceptions import (
    ForbiddenError,
    InvalidError,
    MemoryNotFoundError,
    NotPendingError,
    PersonaNotFoundError,
)
from memorygw.gateway.arguments import TenantLike, UserLike, external_user_id, refuse_unstorable, tenant_id, uuid_of
from memorygw.gateway.personas import get_persona
from memorygw.paging import Page, newest_first
from memorygw.text import fold
from usermemory.models import Owner
from usermemory.rows import Source

STATUSES = ("active", "pending_review", "archived")
MAX_REVIEWED = 500
MAX_FILTER_WORDS, MAX_FILTER_WORD_CHARS = 100, 200


def list_memories(tenant: TenantLike, user_id: UserLike, *, status: str = "active", query: str = "") -> Iterable[Any]:
    """What is known about a user, newest change first; ``query``: every word of it is in key or value (R21–R34)."""
    memories = _with_status(tenant, user_id, status)
    refuse_unstorable("query", query)
    words = fold(query).split()
    if len(set(words)) > MAX_FILTER_WORDS or max(map(len, words), default=0) > MAX_FILTER_WORD_CHARS:
        raise InvalidError(
            fields={"query": [f"At most {MAX_FILTER_WORDS} words of {MAX_FILTER_WORD_CHARS} characters."]}
        )
    found: Iterable[Any] = memories.matching(query)
    return found


def list_memories_page(
    tenant: TenantLike,
    user_id: UserLike,
    *,
    status: str = "active",
    limit: int = 20,
    ending_before: UUID | str | None = None,
) -> Page[Any]:
    """One page of `list_memories`, those that came last first; ``ending_before`` a memory: the next older ones.

    ``has_more``: whether there are older ones. Raises `MemoryNotFoundError` for a cursor that is none of them.
    """
    return newest_first(
        _with_status(tenant, user_id, status),
        limit=limit,
        ending_before=None if ending_before is None else _memory_id(ending_before),
        missing=MemoryNotFoundError,
    )


def get_memory(tenant: TenantLike, user_id: UserLike, memory_id: UUID | str) -> Any:
    """One that is about the user alone, in any status; what is not there or somebody else's: `MemoryNotFoundError`."""
    store = component("USER_MEMORY_STORE")
    return store.get_memory(tenant_id(tenant), external_user_id(user_id), _memory_id(memory_id))


def count_memories(tenant: TenantLike, user_id: UserLike) -> dict[str, int]:
    """How many of `list_memories` are active, and how many wait (R35–R37)."""
    memories = component("USER_MEMORY_STORE").list_memories(tenant_id(tenant), external_user_id(user_id))
    return {"active": memories.active().count(), "pending": memories.pending().count()}


def search_memories(tenant: TenantLike, user_id: UserLike, query: str, *, limit: int = 10) -> list[Any]:
    """What fits the query, best first, by words and, with an embedder, by meaning: ``fact``, ``why`` (K19)."""
    refuse_unstorable("query", query)
    if not query.strip():
        raise InvalidError(fields={"query": ["Needs text."]})
    hits: list[Any] = component("USER_MEMORY_STORE").recall(tenant_id(tenant), external_user_id(user_id), query)
    return hits[:limit]


def change_memory(
    tenant: TenantLike,
    user_id: UserLike,
    memory_id: UUID | str,
    *,
    key: str | None = None,
    value: str | None = None,
    confidence: float | None = None,
) -> Any:
    """Change one of the user's own; what is None stays (R39–R45).

    Raises `MemoryNotFoundError`, `BlankFactError`, `FactTooLongError`, `FactRefusedError`, `MemoryKeyTakenError`.
    """
    if confidence is not None and not 0 <= confidence <= 1:
        raise InvalidError(fields={"confidence": ["From 0 to 1."]})
    values = {"key": key, "value": value, "confidence": confidence}
    changes = {name: given for name, given in values.items() if given is not None}
    for name, given in changes.items():
        refuse_unstorable(name, given)
    store = component("USER_MEMORY_STORE")
    return store.change_memory(tenant_id(tenant), external_user_id(user_id), _memory_id(memory_id), changes)


def delete_memory(tenant: TenantLike, user_id: UserLike, memory_id: UUID | str) -> None:
    store = component("USER_MEMORY_STORE")
    store.delete_memory(tenant_id(tenant), external_user_id(user_id), _memory_id(memory_id))


def approve_memory(tenant: TenantLike, user_id: UserLike, memory_id: UUID | str, *, content_hash: str = "") -> Any:
    """The user says yes to a memory that waits: it becomes active, or deletes what it proposes to delete (R51, R56).

    ``content_hash``: only if it still says what was seen (S46). Raises `MemoryNotFoundError`, `NotPendingError`,
    `ContentChangedError`, `ForbiddenError` where users do not review.
    """
    return component("USER_MEMORY_STORE").approve(_to_review(tenant, user_id, memory_id), content_hash=content_hash)


def reject_memory(tenant: TenantLike, user_id: UserLike, memory_id: UUID | str, *, content_hash: str = "") -> Any:
    """The user says no: it is archived and not proposed again (R52, R57). Raises as `approve_memory`."""
    return component("USER_MEMORY_STORE").reject(_to_review(tenant, user_id, memory_id), content_hash=content_hash)


def get_memory_sources(tenant: TenantLike, user_id: UserLike, memory_id: UUID | str) -> dict[str, Any]:
    """Where a memory comes from, and for one that waits the value it would change: ``sources``, ``current_value``."""
    store, tenant_pk, user = component("USER_MEMORY_STORE"), tenant_id(tenant), external_user_id(user_id)
    memory = store.get_memory(tenant_pk, user, _memory_id(memory_id))
    turns, threads = [], component("THREAD_STORE")
    if memory.source_seq and (thread := threads.find_thread(tenant_pk, memory.source_thread_id, user_id=user)):
        turns = threads.get_turns_between(tenant_pk, thread.id, memory.source_seq - 1, memory.source_seq)
    return {"sources": turns, "thread_id": memory.source_thread_id, "current_value": store.current_value(memory)}


def list_pending_memories(tenant: TenantLike | None, *, limit: int | None = None) -> Iterable[Any]:
    """What waits in the tenant, oldest first; of every tenant for None (R58–R60). ``limit``: only so many."""
    pending: Iterable[Any] = component("USER_MEMORY_STORE").list_pending(_tenant_or_all(tenant))[:limit]
    return pending


def approve_memories(tenant: TenantLike | None, memory_ids: Sequence[UUID]) -> int:
    """Approve those that wait; how many there were (R61–R64)."""
    return int(component("USER_MEMORY_STORE").approve_many(_tenant_or_all(tenant), memory_ids))


def reject_memories(tenant: TenantLike | None, memory_ids: Sequence[UUID]) -> int:
    return int(component("USER_MEMORY_STORE").reject_many(_tenant_or_all(tenant), memory_ids))


def decide_memory(tenant: TenantLike, memory_id: UUID | str, *, approve: bool, content_hash: str = "") -> Any:
    """A reviewer's yes or no to one that waits in the tenant, whoever it is about, as `approve_memory`.

    Raises `NotPendingError`, also when there is none, `ContentChangedError`, `ErasureRunningError`.
    """
    store = component("USER_MEMORY_STORE")
    waiting = store.list_pending(tenant_id(tenant)).filter(pk=_memory_id(memory_id)).first()
    if waiting is None:
        raise NotPendingError
    return (store.approve if approve else store.reject)(waiting, content_hash=content_hash)


def _with_status(tenant: TenantLike, user_id: UserLike, status: str) -> Any:
    if status not in STATUSES:
        raise InvalidError(fields={"status": [f"One of {', '.join(STATUSES)}."]})
    memories = component("USER_MEMORY_STORE").list_memories(tenant_id(tenant), external_user_id(user_id))
    return memories.filter(status=status)


def _to_review(tenant: TenantLike, user_id: UserLike, memory_id: UUID | str) -> Any:
    if not conf.USER_CAN_APPROVE:
        raise ForbiddenError
    return get_memory(tenant, user_id, memory_id)


def _tenant_or_all(tenant: TenantLike | None) -> UUID | None:
    return None if tenant is None else tenant_id(tenant)


def _memory_id(value: UUID | str) -> UUID:
    return uuid_of(value, MemoryNotFoundError)


# --- what a persona knows, for all of its users


def set_persona_fact(tenant: TenantLike, persona_id: UUID | str, key: str, value: str) -> Any:
    """Raises `PersonaNotFoundError`, `BlankFactError`, `FactTooLongError`, `FactRefusedError`."""
    refuse_unstorable("key", key)
    refuse_unstorable("value", value)
    owner = Owner.persona(uuid_of(persona_id, PersonaNotFoundError))
    return component("USER_MEMORY_STORE").set_fact(tenant_id(tenant), owner, key, value, Source("manual"))


def remove_persona_fact(tenant: TenantLike, persona_id: UUID | str, key: str) -> None:
    """Nothing happens when the persona has no such fact. Raises `PersonaNotFoundError`."""
    persona = get_persona(tenant, persona_id)
    component("USER_MEMORY_STORE").unset_fact(persona.tenant_id, Owner.persona(persona.pk), key)
