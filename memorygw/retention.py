"""How long things are kept (S24): hidden once their time is over, purged by the sweep.

``MEMORYGW_RETENTION_DAYS`` is class → days, and under ``tenants`` the same for a tenant by its name.
"""

import time
from functools import lru_cache, reduce
from operator import or_
from typing import Any
from uuid import UUID

from django.db.models import Q

from memorygw.conf import conf
from memorygw.database import after
from memorygw.models import Tenant

CLASSES = ("threads", "facts", "model_calls")
"""Threads and facts since their last change, costs of models since they arose."""

_DAY_SECONDS = 24 * 3600


def days_kept(tenant_id: UUID, kind: str) -> int | None:
    """Days that the tenant's rows of this class are kept; None: for ever. No query, but one for each tenant's name."""
    own = conf.RETENTION_DAYS.get("tenants")
    of_tenant: dict[str, int] = own.get(_name_of(tenant_id, int(time.time() // 60)), {}) if own else {}
    return of_tenant.get(kind, conf.RETENTION_DAYS.get(kind))


def kept(tenant_id: UUID, kind: str, column: str = "updated_at") -> Q:
    """The rows whose time is not over."""
    days = days_kept(tenant_id, kind)
    return Q() if days is None else Q(**{f"{column}__gt": after(-days * _DAY_SECONDS)})


def kept_of_all(kind: str, prefix: str = "") -> Q:
    """The same for the rows of all tenants, or of what ``prefix`` leads to; a query for those that have days of their
    own."""
    days = conf.RETENTION_DAYS.get(kind)
    column, tenant = f"{prefix}updated_at", f"{prefix}tenant_id"
    within = Q() if days is None else Q(**{f"{column}__gt": after(-days * _DAY_SECONDS)})
    names = conf.RETENTION_DAYS.get("tenants", {})
    own = list(Tenant.objects.filter(name__in=names).values_list("pk", flat=True)) if names else []
    if not own:
        return within
    others = Q(~Q(**{f"{tenant}__in": own}), within)
    return reduce(or_, (Q(kept(pk, kind, column), **{tenant: pk}) for pk in own), others)


def policy(tenant_id: UUID) -> dict[str, int]:
    """Class → days, of those that are kept for a time."""
    kinds = ((kind, days_kept(tenant_id, kind)) for kind in CLASSES)
    return {kind: days for kind, days in kinds if days is not None}


def problem(policies: Any) -> str:
    """What is wrong with the setting, or an empty string."""
    if not isinstance(policies, dict):
        return "must be an object"
    own = policies.get("tenants", {})
    parts: list[Any] = [{kind: days for kind, days in policies.items() if kind != "tenants"}]
    parts += own.values() if isinstance(own, dict) else [own]
    for part in parts:
        if not (isinstance(part, dict) and set(part) <= set(CLASSES)):
            return f"may name {', '.join(CLASSES)} and tenants"
        if not all(isinstance(days, int) and not isinstance(days, bool) and days > 0 for days in part.values()):
            return "needs whole numbers of days, from 1 on"
    return ""


@lru_cache(maxsize=10_000)
def _name_of(tenant_id: UUID, _minute: int) -> str:
    """Read once a minute: a tenant may get another name."""
    return str(Tenant.objects.values_list("name", flat=True).get(pk=tenant_id))
