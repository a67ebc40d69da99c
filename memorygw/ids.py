"""Ids of rows that leave the system: UUID version 7 (RFC 9562), so that they sort by creation."""

from uuid import UUID

from uuid_utils.compat import uuid7


def new_id() -> UUID:
    """Referenced by migrations: must stay importable under this name."""
    return uuid7()


def uuid_or_none(text: str) -> UUID | None:
    """The id that a text spells, if it does."""
    try:
        return UUID(text)
    except ValueError:
        return None
