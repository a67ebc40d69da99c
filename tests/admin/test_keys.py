"""API keys: shown once, revoked for good."""

from datetime import timedelta

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.sessions.models import Session
from django.utils import timezone

from memorygw import gateway, keys
from memorygw.models import ApiKey, Tenant
from tests.admin.conftest import Operator, queries
from tests.conftest import Api

pytestmark = pytest.mark.django_db

LIST = "memorygw/apikey/"


def new(operator: Operator, owner: Tenant, status: int = 200, **data: str) -> str:
    values = {"tenant": str(owner.pk), "role": "service", "name": "phone", **data}
    return operator.post(f"{LIST}add/", status, **values)


def text_of(html: str) -> str:
    return html.partition("<pre><code>")[2].partition("</code>")[0]


def test_a_key_is_shown_once_and_opens_the_api(root: Operator, tenant: Tenant) -> None:
    response = root.client.post(f"/admin/{LIST}add/", {"tenant": tenant.pk, "role": "service", "name": "phone"})
    text = text_of(response.content.decode())
    assert keys.prefix_of(text) == ApiKey.objects.get().prefix
    assert "no-store" in response.headers["Cache-Control"]
    assert Api(text)("GET", "/threads").status == 200
    secret = text.split("_")[2]
    for page in (root.get(LIST), root.get(f"{LIST}{ApiKey.objects.get().pk}/change/"), root.get("")):
        assert secret not in page
    assert secret not in str(list(LogEntry.objects.values()) + [row.get_decoded() for row in Session.objects.all()])
    assert "messages" not in root.client.cookies


def test_what_is_wrong_is_told_at_its_field(root: Operator, tenant: Tenant) -> None:
    past = (timezone.now() - timedelta(days=1)).date().isoformat()
    assert "Later than now" in new(root, tenant, expires_at_0=past, expires_at_1="12:00")
    assert "errorlist" in new(root, tenant, name=" ")
    assert "errorlist" in new(root, tenant, role="root")
    assert "errorlist" in new(root, tenant, tenant="01890000-0000-7000-8000-000000000000")
    assert not ApiKey.objects.exists()


def test_a_key_may_end_by_itself(root: Operator, tenant: Tenant) -> None:
    day = (timezone.now() + timedelta(days=10)).date().isoformat()
    text = text_of(new(root, tenant, expires_at_0=day, expires_at_1="12:00"))
    assert ApiKey.objects.get().expires_at
    assert Api(text)("GET", "/threads").status == 200


def test_revoked_is_revoked(root: Operator, tenant: Tenant) -> None:
    row, text = gateway.create_api_key(tenant.name, role="admin", name="laptop")
    _, other_text = gateway.create_api_key(tenant.name, role="admin", name="phone")
    root.act(LIST, "revoke", [row])
    assert Api(text)("GET", "/threads").status == 401
    assert Api(other_text)("GET", "/threads").status == 200
    when = ApiKey.objects.get(pk=row.pk).revoked_at
    root.act(LIST, "revoke", [row])
    assert ApiKey.objects.get(pk=row.pk).revoked_at == when
    assert list(LogEntry.objects.values_list("object_id", "change_message")) == [(str(row.pk), "Revoked.")]


def test_a_key_of_another_tenant_is_none(tenant: Tenant, other_tenant: Tenant) -> None:
    row = gateway.create_api_key(tenant.name, role="admin", name="laptop")[0]
    assert not gateway.revoke_api_key(other_tenant, row.pk)
    assert gateway.revoke_api_key(tenant, row.pk)
    assert not gateway.revoke_api_key(tenant, row.pk)


def test_a_key_is_neither_edited_nor_deleted(root: Operator, tenant: Tenant) -> None:
    row = gateway.create_api_key(tenant.name, role="service", name="phone")[0]
    root.post(f"{LIST}{row.pk}/change/", 403, name="new", role="admin")
    root.post(f"{LIST}{row.pk}/delete/", 403, post="yes")
    root.try_to(LIST, "delete_selected", row)
    assert ApiKey.objects.get().role == "service"


def test_the_list_costs_the_same_whatever_there_is(root: Operator, tenant: Tenant) -> None:
    gateway.create_api_key(tenant.name, role="service", name="phone")
    few = len(queries(lambda: root.get(LIST)))
    for number in range(20):
        gateway.create_api_key(f"tenant {number}", role="service", name="phone")
    assert len(queries(lambda: root.get(LIST))) == few <= 8
