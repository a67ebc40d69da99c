"""Forgetting a person. This is the plain version: delete, checked by counting; proofs and anonymising come later."""

from dataclasses import asdict, dataclass, field
from uuid import UUID

from memorygw.conf import component
from memorygw.exceptions import ThreadBusyError
from memorygw.ids import new_id
from memorygw.models import IdempotencyKey, VoiceSession


@dataclass(frozen=True, kw_only=True)
class Receipt:
    """What was erased: counts, never content, never the user's id. ``verified``: nothing was found afterwards."""

    mode: str
    counts: dict[str, int]
    verified: bool
    status: str = "done"
    id: UUID = field(default_factory=new_id)


def forget_user(tenant_id: UUID, user_id: str) -> Receipt:
    """Fence first (no job writes for the user from then on), then the threads, then facts and record.

    `ThreadBusyError` when a call is running on one of the threads; then nothing is erased.
    """
    threads, memory = component("THREAD_STORE"), component("USER_MEMORY_STORE")
    threads.refuse_busy(tenant_id, user_id)
    memory.begin_erasure(tenant_id, user_id)
    try:
        counts = threads.erase_user(tenant_id, user_id)
    except ThreadBusyError:
        # A call began in between: nothing is erased, so the person's memory must work on.
        memory.cancel_erasure(tenant_id, user_id)
        raise
    spoken = VoiceSession.objects.filter(tenant_id=tenant_id, user_id=user_id)
    sessions = spoken.delete()[1].get(VoiceSession._meta.label, 0)
    facts = memory.delete_by_user(tenant_id, user_id)
    IdempotencyKey.objects.filter(tenant_id=tenant_id, user_id=user_id).delete()
    return Receipt(
        mode="delete",
        counts={**asdict(counts), "facts": facts, "voice_sessions": sessions},
        verified=not (threads.has_user(tenant_id, user_id) or memory.has_user(tenant_id, user_id) or spoken.exists()),
    )
