"""Personas, and the switches that a tenant sets at run time."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypedDict, Unpack, get_args
from uuid import UUID

from django.db import IntegrityError, transaction
from django.db.models.functions import Now

from memorygw.conf import ReviewPolicy, Strategy, component
from memorygw.exceptions import InvalidError, PersonaNameTakenError, PersonaNotFoundError, TenantNotFoundError
from memorygw.gateway.arguments import TenantLike, refuse_unstorable, tenant_id, uuid_of
from memorygw.ids import new_id, uuid_or_none
from memorygw.models import Persona, Tenant
from memorygw.paging import Page, newest_first
from memorygw.tools import NAME, is_tool_name, unknown_memory_tools

_MAX_CHARS = {
    "name": 100,
    "instructions": 100_000,
    "model": 100,
    "cheap_model": 100,
    "memory_model": 100,
    "memory_tools": 200,
    "recall_tool_description": 1_000,
}
FACT_KINDS = ("keyed", "text")
_CHOICES = {"working_memory": get_args(Strategy), "review_policy": get_args(ReviewPolicy)}


class PersonaOptions(TypedDict, total=False):
    """What a persona has beside its name. An empty text leaves the matter to the tenant or the setting."""

    instructions: str
    model: str
    cheap_model: str
    memory_model: str
    working_memory: str
    memory_tools: str
    review_policy: str
    memory_enabled: bool
    memory_injection_enabled: bool
    fact_kind: str
    max_facts: int | None
    recall_tool_name: str
    recall_tool_description: str


class PersonaChanges(PersonaOptions, total=False):
    name: str


class TenantChanges(TypedDict, total=False):
    memory_extraction_enabled: bool
    review_policy: str


def create_persona(
    tenant: TenantLike, name: str, *, persona_id: UUID | None = None, **options: Unpack[PersonaOptions]
) -> Persona:
    """A new persona, with the id ``persona_id`` when there is one. Its name is a tenant's once, and no UUID, since an
    ask names a persona by either. Raises `InvalidError`, `PersonaNameTakenError`."""
    owner, values = tenant_id(tenant), _checked({**options, "name": name})
    with _name_once(owner, values["name"]):
        return Persona.objects.create(pk=persona_id or new_id(), tenant_id=owner, **values)


def get_persona(tenant: TenantLike, persona_id: UUID | str) -> Persona:
    pk = uuid_of(persona_id, PersonaNotFoundError)
    persona = Persona.objects.filter(tenant_id=tenant_id(tenant), pk=pk).first()
    if persona is None:
        raise PersonaNotFoundError
    return persona


def list_personas(
    tenant: TenantLike,
    *,
    limit: int = 20,
    starting_after: UUID | str | None = None,
    ending_before: UUID | str | None = None,
) -> Page[Persona]:
    """One page of the tenant's personas, newest first (K13)."""
    return newest_first(
        Persona.objects.filter(tenant_id=tenant_id(tenant)),
        limit=limit,
        starting_after=None if starting_after is None else uuid_of(starting_after, PersonaNotFoundError),
        ending_before=None if ending_before is None else uuid_of(ending_before, PersonaNotFoundError),
        missing=PersonaNotFoundError,
    )


def update_persona(tenant: TenantLike, persona_id: UUID | str, **changes: Unpack[PersonaChanges]) -> Persona:
    """Change what is named; it holds from the next call on. Raises what `create_persona` does."""
    persona = get_persona(tenant, persona_id)
    if not changes:
        return persona
    values = _checked(changes)
    with _name_once(persona.tenant_id, values.get("name", "")):
        Persona.objects.filter(pk=persona.pk).update(**values, updated_at=Now())
    return get_persona(persona.tenant_id, persona.pk)


def save_persona(tenant: TenantLike, name: str, **options: Unpack[PersonaOptions]) -> Persona:
    """The tenant's persona of this name with these options: made when missing, changed where it differs.

    What is returned has them, even if somebody else saves others under this name in the same moment.
    """
    owner, values = tenant_id(tenant), _checked({**options, "name": name})
    persona = Persona.objects.filter(tenant_id=owner, name=values["name"]).first()
    if persona is None:
        try:
            return create_persona(owner, name, **options)
        except PersonaNameTakenError:
            persona = Persona.objects.get(tenant_id=owner, name=values["name"])
    if any(getattr(persona, field) != value for field, value in values.items()):
        Persona.objects.filter(pk=persona.pk).update(**values, updated_at=Now())
        for field, value in values.items():
            setattr(persona, field, value)
    return persona


def delete_persona(tenant: TenantLike, persona_id: UUID | str) -> None:
    """The persona goes with its facts; threads and runs stay, without a persona.

    It is locked first, so that a writer of its facts who locks it too writes before this or finds it gone.
    """
    owner, pk = tenant_id(tenant), uuid_of(persona_id, PersonaNotFoundError)
    with transaction.atomic():
        # A lock on its key would deadlock with an ask, which holds its thread and then refers to the persona.
        persona = Persona.objects.select_for_update(no_key=True).filter(tenant_id=owner, pk=pk).first()
        if persona is None:
            raise PersonaNotFoundError
        # Its threads are locked by this, before its facts: the order in which learning locks them.
        persona.delete()
        component("USER_MEMORY_STORE").delete_by_persona(owner, pk)


def get_tenant(tenant: TenantLike) -> Tenant:
    found = Tenant.objects.filter(pk=tenant_id(tenant)).first()
    if found is None:
        raise TenantNotFoundError
    return found


def update_tenant(tenant: TenantLike, **changes: Unpack[TenantChanges]) -> Tenant:
    """Set the switches that are named, for what begins from now on (R90)."""
    owner = tenant_id(tenant)
    if changes:
        Tenant.objects.filter(pk=owner).update(**_checked(changes))
    return get_tenant(owner)


def _checked(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values as they are stored. A name loses the blanks around it, as it does wherever a persona is named."""
    checked = {field: value.strip() if field == "name" else value for field, value in values.items()}
    for field, value in checked.items():
        refuse_unstorable(field, value)
    if problems := dict(_problems(checked)):
        raise InvalidError(fields={field: [problem] for field, problem in problems.items()})
    return checked


def _problems(values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Fields and what is wrong with them."""
    for field, most in _MAX_CHARS.items():
        if len(values.get(field, "")) > most:
            yield field, f"At most {most} characters."
    for field, choices in _CHOICES.items():
        if values.get(field, "") not in ("", *choices):
            yield field, f"One of {', '.join(choices)}, or empty."
    if unknown_memory_tools(values.get("memory_tools", "")):
        yield "memory_tools", "Neither a set of memory tools nor names of some, separated by commas."
    if values.get("fact_kind", FACT_KINDS[0]) not in FACT_KINDS:
        yield "fact_kind", f"One of {', '.join(FACT_KINDS)}."
    if values.get("max_facts") is not None and values["max_facts"] < 1:
        yield "max_facts", "At least 1, or null."
    if (name := values.get("recall_tool_name", "")) and (not NAME.fullmatch(name) or is_tool_name(name)):
        yield "recall_tool_name", "1 to 64 letters, digits, _ and -, and no other tool's name."
    if "name" in values and (not values["name"] or uuid_or_none(values["name"])):
        yield "name", "Neither blank nor a UUID."


@contextmanager
def _name_once(owner: UUID, name: str) -> Iterator[None]:
    """A transaction in which a name that the tenant has given before is a `PersonaNameTakenError`."""
    try:
        with transaction.atomic():
            yield
    except IntegrityError:
        if Persona.objects.filter(tenant_id=owner, name=name).exists():
            raise PersonaNameTakenError from None
        raise
