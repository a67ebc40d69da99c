"""Lists in pages, newest first (K13)."""

from dataclasses import dataclass
from typing import Generic, TypeVar
from uuid import UUID

from django.db.models import Model, Q, QuerySet, Subquery

from memorygw.exceptions import InvalidError, NotFoundError

M = TypeVar("M", bound=Model)

MAX_PAGE_ITEMS = 200


@dataclass(frozen=True)
class Page(Generic[M]):
    """``has_more``: whether there are more in the direction of the cursor."""

    items: list[M]
    has_more: bool


def newest_first(
    rows: QuerySet[M],
    *,
    limit: int,
    starting_after: UUID | None = None,
    ending_before: UUID | None = None,
    missing: type[NotFoundError],
) -> Page[M]:
    """One page of ``rows``, by creation and key. ``ending_before`` a row: the next older ones; ``starting_after``: the
    adjacent newer ones. Raises ``missing`` for a cursor that is none of the rows, `InvalidError` for two cursors or an
    impossible limit."""
    if not 1 <= limit <= MAX_PAGE_ITEMS:
        raise InvalidError(fields={"limit": [f"Between 1 and {MAX_PAGE_ITEMS}."]})
    if starting_after and ending_before:
        raise InvalidError("Give one cursor, not both.", fields={"starting_after": ["Not with ending_before."]})
    if cursor := starting_after or ending_before:
        if not rows.filter(pk=cursor).exists():
            raise missing
        rows = _beside(rows, cursor, "gt" if starting_after else "lt")
    order = ("created_at", "pk") if starting_after else ("-created_at", "-pk")
    found = list(rows.order_by(*order)[: limit + 1])
    items = found[:limit]
    return Page(items[::-1] if starting_after else items, has_more=len(found) > limit)


def _beside(rows: QuerySet[M], cursor: UUID, side: str) -> QuerySet[M]:
    # Compared inside the database: SQLite keeps times as text, which a value that was read need not equal.
    at = Subquery(rows.model._default_manager.filter(pk=cursor).values("created_at")[:1])
    # The first bound is the range of the index, the second settles equal times.
    return rows.filter(
        Q(**{f"created_at__{side}": at}) | Q(**{f"pk__{side}": cursor}),
        **{f"created_at__{side}e": at},
    )
