"""Forgetting part of a conversation, and, when asked, what was learned from that part alone (S12, S22).

Thread first, then the record, in one transaction: nobody sees the one without the other.
"""

from collections.abc import Sequence
from typing import Any, Literal
from uuid import UUID

from django.db import transaction

from memorygw.conf import component
from memorygw.exceptions import ThreadNotFoundError, TurnNotFoundError


def delete_threads(
    tenant_id: UUID, user_id: str, thread_ids: Sequence[UUID] | Literal["all"], *, learned: bool = False
) -> Any:
    """Hard-delete threads. See `memorygw.gateway.delete_threads` for the contract."""
    store, memory = component("THREAD_STORE"), component("USER_MEMORY_STORE")
    if not learned:
        return store.delete(tenant_id, thread_ids, user_id=user_id)
    with transaction.atomic():
        # Behind the locks: what is being learned is learned before, or not at all.
        ids = store.lock_threads(tenant_id, thread_ids, user_id=user_id)
        sources = memory.learned_from(tenant_id, user_id, ids)
        counts = store.delete(tenant_id, ids, user_id=user_id)
        memory.unlearn(tenant_id, user_id, sources)
    return counts


def forget_turn(tenant_id: UUID, user_id: str, thread_id: UUID, turn_id: UUID, *, learned: bool = False) -> None:
    """Empty one turn. See `memorygw.gateway.forget_turn` for the contract."""
    store, memory = component("THREAD_STORE"), component("USER_MEMORY_STORE")
    with transaction.atomic():
        thread = store.fence(tenant_id, thread_id, user_id)
        if thread is None:
            raise ThreadNotFoundError
        turn = store.find_turn(thread, turn_id)
        if turn is None:
            raise TurnNotFoundError
        sources = memory.learned_from_turn(thread, turn) if learned else []
        store.redact_turn(thread, turn)
        memory.reread(thread)
        component("WORKING_MEMORY_STORE").reread(thread, turn.seq)
        memory.unlearn(tenant_id, user_id, sources)
