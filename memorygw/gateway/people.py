"""What is known about a person, and their right to be forgotten."""

from typing import Any

from memorygw import erasure
from memorygw.conf import component
from memorygw.context import facts_block
from memorygw.exceptions import InvalidError
from memorygw.gateway.arguments import TenantLike, UserLike, external_user_id, tenant_id
from memorygw.text import is_storable


def get_user_facts(tenant: TenantLike, user_id: UserLike) -> list[Any]:
    facts: list[Any] = component("USER_MEMORY_STORE").get_facts(tenant_id(tenant), external_user_id(user_id))
    return facts


def get_facts_text(tenant: TenantLike, user_id: UserLike) -> str:
    """The block of facts as a prompt gets it; empty when there are none."""
    return facts_block(get_user_facts(tenant, user_id)).text


def upsert_user_fact(tenant: TenantLike, user_id: UserLike, key: str, value: str) -> Any:
    """Set one fact by hand. Raises `BlankFactError`, `FactTooLongError`."""
    if not is_storable(key) or not is_storable(value):
        raise InvalidError(fields={"value": ["Contains U+0000 or a lone surrogate."]})
    return component("USER_MEMORY_STORE").upsert_fact(tenant_id(tenant), external_user_id(user_id), key, value)


def remove_user_fact(tenant: TenantLike, user_id: UserLike, key: str) -> None:
    component("USER_MEMORY_STORE").remove_fact(tenant_id(tenant), external_user_id(user_id), key)


def clear_user_facts(tenant: TenantLike, user_id: UserLike) -> None:
    component("USER_MEMORY_STORE").clear(tenant_id(tenant), external_user_id(user_id))


def forget_user(tenant: TenantLike, user_id: UserLike) -> erasure.Receipt:
    """Delete everything of a person: threads with their turns, runs and notes, facts, the record.

    A busy thread: `ThreadBusyError` with the ids, nothing erased. A second call finds nothing and says so.
    """
    return erasure.forget_user(tenant_id(tenant), external_user_id(user_id))
