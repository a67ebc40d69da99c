"""Is it alive, is it ready."""

from typing import Any

from celery import current_app
from django.db import DatabaseError, connection, transaction
from django.db.migrations.executor import MigrationExecutor
from django.http import HttpRequest, JsonResponse
from django.views.decorators.http import require_safe
from kombu.exceptions import KombuError

from memorygw import ledger
from memorygw.claims import has_broker


@require_safe
@transaction.non_atomic_requests
def livez(request: HttpRequest) -> JsonResponse:
    """The process answers; nothing else is asked."""
    return JsonResponse({"status": "ok"})


@require_safe
@transaction.non_atomic_requests
def readyz(request: HttpRequest) -> JsonResponse:
    """503 until the database answers, is migrated, and knows of every erasure in the ledger (S15). A broker that is
    down only degrades: learning catches up."""
    checks: dict[str, Any] = {"database": _database(), "broker": _broker()}
    if checks["database"] == "ok":
        checks["erasures"] = "to be replayed" if ledger.is_behind() else "ok"
    if checks["database"] != "ok" or checks["erasures"] != "ok":
        return JsonResponse({"status": "unavailable", "checks": checks}, status=503)
    return JsonResponse({"status": "ok" if checks["broker"] != "down" else "degraded", "checks": checks})


def _database() -> str:
    try:
        executor = MigrationExecutor(connection)
        pending = executor.migration_plan(executor.loader.graph.leaf_nodes())
    except DatabaseError:
        return "down"
    return "migrations pending" if pending else "ok"


def _broker() -> str:
    if not has_broker():
        return "none"
    try:
        with current_app.connection_for_write(connect_timeout=1) as broker:
            broker.ensure_connection(max_retries=1, interval_start=0, timeout=2)
    except (KombuError, OSError):
        return "down"
    return "ok"
