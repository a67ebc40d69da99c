"""What is known about a person."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal
from uuid import UUID

from django.utils import timezone

from memorygw.conf import component, conf
from memorygw.context import facts_block, facts_list
from memorygw.exceptions import InvalidError, MemoryNotFoundError
from memorygw.gateway.arguments import TenantLike, UserLike, external_user_id, refuse_unstorable, tenant_id
from memorygw.models import Tenant
from memorygw.text import clean
from threads.turns import Said, content_problem, to_transcript
from usermemory.models import Owner
from usermemory.reading import Reading
from usermemory.rows import Source

MAX_ADDED_FACTS = 1_000
FACT_SOURCES = ("manual", "auto")


def get_user_facts(tenant: TenantLike, user_id: UserLike) -> list[Any]:
    facts: list[Any] = component("USER_MEMORY_STORE").get_facts(tenant_id(tenant), external_user_id(user_id))
    return facts


def get_facts_text(tenant: TenantLike, user_id: UserLike) -> str:
    """The block of facts as a prompt gets it; empty when there are none, or memory is off for the user."""
    return facts_block(_told(tenant, user_id)).text


def get_facts_list(tenant: TenantLike, user_id: UserLike) -> str:
    """The same as a heading and one hyphen line per fact, for the prompt of a caller's own (A51–A53)."""
    return facts_list(_told(tenant, user_id))


def _told(tenant: TenantLike, user_id: UserLike) -> list[Any]:
    is_on = component("USER_MEMORY_STORE").remembers(tenant_id(tenant), external_user_id(user_id))
    return get_user_facts(tenant, user_id) if is_on else []


def learn_from_messages(
    tenant: TenantLike,
    user_id: UserLike,
    messages: Sequence[Mapping[str, Any]],
    *,
    model: str = "",
    max_facts: int | None = None,
) -> None:
    """Learn free texts about a user from messages in OpenAI's shape, here and now (A55–A75).

    ``model``: instead of the configured ones. ``max_facts`` as in `add_user_facts`. Raises `ExtractionError`,
    `UsageRefusedError`, `ErasureRunningError`. Must not be called inside a transaction.
    """
    store, tenant_pk, user = component("USER_MEMORY_STORE"), tenant_id(tenant), external_user_id(user_id)
    if not (conf.EXTRACTION_ENABLED and Tenant.objects.filter(pk=tenant_pk, memory_extraction_enabled=True).exists()):
        return
    # Made before the model is asked: when it is gone afterwards, the person was erased meanwhile.
    store.open_record(tenant_pk, user)
    if not store.remembers(tenant_pk, user):
        return
    watermark = store.watermark(tenant_pk, user)
    usable = (message for message in messages if not content_problem(message.get("content")))
    said = (Said(str(message.get("role")), message.get("content"), timezone.now()) for message in usable)
    reading = Reading(
        tenant_id=tenant_pk,
        owner=Owner.user(user),
        transcript=clean(to_transcript(said)),
        kind="text",
        model=model,
        max_facts=max_facts,
    )
    store.learn(reading, watermark=watermark)


def upsert_user_fact(tenant: TenantLike, user_id: UserLike, key: str, value: str) -> Any:
    """Set one fact by hand. Raises `BlankFactError`, `FactTooLongError`."""
    refuse_unstorable("key", key)
    refuse_unstorable("value", value)
    return component("USER_MEMORY_STORE").upsert_fact(tenant_id(tenant), external_user_id(user_id), key, value)


def add_user_facts(
    tenant: TenantLike,
    user_id: UserLike,
    facts: Sequence[str],
    *,
    source: Literal["manual", "auto"] = "manual",
    max_facts: int | None = None,
    first_id: UUID | None = None,
) -> list[Any]:
    """Keep free texts about a user, all or none; blank and known ones are skipped (A34–A45). Those that are new.

    ``max_facts``: above so many free texts the oldest go; the setting's cap holds in any case. ``first_id``: the id of
    the first new one. Raises `InvalidError`, `FactTooLongError`, `FactRefusedError`.
    """
    if isinstance(facts, str) or not all(isinstance(fact, str) for fact in facts):
        raise InvalidError(fields={"facts": ["A list of texts."]})
    if source not in FACT_SOURCES:
        raise InvalidError(fields={"source": [f"One of {', '.join(FACT_SOURCES)}."]})
    refuse_unstorable("facts", list(facts))
    added: list[Any] = component("USER_MEMORY_STORE").add_texts(
        tenant_id(tenant), external_user_id(user_id), facts, Source(source), most=max_facts, first_id=first_id
    )
    return added


def get_facts_added_with(tenant: TenantLike, user_id: UserLike, first_id: UUID) -> list[Any]:
    """What `add_user_facts` made under this id, as far as it is still there. `MemoryNotFoundError`: nothing is."""
    store = component("USER_MEMORY_STORE")
    added: list[Any] = store.added_with(tenant_id(tenant), external_user_id(user_id), first_id)
    if not added:
        raise MemoryNotFoundError
    return added


def remove_user_fact(tenant: TenantLike, user_id: UserLike, key: str) -> None:
    """Forget one fact, and what waits for review under its key; nothing happens when there is none."""
    refuse_unstorable("key", key)
    component("USER_MEMORY_STORE").remove_fact(tenant_id(tenant), external_user_id(user_id), key)


def clear_user_facts(tenant: TenantLike, user_id: UserLike) -> None:
    component("USER_MEMORY_STORE").clear(tenant_id(tenant), external_user_id(user_id))
