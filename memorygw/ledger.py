"""The ledger of erasures outside the database, for the day on which a backup of it is restored (S15).

One file per receipt and state, through Django's storages: a folder, or whatever ``STORAGES`` names. A person is in it
as a keyed hash. What it tells of and the database does not know of is to be done again.
"""

import json
from collections.abc import Iterator
from typing import Any

from django.conf import settings
from django.core.files.base import ContentFile
from django.core.files.storage import FileSystemStorage, Storage, storages

from memorygw.conf import conf
from memorygw.models import ErasureReceipt
from memorygw.receipts import document

_SUFFIX = ".json"


def write(receipt: ErasureReceipt) -> None:
    """Note a receipt in its present state; nothing where there is no ledger. A ledger that fails stops the erasure."""
    store = _store()
    name = f"{receipt.pk}.{receipt.status}{_SUFFIX}"
    if store and not store.exists(name):
        store.save(name, ContentFile(json.dumps(document(receipt), sort_keys=True)))


def missing() -> list[dict[str, Any]]:
    """The latest state of every receipt that the database does not have, oldest first."""
    latest: dict[str, str] = {}
    # "done" sorts before "running": of two states the later one stays.
    for name in sorted(_names(), reverse=True):
        latest[name.partition(".")[0]] = name
    known = {str(pk) for pk in ErasureReceipt.objects.filter(pk__in=latest).values_list("pk", flat=True)}
    return [_read(name) for receipt_id, name in sorted(latest.items()) if receipt_id not in known]


def is_behind() -> bool:
    """Whether the database lacks an erasure of the ledger: a backup was restored, and erased people are back.

    One that is under way here is no such thing.
    """
    ids = {name.partition(".")[0] for name in _names()}
    known = ErasureReceipt.objects.filter(pk__in=ids).exclude(status=ErasureReceipt.Status.RESTORED)
    return bool(ids) and known.count() < len(ids)


def _names() -> Iterator[str]:
    store = _store()
    try:
        names = store.listdir("")[1] if store else []
    except FileNotFoundError:
        # Nobody has been erased yet.
        names = []
    return (name for name in names if name.endswith(_SUFFIX))


def _read(name: str) -> dict[str, Any]:
    store = _store()
    assert store is not None  # noqa: S101  it gave the name
    with store.open(name) as file:
        values: dict[str, Any] = json.loads(file.read())
    return values


def _store() -> Storage | None:
    place = conf.ERASURE_LEDGER
    if not place:
        return None
    return storages[place] if place in settings.STORAGES else FileSystemStorage(location=place)
