"""Personas and the tenant's switches from Python."""

from typing import Any
from uuid import uuid4

import pytest
from pytest_django import Settings

from memorygw import gateway
from memorygw.exceptions import InvalidError, PersonaNameTakenError, PersonaNotFoundError, TenantNotFoundError
from memorygw.models import Persona, Tenant


def test_a_persona_is_kept_by_the_facade_alone(tenant: Tenant) -> None:
    coach = gateway.create_persona("acme", "coach", instructions="Be brief.", memory_tools="none")
    assert gateway.get_persona(tenant, str(coach.pk)) == coach
    changed = gateway.update_persona(tenant.pk, coach.pk, model="large")
    assert (changed.instructions, changed.memory_tools, changed.model) == ("Be brief.", "none", "large")
    assert gateway.list_personas(tenant).items == [coach]
    gateway.delete_persona(tenant, coach.pk)
    for call in (gateway.get_persona, gateway.update_persona, gateway.delete_persona):
        with pytest.raises(PersonaNotFoundError):
            call(tenant, coach.pk)


@pytest.mark.parametrize(
    ("values", "fields"),
    [
        ({"name": "co\ud800ach"}, ["name"]),
        ({"instructions": "\x00"}, ["instructions"]),
        ({"model": "\x00"}, ["model"]),
        ({"working_memory": "WINDOW", "review_policy": "always"}, ["review_policy", "working_memory"]),
        ({"fact_kind": "free", "max_facts": 0}, ["fact_kind", "max_facts"]),
        ({"recall_tool_name": "memory_save"}, ["recall_tool_name"]),
        ({"recall_tool_name": "what is known"}, ["recall_tool_name"]),
        ({"name": "", "memory_tools": "recal"}, ["memory_tools", "name"]),
    ],
)
def test_what_no_request_could_bring_is_refused_too(tenant: Tenant, values: dict[str, Any], fields: list[str]) -> None:
    coach = gateway.create_persona(tenant, "coach")
    with pytest.raises(InvalidError) as made:
        gateway.create_persona(tenant, **{"name": "guide", **values})
    with pytest.raises(InvalidError) as changed:
        gateway.update_persona(tenant, coach.pk, **values)
    for refused in (made.value, changed.value):
        assert refused.fields is not None
        assert sorted(refused.fields) == fields
    assert Persona.objects.get() == coach


def test_a_refused_name_leaves_the_callers_transaction_usable(tenant: Tenant) -> None:
    gateway.create_persona(tenant, "coach")
    with pytest.raises(PersonaNameTakenError):
        gateway.create_persona(tenant, "coach")
    gateway.create_persona(tenant, "guide")
    assert len(gateway.list_personas(tenant).items) == 2


def test_memory_tools_are_named_without_the_prefix(tenant: Tenant, settings: Settings) -> None:
    settings.MEMORYGW_TOOL_PREFIX = "gw_"
    coach = gateway.create_persona(tenant, "coach", memory_tools="remember_user_fact,forget_user_fact")
    names = [tool["function"]["name"] for tool in gateway.list_tools(tenant, persona=coach.name)]
    assert names == ["gw_remember_user_fact", "gw_forget_user_fact"]
    with pytest.raises(InvalidError):
        gateway.update_persona(tenant, coach.pk, memory_tools="gw_remember_user_fact")


@pytest.mark.parametrize("limit", [0, 201])
def test_a_page_has_1_to_200_personas(tenant: Tenant, limit: int) -> None:
    with pytest.raises(InvalidError):
        gateway.list_personas(tenant, limit=limit)


def test_a_tenant_is_switched_and_an_unknown_one_is_not_made(tenant: Tenant) -> None:
    assert gateway.update_tenant("acme", memory_extraction_enabled=False).memory_extraction_enabled is False
    assert gateway.get_tenant(tenant.pk).memory_extraction_enabled is False
    with pytest.raises(InvalidError):
        gateway.update_tenant("acme", review_policy="always")
    for unknown in ("nobody", uuid4()):
        with pytest.raises(TenantNotFoundError):
            gateway.get_tenant(unknown)
        with pytest.raises(TenantNotFoundError):
            gateway.update_tenant(unknown, review_policy="never")
