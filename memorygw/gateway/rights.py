"""A person's rights: to be forgotten, to have memory off; and the receipts of it."""

from collections.abc import Callable, Iterator
from uuid import UUID

from memorygw import erasure, exporting
from memorygw.conf import component
from memorygw.exceptions import InvalidError, ReceiptNotFoundError
from memorygw.gateway.arguments import TenantLike, UserLike, external_user_id, tenant_id, uuid_of
from memorygw.models import ErasureReceipt
from memorygw.paging import Page, newest_first

ERASURE_MODES = tuple(ErasureReceipt.Mode.values)


def forget_user(
    tenant: TenantLike,
    user_id: UserLike,
    *,
    mode: str = erasure.DELETE,
    requested_by: str = "",
    force: bool = False,
    told: Callable[[int, int], None] = lambda gone, of: None,
) -> ErasureReceipt:
    """Erase everything of a person: threads with their turns, runs and notes, facts, the record; the receipt.

    ``mode`` "anonymize" keeps the threads' ids, turn counts and dates under a random pseudonym. A busy thread:
    `ThreadBusyError` with the ids, nothing erased; with ``force`` its call loses it. A second call finds nothing and
    says so. ``told``: how many rows are gone of how many, now and then. Must not be called inside a transaction.
    """
    wanted = _erasure(tenant, user_id, mode=mode, requested_by=requested_by, force=force)
    return erasure.forget_user(wanted, told=told)


def count_user_data(tenant: TenantLike, user_id: UserLike) -> dict[str, int]:
    """What `forget_user` would take, by table; nothing is changed."""
    return erasure.count_user(tenant_id(tenant), external_user_id(user_id))


def _erasure(tenant: TenantLike, user_id: UserLike, *, mode: str, requested_by: str, force: bool) -> erasure.Erasure:
    if mode not in ERASURE_MODES:
        raise InvalidError(fields={"mode": [f"One of {', '.join(ERASURE_MODES)}."]})
    return erasure.Erasure(
        tenant_id=tenant_id(tenant),
        user_id=external_user_id(user_id),
        mode=mode,
        requested_by=requested_by,
        force=force,
    )


def export_user(tenant: TenantLike, user_id: UserLike) -> Iterator[str]:
    """Everything of a person as one JSON document, in chunks; its shape is ``memorygw/schemas/export.schema.json``.

    Nobody known by that id: the same document with empty lists. Raises `TenantNotFoundError` and `UserRequiredError` at
    once, what the database raises at any chunk: a document without its end is none. Better outside a transaction: then
    no connection is held while a chunk is written.
    """
    return exporting.export_user(tenant_id(tenant), external_user_id(user_id))


def list_receipts(
    tenant: TenantLike,
    *,
    limit: int = 20,
    starting_after: UUID | str | None = None,
    ending_before: UUID | str | None = None,
) -> Page[ErasureReceipt]:
    """One page of the tenant's erasures, newest first, as `list_threads`."""
    return newest_first(
        ErasureReceipt.objects.filter(tenant_id=tenant_id(tenant)),
        limit=limit,
        starting_after=None if starting_after is None else uuid_of(starting_after, ReceiptNotFoundError),
        ending_before=None if ending_before is None else uuid_of(ending_before, ReceiptNotFoundError),
        missing=ReceiptNotFoundError,
    )


def get_receipt(tenant: TenantLike, receipt_id: UUID | str) -> ErasureReceipt:
    pk = uuid_of(receipt_id, ReceiptNotFoundError)
    receipt = ErasureReceipt.objects.filter(tenant_id=tenant_id(tenant), pk=pk).first()
    if receipt is None:
        raise ReceiptNotFoundError
    return receipt


def set_user_memory(tenant: TenantLike, user_id: UserLike, *, enabled: bool) -> None:
    """Switch memory on or off for a person: off, it is neither read nor written, and what is said is never learned
    from. What is known stays, and is theirs to see and to forget."""
    component("USER_MEMORY_STORE").set_memory(tenant_id(tenant), external_user_id(user_id), enabled=enabled)


def user_memory_enabled(tenant: TenantLike, user_id: UserLike) -> bool:
    is_on: bool = component("USER_MEMORY_STORE").remembers(tenant_id(tenant), external_user_id(user_id))
    return is_on
