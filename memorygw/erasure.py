"""Forgetting a person: deleted or anonymised, whole, by whoever asks for it, and proven (S1–S9, K16).

Fence, purge, look, seal. The fence is committed first: the person's record is marked, so that no fact is written and no
thread begun, and their threads are closed, so that no call writes there. What follows can be done in batches, stop at
any point, be gone on with by anybody, and be done twice.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Protocol
from uuid import UUID, uuid4

from django.db import transaction
from django.db.models.functions import Now
from django.utils import timezone
from django.utils.module_loading import import_string

from memorygw import admin_log, ledger
from memorygw.conf import conf
from memorygw.database import after
from memorygw.exceptions import ThreadBusyError
from memorygw.models import ErasureReceipt
from memorygw.personal_data import PersonalData, personal_data
from memorygw.proof import count_rows, phrases_of, traces_of
from memorygw.receipts import current_pepper, residuals, seal, subject_of
from threads.models import Thread
from usermemory.models import UserMemory
from usermemory.rows import lock_record

BATCH_ROWS = 5_000
_TAKEN_OVER_SECONDS = 60
DELETE, ANONYMIZE = ErasureReceipt.Mode.DELETE, ErasureReceipt.Mode.ANONYMIZE
RUNNING, DONE = ErasureReceipt.Status.RUNNING, ErasureReceipt.Status.DONE


class Eraser(Protocol):
    """What ``MEMORYGW_ERASERS`` names: a host's own data about a person."""

    name: str

    def erase(self, tenant_id: UUID, user_id: str, limit: int) -> int:
        """Take at most so many rows away; how many. It is called until there are none, and may be called again."""
        ...

    def export(self, tenant_id: UUID, user_id: str) -> Iterable[Any]:
        """The person's rows, each as a value of JSON."""
        ...


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

    ``told``: how many rows are gone of how many, after each batch.
    `ThreadBusyError` when a call is running on one of their threads, unless forced; then nothing is erased.
    """
    receipt = _fence(erasure)
    has_rows = count_rows(*erasure.person)
    phrases = phrases_of(*erasure.person) if has_rows["turns"] or has_rows["facts"] else []
    steps, gone = deque(_steps(erasure, has_rows)), 0
    while steps:
        gone += _batch(receipt, steps)
        told(gone, has_rows.total())
    return _finish(erasure, receipt, phrases)


def count_user(tenant_id: UUID, user_id: str) -> dict[str, int]:
    """What erasing would take, by table; nothing is changed (S7)."""
    return _reported(count_rows(tenant_id, user_id), tenant_id, user_id)


def go_on() -> int:
    """Finish what processes began that died since (S9); how many erasures."""
    marked = UserMemory.objects.filter(erasing_at__lte=after(-_TAKEN_OVER_SECONDS))
    finished = 0
    for tenant_id, user_id in marked.values_list("tenant_id", "user_id"):
        if receipt := _running(tenant_id, user_id):
            try:
                forget_user(Erasure(tenant_id=tenant_id, user_id=user_id, mode=receipt.mode))
                finished += 1
            except ThreadBusyError:
                # It had not got past the fence, and is not begun again for nobody.
                continue
    return finished


# --- the fence


def _fence(erasure: Erasure) -> ErasureReceipt:
    """Nothing is written about the person from here on. Record alone, then threads: nobody waits for both."""
    with transaction.atomic(durable=True):
        record = lock_record(*erasure.person, erasing=True)
        receipt = _running(*erasure.person) or _begin(erasure)
        UserMemory.objects.filter(pk=record.pk).update(erasing_at=Now())
    try:
        with transaction.atomic(durable=True):
            if not receipt.phases:
                _close_threads(*erasure.person, force=erasure.force)
                receipt.phases["fenced"] = timezone.now().isoformat()
                ErasureReceipt.objects.filter(pk=receipt.pk).update(phases=receipt.phases)
    except ThreadBusyError:
        _call_off(erasure, receipt)
        raise
    ledger.write(receipt)
    return receipt


def _running(tenant_id: UUID, user_id: str) -> ErasureReceipt | None:
    subject = subject_of(tenant_id, user_id, current_pepper())
    return ErasureReceipt.objects.filter(tenant_id=tenant_id, subject=subject, status=RUNNING).first()


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


def _close_threads(tenant_id: UUID, user_id: str, *, force: bool) -> None:
    threads = Thread.objects.filter(tenant_id=tenant_id, user_id=user_id)
    closed: dict[str, Any] = {"status": Thread.Status.CLOSED, "lease_token": None, "lease_expires_at": None}
    (threads if force else threads.unleased()).update(**closed)
    if busy := list(threads.leased().values_list("pk", flat=True)):
        raise ThreadBusyError(thread_ids=busy)


@transaction.atomic
def _call_off(erasure: Erasure, receipt: ErasureReceipt) -> None:
    """As if it had not been asked for, unless somebody who joined has got further."""
    record = lock_record(*erasure.person, erasing=True)
    if not ErasureReceipt.objects.get(pk=receipt.pk).phases:
        receipt.delete()
        UserMemory.objects.filter(pk=record.pk).update(erasing_at=None)


# --- the purge


@dataclass(frozen=True)
class _Step:
    """A table, and what is done to at most so many of a person's rows: how many there were."""

    table: PersonalData
    erasure: Erasure
    pseudonym: str
    is_logged: bool

    def __call__(self, limit: int) -> int:
        table, rows = self.table, self.table.rows(*self.erasure.person)
        batch = table.model._base_manager.filter(pk__in=rows.values("pk")[:limit])
        if table.unlinked is not None:
            return batch.update(**table.unlinked)
        if self.is_logged:
            admin_log.forget(table.model, batch)
        if table.skeleton is not None and self.erasure.mode == ANONYMIZE:
            return batch.update(**table.skeleton, **dict.fromkeys(table.identifiers, self.pseudonym))
        deleted: int = batch.delete()[1].get(table.model._meta.label, 0)
        return deleted

    @property
    def name(self) -> str:
        return self.table.name


