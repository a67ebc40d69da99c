"""A host's user is deleted, and what memorygw knows of them goes, where the host wants that."""

import pytest
from django.contrib.auth.models import User
from django.db import transaction
from pytest_django import Settings

from memorygw import gateway
from memorygw.models import ErasureReceipt, Tenant

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def person(db: None) -> User:
    Tenant.objects.get_or_create(name=Tenant.DEFAULT)
    user = User.objects.create_user("ada")
    gateway.upsert_user_fact(Tenant.DEFAULT, str(user.pk), "city", "Turin")
    return user


def test_a_user_that_is_deleted_is_forgotten_on_commit(person: User, settings: Settings) -> None:
    settings.MEMORYGW_FORGET_ON_USER_DELETE = True
    user_id = str(person.pk)
    with transaction.atomic():
        person.delete()
        assert not ErasureReceipt.objects.exists()
    receipt = ErasureReceipt.objects.get()
    assert (receipt.requested_by, receipt.counts["facts"]) == ("user deleted", 1)
    assert gateway.get_user_facts(Tenant.DEFAULT, user_id) == []


def test_a_deletion_that_is_rolled_back_forgets_nobody(person: User, settings: Settings) -> None:
    settings.MEMORYGW_FORGET_ON_USER_DELETE = True
    with transaction.atomic():
        User.objects.filter(pk=person.pk).delete()
        transaction.set_rollback(True)
    assert gateway.get_user_facts(Tenant.DEFAULT, str(person.pk))


def test_without_the_setting_nothing_happens(person: User) -> None:
    user_id = str(person.pk)
    person.delete()
    assert gateway.get_user_facts(Tenant.DEFAULT, user_id)
