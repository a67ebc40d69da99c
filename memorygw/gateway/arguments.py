"""What callers name things by, checked once for all of the facade.

The tenant is the object, its id or its name; a person is their external id, text or an integer, 1–255 characters.
"""

from uuid import UUID

from memorygw.exceptions import InvalidError, NotFoundError, TenantNotFoundError, ThreadNotFoundError, UserRequiredError
from memorygw.models import Tenant
from memorygw.text import NOBODY, unstorable_paths
from memorygw.text import user_id as clean_user_id

TenantLike = Tenant | UUID | str
UserLike = str | int


def tenant_id(tenant: TenantLike) -> UUID:
    """The id behind a tenant; a name costs a query. Raises `TenantNotFoundError`."""
    if isinstance(tenant, Tenant):
        return tenant.pk
    if isinstance(tenant, UUID):
        return tenant
    found = Tenant.objects.filter(name=tenant).values_list("pk", flat=True).first()
    if found is None:
        raise TenantNotFoundError
    return found


def external_user_id(user: UserLike) -> str:
    """The user's id as it is stored; an integer becomes its decimal text (K12). Raises `UserRequiredError`."""
    text = clean_user_id(user)
    if text is None:
        raise UserRequiredError("A user id is 1 to 255 characters, without control characters, not blank and not *.")
    return text


def user_or_nobody(user: UserLike | None) -> str:
    """The same, where there may be no user: None."""
    return NOBODY if user is None else external_user_id(user)


def thread_uuid(value: UUID | str) -> UUID:
    return uuid_of(value, ThreadNotFoundError)


def uuid_of(value: UUID | str, missing: type[NotFoundError]) -> UUID:
    """An id of ours; what is none names nothing, so it is not found either."""
    if isinstance(value, UUID):
        return value
    try:
        return UUID(value)
    except (ValueError, AttributeError, TypeError):
        raise missing from None


def refuse_unstorable(field: str, value: object) -> None:
    if paths := list(unstorable_paths(value, field)):
        raise InvalidError(fields={path: ["Contains U+0000 or a lone surrogate."] for path in paths})
