"""Looking for what is left of a person: by owner in every table, and by what they said where nobody owns a row."""

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import reduce
from operator import or_
from typing import Any
from uuid import UUID

from django.db.models import Count, Q, QuerySet, Value

from memorygw import admin_log
from memorygw.personal_data import PersonalData, personal_data
from threads.turns import text_of
from usermemory.models import Fact

_PHRASES, _PHRASE_CHARS, _TEXTS_READ = 10, (20, 120), 20


def count_rows(tenant_id: UUID, user_id: str) -> "Counter[str]":
    """How many rows each table has of a person: one query for all of them."""
    counts = [_counted(table, tenant_id, user_id) for table in personal_data()]
    return Counter(dict(counts[0].union(*counts[1:], all=True)))


def phrases_of(tenant_id: UUID, user_id: str) -> list[str]:
    """Some of what a person is known by, or else has said, long enough to be nobody else's."""
    facts = Fact.objects.personal_to(tenant_id, user_id).order_by("-updated_at").values_list("value", flat=True)
    if found := _long_enough(facts[:_TEXTS_READ]):
        return found
    turns = next(table for table in personal_data() if table.name == "turns").rows(tenant_id, user_id)
    said = turns.filter(role="user").order_by("-pk").values_list("content", flat=True)
    return _long_enough(map(text_of, said[:_TEXTS_READ]))


def _long_enough(texts: Iterable[str]) -> list[str]:
    shortest, longest = _PHRASE_CHARS
    return [text[:longest] for text in texts if len(text) >= shortest][:_PHRASES]


def holding(tenant_id: UUID, phrases: Sequence[str]) -> dict[str, int]:
    """Rows of nobody's that repeat what a person said, by table. Somebody else may have said the same."""
    if not phrases:
        return {}
    facts = Fact.objects.filter(tenant_id=tenant_id, scope=Fact.Scope.PERSONA)
    repeating = facts.filter(reduce(or_, (Q(value__contains=phrase) for phrase in phrases)))
    found = {"shared_facts": repeating.count(), "log_entries": admin_log.count_holding(phrases)}
    return {name: count for name, count in found.items() if count}


def _counted(table: PersonalData, tenant_id: UUID, user_id: str) -> "QuerySet[Any, Any]":
    rows: QuerySet[Any, Any] = table.rows(tenant_id, user_id).order_by()
    counted: QuerySet[Any, Any] = rows.values_list(Value(table.name)).annotate(rows=Count("pk"))
    return counted
