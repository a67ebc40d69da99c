"""The form of API keys: ``mgw_<prefix>_<secret><checksum>``.

The prefix finds the row, the checksum lets a scanner of leaked secrets (and us) tell a key from a typing error without
a database, and only a digest is stored: 256 random bits need no slow hash.
"""

import hashlib
import hmac
import secrets
import zlib
from dataclasses import dataclass

SCHEME = "mgw_"
_CHECKSUM_CHARS = 8


@dataclass(frozen=True)
class NewKey:
    """A key that nobody has seen yet. ``text`` is shown once."""

    text: str
    prefix: str
    digest: str


def new_key() -> NewKey:
    prefix = secrets.token_hex(4)
    body = f"{SCHEME}{prefix}_{secrets.token_hex(32)}"
    text = body + _checksum(body)
    return NewKey(text, prefix, digest(text))


def prefix_of(text: str) -> str | None:
    """The prefix of a well-formed key; None for anything else."""
    body, checksum = text[:-_CHECKSUM_CHARS], text[-_CHECKSUM_CHARS:]
    parts = body.split("_")
    well_formed = text.isascii() and body.startswith(SCHEME) and len(parts) == 3 and _checksum(body) == checksum
    return parts[1] if well_formed else None


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def matches(text: str, stored_digest: str) -> bool:
    """Compared in constant time."""
    return hmac.compare_digest(digest(text), stored_digest)


def _checksum(body: str) -> str:
    return f"{zlib.crc32(body.encode()):08x}"
