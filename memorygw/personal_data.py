"""What holds personal data, as each app declares it: the one list for erasure, its proof, retention and replay (S2)."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.apps import apps
from django.db import models

CONTENT, IDENTIFIER, INTERNAL = "content", "identifier", "internal"
"""What a column holds: what somebody said; who it is about; codes, digests, names of models."""

_TEXTS = (models.CharField, models.TextField, models.JSONField, models.BinaryField, models.UUIDField)


@dataclass(frozen=True, kw_only=True)
class PersonalData:
    """A table with rows of single persons. ``rows(tenant_id, user_id)`` are those of one, found by an index.

    ``columns``: what each column holds that can hold a text. ``unlinked``: erasing leaves the rows, with these values.
    ``skeleton``: anonymising does, and puts a pseudonym in place of the person.
    """

    model: type[models.Model]
    name: str
    rows: Callable[[UUID, str], "models.QuerySet[Any]"]
    columns: Mapping[str, str]
    unlinked: Mapping[str, Any] | None = None
    skeleton: Mapping[str, Any] | None = None

    @property
    def identifiers(self) -> list[str]:
        return [name for name, holds in self.columns.items() if holds == IDENTIFIER]


@dataclass(frozen=True)
class NotPersonal:
    """A table without rows of single persons, and why."""

    model: type[models.Model]
    why: str


_declared: dict[type[models.Model], PersonalData | NotPersonal] = {}


def declare(*tables: PersonalData | NotPersonal) -> None:
    """Say what an app's tables hold; called when it is ready."""
    _declared.update({table.model: table for table in tables})


def personal_data() -> list[PersonalData]:
    """Every table with rows of persons, those that refer to others before these, those that are unlinked first."""
    ordered: dict[type[models.Model], PersonalData] = {}

    def visit(table: PersonalData | NotPersonal) -> None:
        if isinstance(table, PersonalData) and table.model not in ordered:
            for referring in _declared.values():
                if referring is not table and _refers(referring.model, table.model):
                    visit(referring)
            ordered[table.model] = table

    for table in sorted(_declared.values(), key=lambda table: getattr(table, "unlinked", None) is None):
        visit(table)
    return list(ordered.values())


def undeclared() -> Iterator[str]:
    """Tables of ours, and columns that can hold a text, of which nobody has said what they hold."""
    ours = {apps.get_containing_app_config(model.__module__) for model in _declared}
    for model in (model for config in ours if config for model in config.get_models()):
        table = _declared.get(model)
        if table is None:
            yield model._meta.label
        elif isinstance(table, PersonalData):
            fields = model._meta.concrete_fields
            texts = {field.name for field in fields if isinstance(field, _TEXTS) and not field.primary_key}
            yield from (f"{model._meta.label}.{name}" for name in sorted(texts ^ set(table.columns)))


def _refers(model: type[models.Model], to: type[models.Model]) -> bool:
    return any(field.related_model is to for field in model._meta.concrete_fields if field.is_relation)
