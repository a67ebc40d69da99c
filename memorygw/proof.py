"""Looking for what is left of a person: by owner in every table, and by what they said where nobody owns a row."""

from collections import Counter
from collections.abc import Sequence
from functools import reduce
from operator import or_
from typing import Any
from uuid import UUID

from django.db.models import Count, Q, QuerySet, Value

from memorygw import admin_log
from memorygw.personal_data import PersonalData, personal_data
from threads.turns import text_of
from usermemory.models import Fact, UserMemory

_PHRASES, _PHRASE_CHARS, _TURNS_READ = 10, (20, 120), 20


def count_rows(tenant_id: UUID, user_id: str) -> "Counter[str]":
    """How many rows each table has of a person: one query for all of them."""
    counts = [_counted(table, tenant_id, user_id) for table in personal_data()]
    return Counter(dict(counts[0].union(*counts[1:], all=True)))


def phrases_of(tenant_id: UUID, user_id: str) -> list[str]:
    """Some of what a person said and is known by, long enough to be nobody else's."""
    facts = Fact.objects.personal_to(tenant_id, user_id).order_by("-updated_at").values_list("value", flat=True)
    turns = next(table for table in personal_data() if table.name == "turns").rows(tenant_id, user_id)
    said = turns.filter(role="user").order_by("-pk").values_list("content", flat=True)[:_TURNS_READ]
    texts = [*facts[:_TURNS_READ], *map(text_of, said)]
    shortest, longest = _PHRASE_CHARS
    return [text[:longest] for text in texts if len(text) >= shortest][:_PHRASES]


def traces_of(tenant_id: UUID, user_id: str, phrases: Sequence[str]) -> dict[str, int]:
    """Rows that are a person's still, and rows of nobody's that repeat what they said, by table; {}: nothing."""
    found = count_rows(tenant_id, user_id)
    found.pop(_record_name(), None)
    if phrases:
        found["shared_facts"] = _holding(Fact.objects.filter(tenant_id=tenant_id, scope="persona"), "value", phrases)
        found["log_entries"] = admin_log.count_holding(phrases)
    return {name: count for name, count in found.items() if count}


def _counted(table: PersonalData, tenant_id: UUID, user_id: str) -> "QuerySet[Any, Any]":
    rows: QuerySet[Any, Any] = table.rows(tenant_id, user_id).order_by()
    counted: QuerySet[Any, Any] = rows.values_list(Value(table.name)).annotate(rows=Count("pk"))
    return counted


def _record_name() -> str:
    return next(table.name for table in personal_data() if table.model is UserMemory)


def _holding(rows: "QuerySet[Fact]", column: str, phrases: Sequence[str]) -> int:
    return rows.filter(reduce(or_, (Q(**{f"{column}__contains": phrase}) for phrase in phrases))).count()
