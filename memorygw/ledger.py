"""The ledger of erasures outside the database, for the day on which a backup of it is restored (S15).

One file per receipt and state, through Django's storages: a folder, or whatever ``STORAGES`` names. A person is in it
as a keyed hash. What it tells of and the database does not know of is to be done again.
"""

import json
import logging
import os
from collections.abc import Iterator
from typing import Any
from uuid import UUID

from django.conf import settings
from django.core.files.base import ContentFile
from django.core.files.storage import FileSystemStorage, Storage, storages

from memorygw.conf import conf
from memorygw.exceptions import LedgerError
from memorygw.models import ErasureReceipt
from memorygw.receipts import document, is_authentic

logger = logging.getLogger(__name__)

_STATES = (ErasureReceipt.Status.DONE, ErasureReceipt.Status.RUNNING)
"""In this order: the later state tells more."""


def write(receipt: ErasureReceipt) -> None:
    """Note a receipt in its present state; nothing where there is no ledger. A ledger that fails stops the erasure."""
    store = _store()
    name = f"{receipt.pk}.{receipt.status}.json"
    if store and not store.exists(name):
        text = json.dumps(document(receipt), sort_keys=True)
        if isinstance(store, FileSystemStorage):
            _write_whole(store.path(name), text)
        else:
            store.save(name, ContentFile(text))


def missing() -> list[dict[str, Any]]:
    """The latest state of every receipt that the database does not have, oldest first.

    `LedgerError` when an entry cannot be read, or is not as it was written: then nobody knows who was erased.
    """
    states = _entries()
    known = set(ErasureReceipt.objects.filter(pk__in=states).values_list("pk", flat=True))
    return [_read(pk, states[pk]) for pk in sorted(states) if pk not in known]


def done() -> Iterator[dict[str, Any]]:
    """Every receipt as it was when it was done."""
    for pk, states in _entries().items():
        if ErasureReceipt.Status.DONE in states:
            yield _read(pk, {ErasureReceipt.Status.DONE})


def is_behind() -> bool:
    """Whether the database lacks an erasure of the ledger: a backup was restored, and erased people are back.

    One that is under way here is no such thing.
    """
    ids = list(_entries())
    known = ErasureReceipt.objects.filter(pk__in=ids).exclude(status=ErasureReceipt.Status.RESTORED)
    return bool(ids) and known.count() < len(ids)


def _entries() -> dict[UUID, set[str]]:
    """Receipt → the states that it is there in; what is none of ours in the folder is left alone."""
    store = _store()
    found: dict[UUID, set[str]] = {}
    try:
        names = store.listdir("")[1] if store else []
    except FileNotFoundError:
        # Nobody has been erased yet.
        names = []
    for name in names:
        receipt_id, _, state = name.removesuffix(".json").partition(".")
        if name.endswith(".json") and state in _STATES:
            try:
                found.setdefault(UUID(receipt_id), set()).add(state)
            except ValueError:
                continue
    return found


def _read(pk: UUID, states: set[str]) -> dict[str, Any]:
    """The latest state that is whole: a process may have died while it wrote one."""
    store = _store()
    assert store is not None  # noqa: S101  it gave the name
    for state in _STATES:
        if state in states:
            try:
                with store.open(f"{pk}.{state}.json") as file:
                    values: dict[str, Any] = json.loads(file.read())
            except ValueError:
                logger.warning("An entry of the ledger cannot be read: %s.%s", pk, state)
                continue
            if values.get("id") == str(pk) and is_authentic(values):
                return values
            raise LedgerError(f"The entry {pk} of the ledger is not as it was written, or MEMORYGW_PEPPER is another.")
    raise LedgerError(f"The entry {pk} of the ledger cannot be read.")


def _write_whole(path: str, text: str) -> None:
    """All of it or nothing, also when the machine stops."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(f"{path}.part", "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(f"{path}.part", path)


def _store() -> Storage | None:
    place = conf.ERASURE_LEDGER
    if not place:
        return None
    return storages[place] if place in settings.STORAGES else FileSystemStorage(location=place)
