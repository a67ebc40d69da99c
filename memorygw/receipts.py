"""Receipts of erasures: who they are about, as a hash; and the chain that shows when one was altered (S16, S19)."""

import hashlib
import hmac
import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.serializers.json import DjangoJSONEncoder
from django.utils import timezone

from memorygw.conf import conf
from memorygw.models import ErasureReceipt, Tenant

_SEALED = [field.attname for field in ErasureReceipt._meta.concrete_fields if field.name not in ("seal", "touched_at")]


def peppers() -> dict[str, str]:
    """Version → secret, the current one first: ``MEMORYGW_PEPPER`` is ``2:secret,1:older secret``."""
    if not conf.PEPPER:
        if not settings.DEBUG:
            raise ImproperlyConfigured("Set MEMORYGW_PEPPER.")
        return {"0": f"memorygw {settings.SECRET_KEY}"}
    parts = (part.strip().rpartition(":") for part in conf.PEPPER.split(","))
    return {version or "1": secret for version, _, secret in parts}


def current_pepper() -> str:
    """The version that new receipts are made with."""
    return next(iter(peppers()))


def subject_of(tenant_id: UUID, user_id: str, version: str) -> str:
    """A person, recognisable to who has the pepper of this version, and to nobody else. KeyError: it is not set."""
    return _keyed(version, f"{tenant_id}\n{user_id}")


def residuals() -> list[dict[str, Any]]:
    """What has erased rows still when they are gone from the tables, and until when at the latest."""
    until = (timezone.now() + timedelta(days=conf.BACKUP_DAYS)).date()
    backups = {"what": "backups", "until": until.isoformat() if conf.BACKUP_DAYS else None}
    return [backups, {"what": "the database's log and free pages", "until": None}]


def seal(receipt: ErasureReceipt) -> None:
    """Give a receipt its place behind the tenant's latest, and its seal, in the caller's transaction."""
    # Two that end at once have two numbers; rows that refer to the tenant are written meanwhile.
    Tenant.objects.select_for_update(no_key=True).filter(pk=receipt.tenant_id).first()
    sealed = ErasureReceipt.objects.filter(tenant_id=receipt.tenant_id, number__isnull=False)
    last = sealed.exclude(pk=receipt.pk).order_by("-number").first()
    receipt.number = last.number + 1 if last and last.number else 1
    receipt.previous = last.seal if last else ""
    receipt.seal = _seal_of(receipt)


def problems(tenant_id: UUID | None = None) -> Iterator[tuple[UUID, str]]:
    """Receipts that are not as they were sealed, or whose neighbour is missing: their ids, and what is wrong."""
    sealed = ErasureReceipt.objects.filter(number__isnull=False, status=ErasureReceipt.Status.DONE)
    receipts = sealed.order_by("tenant_id", "number")
    receipts = receipts.filter(tenant_id=tenant_id) if tenant_id else receipts
    before: ErasureReceipt | None = None
    for receipt in receipts.iterator():
        before = before if before and before.tenant_id == receipt.tenant_id else None
        expected = (before.number or 0) + 1 if before else 1
        if receipt.pepper_version not in peppers():
            yield receipt.pk, "pepper_missing"
        elif not hmac.compare_digest(receipt.seal, _seal_of(receipt)):
            yield receipt.pk, "altered"
        elif receipt.number != expected or receipt.previous != (before.seal if before else ""):
            yield receipt.pk, "neighbour_missing"
        before = receipt


def document(receipt: ErasureReceipt) -> dict[str, Any]:
    """All of a receipt, as the ledger keeps it."""
    text = json.dumps({name: getattr(receipt, name) for name in [*_SEALED, "seal"]}, cls=DjangoJSONEncoder)
    values: dict[str, Any] = json.loads(text)
    return values


def from_document(values: dict[str, Any]) -> ErasureReceipt:
    fields = {field.attname: field for field in ErasureReceipt._meta.concrete_fields}
    return ErasureReceipt(**{name: fields[name].to_python(value) for name, value in values.items() if name in fields})


def _seal_of(receipt: ErasureReceipt) -> str:
    sealed = {name: value for name, value in document(receipt).items() if name != "seal"}
    return _keyed(receipt.pepper_version, json.dumps(sealed, sort_keys=True))


def _keyed(version: str, text: str) -> str:
    return hmac.new(peppers()[version].encode(), text.encode(), hashlib.sha256).hexdigest()
