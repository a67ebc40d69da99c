"""Forgetting a person: deleted or anonymised, whole, by whoever asks for it, and proven (S1–S9, K16).

Fence, purge, look, seal. The fence is committed first: the person's record is marked, so that no fact is written and no
thread begun, and their threads are closed, so that no call writes there. What follows can be done in batches, stop at
any point, be gone on with by anybody, and be done twice.

Locks are taken in this order: receipt, thread, record. Only the beginning holds the record first, and nothing more.
"""

import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import BooleanField, ExpressionWrapper, Model, Q
from django.db.models.functions import Now
from django.utils import timezone

from memorygw import admin_log, ledger, purge
from memorygw.database import after
from memorygw.exceptions import ErasureRunningError, ThreadBusyError
from memorygw.models import ErasureReceipt
from memorygw.proof import count_rows, holding, phrases_of
from memorygw.purge import Purge, erasers
from memorygw.receipts import current_pepper, receipts_of, residuals, seal, subject_of
from threads.models import Thread
from usermemory.models import UserMemory
from usermemory.rows import lock_record

logger = logging.getLogger(__name__)

_TAKEN_OVER_SECONDS, _PASSES = 60, 3
DELETE, ANONYMIZE = ErasureReceipt.Mode.DELETE, ErasureReceipt.Mode.ANONYMIZE
RUNNING, DONE = ErasureReceipt.Status.RUNNING, ErasureReceipt.Status.DONE


class _CalledOffError(Exception):
    """Whoever had begun was refused, and took it back."""


@dataclass(frozen=True, kw_only=True)
class Erasure:
    """What is asked for. ``force``: calls that run on the person's threads lose them, instead of stopping this."""

    tenant_id: UUID
    user_id: str
    mode: str = DELETE
    requested_by: str = ""
    force: bool = False
    replays: UUID | None = None

    @property
    def person(self) -> tuple[UUID, str]:
        return self.tenant_id, self.user_id


def forget_user(erasure: Erasure, *, told: Callable[[int, int], None] = lambda gone, of: None) -> ErasureReceipt:
    """Erase a person; the receipt. One that is under way is joined: two requests have one receipt (S8).

    ``told``: how many rows are gone of how many, after each batch. `ThreadBusyError` when a call is running on one of
    their threads, unless forced; `ErasureRunningError` while they are erased in the other mode. Then nothing is done.
    """
    receipt = _fence(erasure)
    has_rows, logged = count_rows(*erasure.person), admin_log.models()
    phrases = phrases_of(*erasure.person) if has_rows["turns"] or has_rows["facts"] else []
    # What came in through a gap goes in another pass.
    for _ in range(_PASSES):
        way, gone, of = Purge(*erasure.person, erasure.mode, has_rows, logged), 0, has_rows.total()
        while not way.is_over:
            gone += _batch(receipt, way)
            told(gone, of)
        has_rows = count_rows(*erasure.person)
        if not _left(has_rows):
            break
    found = _left(has_rows) | holding(erasure.tenant_id, phrases)
    return _finish(erasure, receipt, found, logged)


def count_user(tenant_id: UUID, user_id: str) -> dict[str, int]:
    """What erasing would take, by table; nothing is changed (S7)."""
    return _reported(count_rows(tenant_id, user_id))


def go_on() -> int:
    """Finish what processes began that died since (S9); how many erasures. One that fails leaves the others alone."""
    marked = UserMemory.objects.filter(erasing_at__lte=after(-_TAKEN_OVER_SECONDS))
    finished = 0
    for tenant_id, user_id in marked.values_list("tenant_id", "user_id"):
        left = _running(tenant_id, user_id).filter(touched_at__lte=after(-_TAKEN_OVER_SECONDS)).first()
        if left is None:
            continue
        try:
            forget_user(Erasure(tenant_id=tenant_id, user_id=user_id, mode=left.mode))
            finished += 1
        except ThreadBusyError:
            # It had not got past the fence, and is not begun again for nobody.
            continue
        except Exception as error:
            # A host's part, a ledger: its words may be about the person.
            logger.error("Erasure %s failed: %s", left.pk, type(error).__name__)
    return finished


# --- the fence


def _fence(erasure: Erasure) -> ErasureReceipt:
    """Nothing is written about the person from here on."""
    with transaction.atomic(durable=True):
        record = lock_record(*erasure.person, erasing=True)
        receipt = _running(*erasure.person).first() or _begin(erasure)
        if receipt.mode != erasure.mode:
            raise ErasureRunningError
        UserMemory.objects.filter(pk=record.pk).update(erasing_at=Now())
    try:
        receipt = _close(erasure, receipt)
    except _CalledOffError:
        return _fence(erasure)
    except ThreadBusyError:
        _call_off(erasure, receipt)
        raise
    ledger.write(receipt)
    return receipt


