"""What is kept for a time is hidden when that is over, and purged by the sweep (S24)."""

import json
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.checks import run_checks
from django.core.management import call_command
from django.utils import timezone
from pytest_django import Settings

from memorygw import expiry, gateway, sweep
from memorygw.exceptions import ThreadNotFoundError
from memorygw.models import ModelCall, Tenant
from memorygw.testing import ScriptedModelServer
from threads.models import Thread, Turn
from usermemory.models import Fact

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def never_purged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expiry, "_last_purge", -1e9)


@pytest.fixture
def aged(tenant: Tenant, other_tenant: Tenant, model: ScriptedModelServer) -> None:
    """In both tenants a thread and a fact of today, and of ten days ago."""
    for owner in (tenant, other_tenant):
        for word in ("old", "new"):
            gateway.ask(owner, "ada", word)
            gateway.upsert_user_fact(owner, "ada", word, word)
    past = timezone.now() - timedelta(days=10)
    old = Thread.objects.filter(turns__content="old").values_list("pk", flat=True)
    ModelCall.objects.filter(thread_id__in=list(old)).update(created_at=past)
    Thread.objects.filter(pk__in=list(old)).update(updated_at=past)
    Fact.objects.filter(key="old").update(updated_at=past)


def seen(tenant: Tenant) -> tuple[int, list[str], int]:
    """Threads, facts, and hits of a search, as a user sees them."""
    facts = [fact.key for fact in gateway.get_user_facts(tenant, "ada")]
    return len(gateway.list_threads(tenant, "ada").items), facts, len(gateway.search_memories(tenant, "ada", "old"))


def erase_expired(*arguments: str) -> Any:
    out = StringIO()
    call_command("erase_expired", "--json", *arguments, stdout=out)
    return json.loads(out.getvalue())["counts"]


def test_without_a_policy_everything_is_kept(aged: None, tenant: Tenant) -> None:
    assert seen(tenant) == (2, ["old", "new"], 1)
    assert erase_expired() == {}


def test_what_is_over_is_hidden_at_once(
    aged: None, tenant: Tenant, model: ScriptedModelServer, settings: Settings
) -> None:
    old = Thread.objects.filter(tenant=tenant).order_by("updated_at")[0]
    settings.MEMORYGW_RETENTION_DAYS = {"threads": 9, "facts": 9}
    assert seen(tenant) == (1, ["new"], 0)
    with pytest.raises(ThreadNotFoundError):
        gateway.ask(tenant, "ada", "Hello", thread_id=old.pk)
    gateway.ask(tenant, "ada", "Hello")
    assert "old" not in model.requests_for("main")[-1].system
    settings.MEMORYGW_RETENTION_DAYS = {"threads": 11, "facts": 11}
    assert seen(tenant) == (3, ["old", "new"], 1)


def test_what_is_over_is_purged_and_nothing_else(aged: None, tenant: Tenant, settings: Settings) -> None:
    settings.MEMORYGW_RETENTION_DAYS = {"threads": 9, "facts": 9, "model_calls": 9}
    expected = {"threads": 2, "facts": 2, "model_calls": 2}
    assert erase_expired("--dry-run") == expected
    assert Thread.objects.count() == 4
    sweep.keep_house()
    assert (Thread.objects.count(), Turn.objects.count(), Fact.objects.count()) == (2, 4, 2)
    assert ModelCall.objects.count() == 2
    assert not Turn.objects.filter(content="old").exists()
    assert erase_expired() == dict.fromkeys(expected, 0)


def test_a_tenant_may_have_its_own(aged: None, tenant: Tenant, other_tenant: Tenant, settings: Settings) -> None:
    settings.MEMORYGW_RETENTION_DAYS = {"threads": 9, "tenants": {"acme": {"threads": 365}}}
    assert (seen(tenant)[0], seen(other_tenant)[0]) == (2, 1)
    assert erase_expired() == {"threads": 1}
    assert Thread.objects.filter(tenant=tenant).count() == 2


def test_a_thread_that_is_held_stays(aged: None, settings: Settings) -> None:
    settings.MEMORYGW_RETENTION_DAYS = {"threads": 9}
    Thread.objects.update(lease_expires_at=timezone.now() + timedelta(minutes=1))
    assert erase_expired() == {"threads": 0}


def test_a_fact_whose_time_is_over_can_be_set_again(aged: None, tenant: Tenant, settings: Settings) -> None:
    settings.MEMORYGW_RETENTION_DAYS = {"facts": 9}
    gateway.upsert_user_fact(tenant, "ada", "old", "again")
    assert {fact.key: fact.value for fact in gateway.get_user_facts(tenant, "ada")} == {"old": "again", "new": "new"}


def test_an_erasure_takes_what_is_hidden_too(aged: None, tenant: Tenant, settings: Settings) -> None:
    settings.MEMORYGW_RETENTION_DAYS = {"threads": 9, "facts": 9}
    counts = gateway.forget_user(tenant, "ada").counts
    assert (counts["threads"], counts["facts"]) == (2, 2)


@pytest.mark.parametrize(
    "policy",
    [
        {"threads": 0},
        {"threads": "9"},
        {"turns": 9},
        {"tenants": {"acme": {"turns": 9}}},
        {"tenants": 9},
        {"facts": True},
    ],
    ids=str,
)
def test_a_policy_that_is_none_is_refused_at_start(policy: Any, settings: Settings) -> None:
    settings.MEMORYGW_RETENTION_DAYS = policy
    assert [problem.id for problem in run_checks(tags=["memorygw"])] == ["memorygw.E002"]
