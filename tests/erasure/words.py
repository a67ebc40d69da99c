"""Words that are said once: whose each is, where it may be by now, and where it is."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, NamedTuple
from uuid import UUID

from django.apps import apps
from django.contrib.admin.models import LogEntry
from django.db import connection, transaction
from django.db.models import Model, QuerySet

from memorygw.models import ErasureReceipt
from memorygw.personal_data import personal_data
from usermemory.models import Fact
from workingmemory.models import WorkingMemoryState

FACTS, NOTES, ELSEWHERE = "facts", "notes", "elsewhere"
ANYWHERE = frozenset({FACTS, NOTES, ELSEWHERE})
_PLACES: Mapping[type[Model], str] = {Fact: FACTS, WorkingMemoryState: NOTES}
_WORD = re.compile(r"word\d{5}z")

Row = tuple[type[Model], str]


class Person(NamedTuple):
    """What a call of the gateway begins with."""

    tenant_id: UUID
    user_id: str


@dataclass(frozen=True)
class Word:
    """``places``: where it may be stored; none any more: it is forgotten."""

    person: Person
    places: frozenset[str] = ANYWHERE


def found_in(value: object) -> set[str]:
    """The words in whatever it is."""
    return set(_WORD.findall(repr(value)))


def found_in_rows(*querysets: "QuerySet[Any]") -> set[str]:
    return found_in([list(rows.values_list()) for rows in querysets])


@dataclass
class Words:
    """Every word that was said, by ``requests_made`` to models.

    ``erased`` are those of erased people, which no backup brings back; ``gone`` says for a forgotten word how many
    requests had been made by then.
    """

    requests_made: Callable[[], int]
    said: dict[str, Word] = field(default_factory=dict)
    erased: set[str] = field(default_factory=set)
    gone: dict[str, int] = field(default_factory=dict)
    numbers: "count[int]" = field(init=False)

    def __post_init__(self) -> None:
        self.numbers = count(len(self.said) + 1)

    def new(self, person: Person, places: frozenset[str] = ANYWHERE) -> str:
        word = f"word{next(self.numbers):05}z"
        self.said[word] = Word(person, places)
        return word

    def of(self, *people: Person) -> set[str]:
        return {word for word, about in self.said.items() if about.person in people}

    def allow(self, word: str, place: str) -> None:
        self.said[word] = replace(self.said[word], places=self.said[word].places | {place})

    def banish(self, words: Iterable[str], *places: str) -> None:
        """From these places they are gone, from now on."""
        for word in words:
            if word in self.said:
                left = self.said[word].places - set(places)
                self.said[word] = replace(self.said[word], places=left)
                if not left:
                    self.gone.setdefault(word, self.requests_made())

    def erase(self, person: Person) -> None:
        words = self.of(person)
        self.banish(words, *ANYWHERE)
        self.erased |= words

    def go_back(self, said: Mapping[str, Word]) -> None:
        """A backup was restored, from when these had been said. What was forgotten since is back, erased people are to
        be erased again."""
        self.said = {word: about for word, about in said.items() if word not in self.erased}
        self.gone = {word: 0 for word in self.gone if word not in self.said or not self.said[word].places}

    def told_too_late(self, requests: Sequence[str]) -> set[str]:
        """Words that are in a request which was made when they were gone."""
        return {
            word
            for number, request in enumerate(requests)
            for word in found_in(request)
            if self.gone.get(word, len(requests)) <= number
        }

    def misplaced(self, places: Mapping[str, set[Row]]) -> dict[str, set[Row]]:
        """Words that are where they may not be."""
        wrong: dict[str, set[Row]] = {}
        for word, rows in places.items():
            allowed = self.said[word].places if word in self.said else ()
            if rows_there := {row for row in rows if _PLACES.get(row[0], ELSEWHERE) not in allowed}:
                wrong[word] = rows_there
        return wrong


class Tables:
    """Every table there is; compiled once, read often."""

    def __init__(self) -> None:
        self._queries = [
            (model, model._base_manager.values_list("pk", *_columns(model)).query.sql_with_params())
            for model in apps.get_models()
        ]
        ours = {apps.get_containing_app_config(table.model.__module__) for table in personal_data()}
        self._ours: list[type[Model]] = [model for config in ours if config for model in config.get_models()]

    def places(self) -> dict[str, set[Row]]:
        """Every word that is in a row, with those rows."""
        places: dict[str, set[Row]] = {}
        with connection.cursor() as cursor:
            for model, (sql, params) in self._queries:
                cursor.execute(sql, params)
                for row in cursor.fetchall():
                    for word in found_in(row):
                        places.setdefault(word, set()).add((model, str(row[0])))
        return places

    def places_of(self, words: set[str]) -> set[tuple[str, Row]]:
        return {(word, row) for word, rows in self.places().items() if word in words for row in rows}

    def back_up(self) -> dict[type[Model], list[Model]]:
        """Every row of ours, and of Django's admin log."""
        models: list[type[Model]] = [*self._ours, LogEntry]
        return {model: list(model._base_manager.all()) for model in models}

    def restore(self, backup: Mapping[type[Model], list[Model]]) -> None:
        with transaction.atomic():
            for model in backup:
                model._base_manager.all()._raw_delete("default")
            for model, rows in backup.items():
                model._base_manager.bulk_create(rows)

    def rows_about(self, person: Person) -> list[Row]:
        """Rows that name the person, by what columns are called: memorygw's own list of tables is not asked."""
        rows: list[Row] = []
        for model in self._ours:
            if model is ErasureReceipt or "tenant" not in (names := _columns(model)):
                continue
            for column in {"user_id", "owner_id"} & set(names):
                found = model._base_manager.filter(tenant_id=person.tenant_id, **{column: person.user_id})
                rows += [(model, str(pk)) for pk in found.values_list("pk", flat=True)]
        return rows


def _columns(model: type[Model]) -> list[str]:
    return [field.name for field in model._meta.concrete_fields]