def _running(tenant_id: UUID, user_id: str) -> Any:
    """The receipt of an erasure that is under way."""
    return receipts_of(tenant_id, user_id).filter(status=RUNNING)


def _begin(erasure: Erasure) -> ErasureReceipt:
    pepper = current_pepper()
    receipt = ErasureReceipt(
        tenant_id=erasure.tenant_id,
        subject=subject_of(*erasure.person, pepper),
        pepper_version=pepper,
        mode=erasure.mode,
        requested_by=erasure.requested_by[:100],
        created_at=timezone.now(),
        replays=erasure.replays,
        version=_version(),
    )
    receipt.save(force_insert=True)
    return receipt


@transaction.atomic(durable=True)
def _close(erasure: Erasure, receipt: ErasureReceipt) -> ErasureReceipt:
    """Close the person's threads, unless whoever was first has done it."""
    locked = _locked(receipt)
    if locked is None:
        raise _CalledOffError
    if locked.phases:
        return locked
    threads = Thread.objects.filter(tenant_id=erasure.tenant_id, user_id=erasure.user_id)
    is_busy = ExpressionWrapper(Q(lease_expires_at__gt=Now()), output_field=BooleanField())
    found = threads.order_by("pk").select_for_update().annotate(is_busy=is_busy).values_list("pk", "is_busy")
    if (busy := [pk for pk, held in found if held]) and not erasure.force:
        raise ThreadBusyError(thread_ids=busy)
    threads.update(status=Thread.Status.CLOSED, lease_token=None, lease_expires_at=None)
    locked.phases["fenced"] = timezone.now().isoformat()
    locked.save(update_fields=["phases"])
    return locked


def _locked(receipt: ErasureReceipt) -> ErasureReceipt | None:
    return ErasureReceipt.objects.select_for_update().filter(pk=receipt.pk).first()


@transaction.atomic
def _call_off(erasure: Erasure, receipt: ErasureReceipt) -> None:
    """As if it had not been asked for; not where somebody who joined has got further, or has called it off."""
    locked = _locked(receipt)
    if locked and not locked.phases:
        locked.delete()
        UserMemory.objects.filter(tenant_id=erasure.tenant_id, user_id=erasure.user_id).update(erasing_at=None)


# --- the purge, and the end


def _batch(receipt: ErasureReceipt, way: Purge) -> int:
    """One batch, counted in the transaction in which it goes; how many rows."""
    with transaction.atomic(durable=True):
        # Whoever has joined counts, too.
        locked = _locked(receipt)
        if locked is None or locked.status != RUNNING:
            # Somebody else was done first: what is there now may be a person who came back.
            way.stop()
            return 0
        gone = way.batch(purge.BATCH_ROWS)
        counts = dict(Counter(locked.counts) + gone)
        ErasureReceipt.objects.filter(pk=receipt.pk).update(counts=counts, touched_at=Now())
    return gone.total()


def _finish(
    erasure: Erasure, receipt: ErasureReceipt, found: dict[str, int], logged: set[type[Model]]
) -> ErasureReceipt:
    """Take the record down, and seal the receipt, with what was found in the end."""
    with transaction.atomic(durable=True):
        locked = _locked(receipt)
        assert locked  # noqa: S101  behind the fence nobody takes it away
        if locked.status == DONE:
            return locked
        records = UserMemory.objects.filter(tenant_id=erasure.tenant_id, user_id=erasure.user_id)
        if UserMemory in logged:
            admin_log.forget(UserMemory, records)
        records.delete()
        locked.counts = _reported(Counter(locked.counts))
        locked.finished_at = timezone.now()
        locked.phases |= {"purged": locked.touched_at.isoformat(), "verified": locked.finished_at.isoformat()}
        locked.found, locked.level = found, "tables"
        locked.verified = not any(table.name in found for table in purge.tables())
        locked.residuals, locked.status = residuals(), DONE
        seal(locked)
        locked.save()
    ledger.write(locked)
    return locked


def _left(has_rows: "Counter[str]") -> dict[str, int]:
    return {table.name: has_rows[table.name] for table in purge.tables() if has_rows[table.name]}


def _reported(counts: "Counter[str]") -> dict[str, int]:
    """Counts of every table, zeros too: what is not there was looked for."""
    names = [*(table.name for table in purge.tables()), *(eraser.name for eraser in erasers())]
    return {name: counts[name] for name in names}


def _version() -> str:
    try:
        return version("memorygw")
    except PackageNotFoundError:
        return "source"