@dataclass(frozen=True)
class _HostStep:
    eraser: Eraser
    erasure: Erasure

    def __call__(self, limit: int) -> int:
        return self.eraser.erase(*self.erasure.person, limit)

    @property
    def name(self) -> str:
        return self.eraser.name


def _steps(erasure: Erasure, has_rows: "Counter[str]") -> Iterator["_Step | _HostStep"]:
    """What is to be done, in an order in which nothing is taken away that a later step needs."""
    # An anonymous person has one name in all of their threads, which nothing leads to.
    pseudonym = f"anonymous-{uuid4().hex}"
    # The record goes with the end: it is the mark.
    tables = [table for table in personal_data() if has_rows[table.name] and table.model is not UserMemory]
    logged = admin_log.tables() if tables else set()
    for table in tables:
        is_logged = (table.model._meta.app_label, table.model._meta.model_name) in logged
        yield _Step(table, erasure, pseudonym, is_logged)
    yield from (_HostStep(import_string(path)(), erasure) for path in conf.ERASERS)


def _batch(receipt: ErasureReceipt, steps: "deque[_Step | _HostStep]") -> int:
    """At most `BATCH_ROWS` rows, of as many tables as these are in, counted in the transaction in which they go; how
    many."""
    with transaction.atomic(durable=True):
        # Whoever has joined counts, too.
        locked = ErasureReceipt.objects.select_for_update().filter(pk=receipt.pk, status=RUNNING).first()
        if locked is None:
            steps.clear()
            return 0
        counts, room = Counter(locked.counts), BATCH_ROWS
        while steps and room > 0:
            count = steps[0](room)
            counts[steps[0].name] += count
            room -= count
            if count == 0 or (room > 0 and isinstance(steps[0], _Step)):
                steps.popleft()
        ErasureReceipt.objects.filter(pk=receipt.pk).update(counts=+counts)
    return BATCH_ROWS - room


# --- the end


def _finish(erasure: Erasure, receipt: ErasureReceipt, phrases: Sequence[str]) -> ErasureReceipt:
    """Look for what is left, behind the fence; then take it down with the record, and seal the receipt."""
    purged, found = timezone.now(), traces_of(*erasure.person, phrases)
    with transaction.atomic(durable=True):
        lock_record(*erasure.person, erasing=True)
        receipt = ErasureReceipt.objects.select_for_update().get(pk=receipt.pk)
        if receipt.status == DONE:
            return receipt
        UserMemory.objects.filter(tenant_id=erasure.tenant_id, user_id=erasure.user_id).delete()
        receipt.counts = _reported(Counter(receipt.counts), *erasure.person)
        receipt.finished_at = timezone.now()
        receipt.phases |= {"purged": purged.isoformat(), "verified": receipt.finished_at.isoformat()}
        receipt.found, receipt.verified, receipt.level = found, not found, "tables"
        receipt.residuals, receipt.status = residuals(), DONE
        seal(receipt)
        receipt.save()
    ledger.write(receipt)
    return receipt


def _reported(counts: "Counter[str]", tenant_id: UUID, user_id: str) -> dict[str, int]:
    """Counts of every table, zeros too: what is not there was looked for."""
    hosts = [import_string(path).name for path in conf.ERASERS]
    names = [table.name for table in personal_data() if table.model is not UserMemory]
    return {name: counts[name] for name in [*names, *hosts]}


def _version() -> str:
    try:
        return version("memorygw")
    except PackageNotFoundError:
        return "source"
