"""Who may call: API keys, and tokens that act as one user."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from django.db.models.functions import Now
from django.utils import timezone

from memorygw import keys, user_tokens
from memorygw.conf import component
from memorygw.exceptions import InvalidError
from memorygw.gateway.arguments import TenantLike, UserLike, external_user_id, tenant_id
from memorygw.models import ApiKey, Tenant
from memorygw.text import is_storable

MAX_NAME_CHARS = 100
DEFAULT_TOKEN_SECONDS, MAX_TOKEN_SECONDS = 900, 3600


@dataclass(frozen=True)
class UserToken:
    """A bearer token of one user."""

    token: str
    expires_at: datetime


def create_api_key(tenant: str, *, role: str, name: str, expires_at: datetime | None = None) -> tuple[ApiKey, str]:
    """A new key of the tenant (made when missing), and its text: the only time it is seen."""
    for field, value in {"tenant": tenant, "name": name}.items():
        if not value.strip() or len(value) > MAX_NAME_CHARS or not is_storable(value):
            raise InvalidError(fields={field: [f"1 to {MAX_NAME_CHARS} characters."]})
    if expires_at is not None and expires_at <= timezone.now():
        raise InvalidError(fields={"expires_at": ["Later than now, or empty."]})
    owner, _ = Tenant.objects.get_or_create(name=tenant)
    key = keys.new_key()
    row = ApiKey.objects.create(
        tenant=owner,
        role=ApiKey.Role(role),
        name=name,
        prefix=key.prefix,
        digest=key.digest,
        expires_at=expires_at,
    )
    return row, key.text


def revoke_api_key(tenant: TenantLike, key_id: UUID) -> bool:
    """Nothing is opened with the key from now on, for good; False when there is none, or none any more."""
    keys_of_tenant = ApiKey.objects.filter(tenant_id=tenant_id(tenant), pk=key_id, revoked_at__isnull=True)
    return bool(keys_of_tenant.update(revoked_at=Now()))


def create_user_token(
    tenant: TenantLike, user_id: UserLike, *, expires_in_seconds: int = DEFAULT_TOKEN_SECONDS
) -> UserToken:
    """A token that acts as this user alone, for at most an hour; erasing the person revokes it."""
    if not 1 <= expires_in_seconds <= MAX_TOKEN_SECONDS:
        raise InvalidError(fields={"expires_in_seconds": [f"1 to {MAX_TOKEN_SECONDS}."]})
    record_id = component("USER_MEMORY_STORE").open_record(tenant_id(tenant), external_user_id(user_id))
    expires_at = timezone.now() + timedelta(seconds=expires_in_seconds)
    return UserToken(user_tokens.make(record_id, expires_at=expires_at.timestamp()), expires_at)


def user_of_token(token: str) -> tuple[UUID, str] | None:
    """Tenant and user behind a token; None when it is forged, expired or revoked."""
    record_id = user_tokens.record_of(token)
    found: tuple[UUID, str] | None = component("USER_MEMORY_STORE").find_record(record_id) if record_id else None
    return found
