"""After a backup was restored: erasing again whom the ledger tells of, and the database has forgotten (S15, S16)."""

from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any
from uuid import UUID

from django.db import transaction

from memorygw import ledger
from memorygw.erasure import Erasure, forget_user
from memorygw.models import ErasureReceipt
from memorygw.personal_data import personal_data
from memorygw.receipts import document, from_document, seal, subject_of

_PLACE = ("number", "previous", "seal", "status")
DONE, RESTORED = ErasureReceipt.Status.DONE, ErasureReceipt.Status.RESTORED


def people_to_erase() -> list[Erasure]:
    """Whom `replay` would erase again. `LedgerError`, too, when a pepper of that time is not set any more."""
    lost = [*map(from_document, ledger.missing()), *ErasureReceipt.objects.filter(status=RESTORED)]
    return list(_erasures(lost))


def replay() -> list[ErasureReceipt]:
    """Erase again everybody whom the ledger tells of and this database does not; their new receipts. `LedgerError` when
    it cannot be trusted: then nothing is done.

    Calls that run lose their threads. What the ledger tells comes into the database first, so that the chain of
    receipts goes on behind it, and counts as done last, so that this can stop anywhere and be begun again.
    """
    for entry in ledger.missing():
        _take_in(entry)
    restored = list(ErasureReceipt.objects.filter(status=RESTORED).order_by("pk"))
    receipts = [forget_user(erasure) for erasure in _erasures(restored)]
    for receipt in restored:
        _settle(receipt)
    return receipts


def against_ledger(tenant_id: UUID | None) -> Iterator[tuple[UUID, str]]:
    """Receipts that the ledger alone has, or that say something else there: their ids, and which. `LedgerError`."""
    for entry in ledger.missing():
        if tenant_id in (None, UUID(entry["tenant_id"])):
            yield UUID(entry["id"]), "only_in_ledger"
    for entry in ledger.done():
        receipt = ErasureReceipt.objects.filter(pk=entry["id"]).first()
        if receipt and tenant_id in (None, receipt.tenant_id):
            # Its place in the chain may be another one since a restore.
            here = document(receipt)
            if any(here[name] != value for name, value in entry.items() if name not in _PLACE):
                yield receipt.pk, "differs_from_ledger"


def survivors(receipts: Iterable[ErasureReceipt]) -> Iterator[tuple[UUID, str]]:
    """Rows that are older than the erasure of their person: the receipt, and the table. A search of every table."""
    for receipt, user_id in _people_of(receipts):
        for table in personal_data():
            columns = {field.name for field in table.model._meta.concrete_fields}
            # The database's clock, where a client has one of its own.
            stored = next((name for name in ("stored_at", "created_at") if name in columns), None)
            rows = table.rows(receipt.tenant_id, user_id)
            if stored and rows.filter(**{f"{stored}__lt": receipt.created_at}).exists():
                yield receipt.pk, table.name


def _erasures(lost: Iterable[ErasureReceipt]) -> Iterator[Erasure]:
    for receipt, user_id in _people_of(lost):
        yield Erasure(
            tenant_id=receipt.tenant_id,
            user_id=user_id,
            mode=receipt.mode,
            requested_by="replay",
            force=True,
            replays=receipt.pk,
        )


def _people_of(receipts: Iterable[ErasureReceipt]) -> Iterator[tuple[ErasureReceipt, str]]:
    """Who of them is there, found by keyed hash alone: a restored primary key may be somebody else's by now."""

    @cache
    def people(tenant_id: UUID, version: str) -> dict[str, str]:
        return {subject_of(tenant_id, user_id, version): user_id for user_id in _people(tenant_id)}

    for receipt in receipts:
        if user_id := people(receipt.tenant_id, receipt.pepper_version).get(receipt.subject):
            yield receipt, user_id


def _people(tenant_id: UUID) -> set[str]:
    """Everybody of whom the tenant has a row, by any column that names somebody."""
    columns = ((table.model, column) for table in personal_data() for column in table.identifiers)
    people: set[str] = set()
    for model, column in columns:
        rows = model._base_manager.filter(tenant_id=tenant_id).order_by()
        people.update(rows.values_list(column, flat=True).distinct())
    return people


@transaction.atomic(durable=True)
def _take_in(entry: dict[str, Any]) -> None:
    """Keep a receipt of the ledger as it was sealed; without its place, where the chain has gone on since the
    restore."""
    receipt = from_document(entry)
    last = ErasureReceipt.objects.filter(tenant_id=receipt.tenant_id, number__isnull=False).order_by("-number").first()
    if receipt.previous != (last.seal if last else ""):
        receipt.number, receipt.seal = None, ""
    receipt.status = RESTORED
    # Somebody else may be at it.
    ErasureReceipt.objects.bulk_create([receipt], ignore_conflicts=True)


@transaction.atomic(durable=True)
def _settle(receipt: ErasureReceipt) -> None:
    receipt.status = DONE
    if receipt.number is None:
        receipt.finished_at = receipt.finished_at or receipt.created_at
        seal(receipt)
    receipt.save()
