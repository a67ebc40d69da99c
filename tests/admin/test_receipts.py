"""Receipts are read, and whether their chain holds is said."""

import pytest

from memorygw import gateway
from memorygw.models import ErasureReceipt, Tenant
from tests.admin.conftest import Operator, queries

pytestmark = pytest.mark.django_db(transaction=True)

LIST = "memorygw/erasurereceipt/"


def test_a_receipt_is_read_and_not_changed(viewer: Operator, tenant: Tenant) -> None:
    receipt = gateway.forget_user(tenant, "ada")
    assert str(receipt.pk) in viewer.get(LIST)
    html = viewer.get(f"{LIST}{receipt.pk}/change/")
    assert receipt.seal in html
    assert "ada" not in html
    assert receipt.subject not in html
    viewer.post(f"{LIST}{receipt.pk}/change/", 403, mode="anonymize")
    viewer.get(f"{LIST}add/", 403)
    viewer.post(f"{LIST}{receipt.pk}/delete/", 403, post="yes")


def test_a_chain_that_holds_and_one_that_does_not(viewer: Operator, tenant: Tenant, other_tenant: Tenant) -> None:
    made = [gateway.forget_user(owner, user) for owner in (tenant, other_tenant) for user in ("ada", "bob")]
    viewer.act(LIST, "verify", made)
    text = viewer.messages(LIST)
    assert f"The chain of tenant {tenant.pk} holds." in text
    assert f"The chain of tenant {other_tenant.pk} holds." in text
    ErasureReceipt.objects.filter(pk=made[0].pk).update(requested_by="nobody")
    viewer.act(LIST, "verify", made)
    text = viewer.messages(LIST)
    assert f"The chain of tenant {tenant.pk} does not hold, 1 problems: {made[0].pk} altered" in text
    assert f"The chain of tenant {other_tenant.pk} holds." in text


def test_the_list_costs_the_same_whatever_there_is(viewer: Operator, tenant: Tenant) -> None:
    gateway.forget_user(tenant, "ada")
    few = len(queries(lambda: viewer.get(LIST)))
    for number in range(10):
        gateway.forget_user(tenant, f"user {number}")
    assert len(queries(lambda: viewer.get(LIST))) == few <= 8
