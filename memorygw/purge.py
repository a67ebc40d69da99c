"""Taking a person's rows away: table by table, in batches, each step as often as it finds some."""

from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol
from uuid import UUID, uuid4

from django.db.models import Model, QuerySet
from django.db.models.deletion import Collector
from django.utils.module_loading import import_string

from memorygw import admin_log
from memorygw.conf import conf
from memorygw.models import ErasureReceipt
from memorygw.personal_data import PersonalData, personal_data
from usermemory.models import UserMemory

BATCH_ROWS = 5_000


class Eraser(Protocol):
    """What ``MEMORYGW_ERASERS`` names: a host's own data about a person."""

    name: str

    def erase(self, tenant_id: UUID, user_id: str, limit: int) -> int:
        """Take at most so many rows away; how many. It is called until there are none, and may be called again."""
        ...

    def export(self, tenant_id: UUID, user_id: str) -> Iterable[Any]:
        """The person's rows, each as a value of JSON."""
        ...


def erasers() -> list[Eraser]:
    return [import_string(path)() for path in conf.ERASERS]


def tables() -> list[PersonalData]:
    """Those that are purged. The record is not: it is the mark of the fence, and goes last."""
    return [table for table in personal_data() if table.model is not UserMemory]


@dataclass
class Purge:
    """One way through all tables. An anonymous person has one name in all of their threads, which nothing leads to."""

    tenant_id: UUID
    user_id: str
    mode: str
    has_rows: "Counter[str]"
    logged: set[type[Model]]
    pseudonym: str = field(default_factory=lambda: f"anonymous-{uuid4().hex}")

    def __post_init__(self) -> None:
        found = [table for table in tables() if self.has_rows[table.name]]
        self._steps: deque[PersonalData | Eraser] = deque([*found, *erasers()])

    @property
    def is_over(self) -> bool:
        return not self._steps

    def stop(self) -> None:
        self._steps.clear()

    def batch(self, limit: int) -> "Counter[str]":
        """Take at most so many rows away, in the caller's transaction, of as many tables as these are in: how many of
        each."""
        counts: Counter[str] = Counter()
        while self._steps and counts.total() < limit:
            step, room = self._steps[0], limit - counts.total()
            count = self._erase(step, room)
            counts[step.name] += count
            if count == 0 or (count < room and isinstance(step, PersonalData)):
                self._steps.popleft()
        return counts

    def _erase(self, step: "PersonalData | Eraser", limit: int) -> int:
        if not isinstance(step, PersonalData):
            return step.erase(self.tenant_id, self.user_id, limit)
        rows = step.rows(self.tenant_id, self.user_id).order_by("pk")
        held: list[Any] = []
        if any(_refers(child, step) for child in personal_data()):
            # What others hang their rows on is locked, in the order of ids: a row that came late goes along.
            held = list(rows.select_for_update()[:limit])
            rows = step.model._base_manager.filter(pk__in=[row.pk for row in held])
        batch = step.model._base_manager.filter(pk__in=rows.values("pk")[:limit])
        if step.model in self.logged:
            admin_log.forget(step.model, batch)
        if step.unlinked is not None:
            return batch.update(**step.unlinked)
        if step.skeleton is not None and self.mode == ErasureReceipt.Mode.ANONYMIZE:
            _delete_children(step, batch)
            return batch.update(**step.skeleton, **dict.fromkeys(step.identifiers, self.pseudonym))
        return _deleted(step, _delete(held) if held else batch.delete())


def _delete(held: list[Any]) -> tuple[int, dict[str, int]]:
    """Rows that are read already, with what hangs on them."""
    collector = Collector(using=held[0]._state.db)
    collector.collect(held)
    return collector.delete()


def _deleted(table: PersonalData, done: tuple[int, dict[str, int]]) -> int:
    return done[1].get(table.model._meta.label, 0)


def _delete_children(table: PersonalData, rows: "QuerySet[Any]") -> None:
    for child in tables():
        for relation in child.model._meta.concrete_fields:
            if relation.related_model is table.model and not relation.null:
                child.model._base_manager.filter(**{f"{relation.name}__in": rows.values("pk")}).delete()


def _refers(child: PersonalData, to: PersonalData) -> bool:
    return any(column.related_model is to.model for column in child.model._meta.concrete_fields if column.is_relation)
