"""Django's admin log, where a host has it: what it says of a person's rows goes with these (S1)."""

from collections.abc import Sequence
from functools import reduce
from operator import or_
from typing import Any

from django.apps import apps
from django.db.models import CharField, F, Model, Q, QuerySet, Value
from django.db.models.functions import Cast, Replace


def models() -> set[type[Model]]:
    """The models that there are entries about."""
    entries = _entries()
    columns = ("content_type__app_label", "content_type__model")
    names = () if entries is None else entries.exclude(content_type=None).order_by().values_list(*columns).distinct()
    return {apps.get_model(*name) for name in names if name[1] in apps.all_models.get(name[0], ())}


def forget(model: type[Model], rows: "QuerySet[Any]") -> None:
    """Drop the entries about some rows of a table of `models`; before the rows go."""
    entries = _entries()
    if entries is None:
        return
    about = entries.filter(content_type__app_label=model._meta.app_label, content_type__model=model._meta.model_name)
    ids = rows.order_by().annotate(digits=_digits(Cast("pk", CharField()))).values("digits")
    about.alias(digits=_digits(F("object_id"))).filter(digits__in=ids).delete()


def count_holding(phrases: Sequence[str]) -> int:
    """Entries that repeat one of the phrases, about whatever."""
    entries = _entries()
    if entries is None:
        return 0
    columns = ("object_repr", "change_message")
    texts = (Q(**{f"{column}__contains": phrase}) for phrase in phrases for column in columns)
    return entries.filter(reduce(or_, texts)).count()


def _entries() -> "QuerySet[Any] | None":
    if not apps.is_installed("django.contrib.admin"):
        return None
    from django.contrib.admin.models import LogEntry

    return LogEntry.objects.all()


def _digits(expression: Any) -> Replace:
    """An id without its hyphens: databases write one or the other."""
    return Replace(expression, Value("-"), Value(""), output_field=CharField())
