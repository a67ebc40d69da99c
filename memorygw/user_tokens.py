"""Short-lived tokens that act as one user: ``mgwu_…``, signed, with no personal data inside.

A token names the user's record by its id. Erasing the person deletes the record, and with it every token.
"""

import time
from uuid import UUID

from django.core import signing

SCHEME = "mgwu_"
_SALT = "memorygw.user-token"


def make(record_id: UUID, *, expires_at: float) -> str:
    """``expires_at`` in seconds since the epoch."""
    return SCHEME + signing.dumps([record_id.hex, int(expires_at)], salt=_SALT)


def record_of(token: str) -> UUID | None:
    """The record that a genuine token, not yet expired, stands for."""
    try:
        record_id, expires_at = signing.loads(token.removeprefix(SCHEME), salt=_SALT)
    except signing.BadSignature:
        return None
    return UUID(record_id) if expires_at > time.time() else None
