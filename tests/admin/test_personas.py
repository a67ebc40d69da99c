"""Personas, and the switches of tenants."""

import pytest

from memorygw import gateway
from memorygw.models import Persona, Tenant
from tests.admin.conftest import Operator, queries

pytestmark = pytest.mark.django_db

LIST = "memorygw/persona/"


def as_form(persona: Persona) -> dict[str, str]:
    """What a browser sends when nothing was touched."""
    names = ["name", "instructions", "model", "fact_kind", "recall_tool_description", "review_policy"]
    switches = {name: "on" for name in ("memory_enabled", "memory_injection_enabled") if getattr(persona, name)}
    return {name: getattr(persona, name) for name in names} | switches


def test_a_persona_is_changed_where_it_was_touched(editor: Operator, tenant: Tenant, persona: Persona) -> None:
    gateway.update_persona(tenant, persona.pk, instructions="  Be kind.\n\n")
    persona = gateway.get_persona(tenant, persona.pk)
    form = as_form(persona)
    gateway.update_persona(tenant, persona.pk, model="big")
    editor.post(f"{LIST}{persona.pk}/change/", **form | {"model": "", "max_facts": "7", "review_policy": "never"})
    editor.get(f"{LIST}{persona.pk}/change/")
    changed = gateway.get_persona(tenant, persona.pk)
    assert (changed.instructions, changed.max_facts, changed.review_policy) == ("  Be kind.\n\n", 7, "never")
    assert changed.memory_enabled


def test_a_persona_is_made(editor: Operator, tenant: Tenant) -> None:
    form = {"tenant": str(tenant.pk), "name": "Guide", "instructions": "Lead.", "fact_kind": "text"}
    editor.post(f"{LIST}add/", **form)
    made = Persona.objects.get()
    assert (made.tenant, made.name, made.fact_kind, made.memory_enabled) == (tenant, "Guide", "text", False)


def test_what_the_gateway_refuses_is_told_and_not_lost(editor: Operator, tenant: Tenant, persona: Persona) -> None:
    gateway.create_persona(tenant, "Guide")
    wrong = {
        "name": ["Guide", "01890000-0000-7000-8000-000000000000", ""],
        "memory_tools": ["no_such_tool"],
        "recall_tool_name": ["memory_save", "with blanks"],
        "max_facts": ["0", "-1", "many"],
        "instructions": ["i" * 100_001],
        "review_policy": ["sometimes"],
    }
    for field, values in wrong.items():
        for value in values:
            html = editor.post(f"{LIST}{persona.pk}/change/", 200, **as_form(persona) | {field: value})
            assert "errorlist" in html, (field, value[:40])
            assert value in html or field == "review_policy"
    assert gateway.get_persona(tenant, persona.pk).name == "Coach"


def test_every_field_has_a_help_text(editor: Operator, persona: Persona) -> None:
    html = editor.get(f"{LIST}{persona.pk}/change/")
    assert "{memory} marks where memory goes" in html
    assert "Learn facts from its threads." in html
    assert "Empty: the setting" in html


def test_the_switches_of_a_tenant(editor: Operator, tenant: Tenant) -> None:
    editor.post(f"memorygw/tenant/{tenant.pk}/change/", review_policy="all_model_writes", name="stolen")
    changed = gateway.get_tenant(tenant.pk)
    assert (changed.name, changed.memory_extraction_enabled, changed.review_policy) == (
        "acme",
        False,
        "all_model_writes",
    )
    editor.get("memorygw/tenant/add/", 403)
    editor.post(f"memorygw/tenant/{tenant.pk}/delete/", 403, post="yes")


def test_lists_cost_the_same_whatever_there_is(editor: Operator, tenant: Tenant, persona: Persona) -> None:
    paths = [LIST, "memorygw/tenant/", f"{LIST}{persona.pk}/change/"]
    few = [len(queries(lambda path=path: editor.get(path))) for path in paths]  # type: ignore[misc]
    for number in range(20):
        owner = Tenant.objects.create(name=f"tenant {number}")
        gateway.create_persona(owner, "Coach")
    assert [len(queries(lambda path=path: editor.get(path))) for path in paths] == few  # type: ignore[misc]
    assert max(few) <= 9
