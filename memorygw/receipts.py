"""Receipts of erasures: who they are about, as a hash; and the chain that shows when one was altered (S16, S19)."""

import hashlib
import hmac
import json
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import regex
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.serializers.json import DjangoJSONEncoder
from django.db.models import QuerySet
from django.utils import timezone

from memorygw.conf import conf
from memorygw.models import ErasureReceipt, Tenant

_VERSION = regex.compile(r"[0-9]{1,9}")
_SEALED = [field.attname for field in ErasureReceipt._meta.concrete_fields if field.name not in ("seal", "touched_at")]


def peppers() -> dict[str, str]:
    """Version → secret, the current one first: ``MEMORYGW_PEPPER`` is ``2:secret,1:older secret``."""
    if not conf.PEPPER:
        if not settings.DEBUG:
            raise ImproperlyConfigured("Set MEMORYGW_PEPPER.")
        return {"0": f"memorygw {settings.SECRET_KEY}"}
    return {version: secret for version, _, secret in _parts()}


def pepper_problem() -> str:
    """What is wrong with the setting, or an empty string. A secret must never be taken for a version, and shown."""
    if not conf.PEPPER:
        return "" if settings.DEBUG else "is not set"
    parts = _parts()
    if not all(_VERSION.fullmatch(version) and secret for version, _, secret in parts):
        return 'must be "1:secret", or with an older one behind it "2:newer secret,1:secret"'
    return "names a version twice" if len({version for version, *_ in parts}) < len(parts) else ""


def _parts() -> list[tuple[str, str, str]]:
    return [part.strip().partition(":") for part in conf.PEPPER.split(",")]


def current_pepper() -> str:
    """The version that new receipts are made with."""
    return next(iter(peppers()))


def subject_of(tenant_id: UUID, user_id: str, version: str) -> str:
    """A person, recognisable to who has the pepper of this version, and to nobody else. KeyError: it is not set."""
    return _keyed(version, f"{tenant_id}\n{user_id}")


def receipts_of(tenant_id: UUID, user_id: str) -> "QuerySet[ErasureReceipt]":
    """Those of a person, whatever secret they were made with."""
    subjects = [subject_of(tenant_id, user_id, version) for version in peppers()]
    return ErasureReceipt.objects.filter(tenant_id=tenant_id, subject__in=subjects)


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
    receipts = ErasureReceipt.objects.filter(**{"tenant_id": tenant_id} if tenant_id else {})
    for receipt in receipts.filter(number__isnull=True).exclude(status=ErasureReceipt.Status.RESTORED):
        # One that is under way has no place yet; anything else is made up.
        if receipt.status != ErasureReceipt.Status.RUNNING or receipt.seal:
            yield receipt.pk, "altered"
    before: ErasureReceipt | None = None
    for receipt in receipts.filter(number__isnull=False).order_by("tenant_id", "number").iterator():
        before = before if before and before.tenant_id == receipt.tenant_id else None
        if problem := _problem(receipt, before):
            yield receipt.pk, problem
        before = receipt


def _problem(receipt: ErasureReceipt, before: ErasureReceipt | None) -> str:
    if receipt.pepper_version not in peppers():
        return "pepper_missing"
    # A restored one was done when it was sealed.
    sealed = document(receipt) | {"status": ErasureReceipt.Status.DONE.value}
    if receipt.status == ErasureReceipt.Status.RUNNING or not is_authentic(sealed):
        return "altered"
    is_next = receipt.number == ((before.number or 0) + 1 if before else 1)
    return "" if is_next and receipt.previous == (before.seal if before else "") else "neighbour_missing"


def is_authentic(values: dict[str, Any]) -> bool:
    """Whether a document is as it was sealed. One that cannot be checked, since its pepper is not set, is not."""
    sealed = {name: value for name, value in values.items() if name != "seal"}
    version = values.get("pepper_version", "")
    return version in peppers() and hmac.compare_digest(str(values.get("seal")), _sealed(version, sealed))


class _Encoder(DjangoJSONEncoder):
    """Times always with milliseconds: one that is read back from the ledger is spelt as it was."""

    def default(self, o: Any) -> Any:
        if isinstance(o, datetime):
            return o.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        return super().default(o)


def document(receipt: ErasureReceipt) -> dict[str, Any]:
    """All of a receipt, as the ledger keeps it; one that is under way is sealed there, too."""
    text = json.dumps({name: getattr(receipt, name) for name in _SEALED}, cls=_Encoder)
    values: dict[str, Any] = json.loads(text)
    return values | {"seal": receipt.seal or _sealed(receipt.pepper_version, values)}


def from_document(values: dict[str, Any]) -> ErasureReceipt:
    fields = {field.attname: field for field in ErasureReceipt._meta.concrete_fields}
    return ErasureReceipt(**{name: fields[name].to_python(value) for name, value in values.items() if name in fields})


def _seal_of(receipt: ErasureReceipt) -> str:
    receipt.seal = ""
    return str(document(receipt)["seal"])


def _sealed(version: str, values: dict[str, Any]) -> str:
    return _keyed(version, json.dumps(values, sort_keys=True))


def _keyed(version: str, text: str) -> str:
    return hmac.new(peppers()[version].encode(), text.encode(), hashlib.sha256).hexdigest()
