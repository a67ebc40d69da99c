"""Purging what is kept for a time only (S24), by the code that erases people."""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import QuerySet

from memorygw import admin_log
from memorygw.conf import conf
from memorygw.models import ModelCall, Tenant
from memorygw.retention import days_kept, kept
from threads.models import Thread
from usermemory.models import Fact

BATCH_ROWS, _EVERY_SECONDS = 500, 3600
_last_purge = -float(_EVERY_SECONDS)


def erase_expired(*, dry_run: bool = False) -> dict[str, int]:
    """Take away what is older than its tenant keeps it; how many rows of each class. A thread that is held stays."""
    counts: Counter[str] = Counter()
    for tenant_id in Tenant.objects.values_list("pk", flat=True):
        for kind, rows in _expired(tenant_id):
            counts[kind] += rows.count() if dry_run else _purge(rows)
    return dict(counts)


def keep_house() -> None:
    """The same once an hour, where anything is kept for a time: finding it reads whole tables."""
    global _last_purge
    if conf.RETENTION_DAYS and time.monotonic() - _last_purge >= _EVERY_SECONDS:
        _last_purge = time.monotonic()
        erase_expired()


def _expired(tenant_id: UUID) -> "Iterator[tuple[str, QuerySet[Any]]]":
    columns = {"threads": "updated_at", "facts": "updated_at", "model_calls": "created_at"}
    tables: dict[str, Callable[[], QuerySet[Any]]] = {
        "threads": lambda: Thread.objects.filter(tenant_id=tenant_id).unleased(),
        "facts": lambda: Fact.objects.filter(tenant_id=tenant_id).exclude(scope=Fact.Scope.PERSONA),
        "model_calls": lambda: ModelCall.objects.filter(tenant_id=tenant_id),
    }
    for kind, rows in tables.items():
        if days_kept(tenant_id, kind) is not None:
            yield kind, rows().exclude(kept(tenant_id, kind, columns[kind]))


def _purge(rows: "QuerySet[Any]") -> int:
    purged = 0
    while True:
        with transaction.atomic():
            ids = list(rows.order_by("pk").select_for_update().values_list("pk", flat=True)[:BATCH_ROWS])
            batch = rows.model._base_manager.filter(pk__in=ids)
            if rows.model is Thread:
                ModelCall.objects.filter(thread_id__in=ids).update(thread_id=None, run_id=None)
            admin_log.forget(rows.model, batch)
            batch.delete()
        purged += len(ids)
        if len(ids) < BATCH_ROWS:
            return purged
