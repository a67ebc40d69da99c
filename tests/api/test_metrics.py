"""What Prometheus is told."""

import json
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.db import OperationalError, connection
from django.db.models.functions import Now
from django.test import Client
from django.test.utils import CaptureQueriesContext
from prometheus_client.parser import text_string_to_metric_families
from pytest_django import Settings

from memorygw import gateway, sweep
from memorygw.claims import MAX_ATTEMPTS
from memorygw.database import after
from memorygw.models import Tenant
from memorygw.testing import ScriptedModelServer
from tests.conftest import Api, learn
from usermemory.models import ExtractionState, Fact
from usermemory.store import UserMemoryStore

Samples = dict[str, float]


class UnreachableStore(UserMemoryStore):
    def list_pending(self, *args: Any) -> Any:
        raise OperationalError


def scrape() -> Samples:
    """The samples, as in ``name{label="value"}``."""
    reply = Client().get("/metrics")
    assert (reply.status_code, reply.headers["Content-Type"].partition(";")[0]) == (200, "text/plain")
    families = text_string_to_metric_families(reply.content.decode())
    return {spelt(sample.name, sample.labels): sample.value for family in families for sample in family.samples}


def spelt(name: str, labels: dict[str, str]) -> str:
    inner = ",".join(f"{label}={json.dumps(value)}" for label, value in sorted(labels.items()))
    return f"{name}{{{inner}}}" if labels else name


def added(before: Samples, prefix: str) -> Samples:
    """What was counted since, of the samples that begin so."""
    now = scrape()
    return {name: value - before.get(name, 0) for name, value in now.items()
            if name.startswith(prefix) and value != before.get(name, 0)}  # fmt: skip


def count(route: str, method: str, status: int) -> str:
    return spelt("memorygw_http_requests_total", {"route": route, "method": method, "status": str(status)})


def test_requests_are_counted_by_route_and_never_by_path(api: Api, client: Client) -> None:
    before = scrape()
    api("PUT", "/facts/shoe%20size", {"value": "42"}, user="ada@example.com")
    api("GET", f"/threads/{uuid4()}")
    api("GET", "/nothing/shoe")
    client.generic("SHOE", "/api/v1/threads")
    found = added(before, "memorygw_http_requests_total")
    assert found == {
        count("api/v1/facts/<path:key>", "PUT", 200): 1,
        count("api/v1/threads/<str:thread_id>", "GET", 404): 1,
        count("api/v1/<path:unknown>", "GET", 404): 1,
        count("api/v1/threads", "other", 401): 1,
    }
    assert sum(added(before, "memorygw_request_seconds_count").values()) == 4
    assert not [name for name in scrape() if "shoe" in name.lower() or "ada" in name]


def test_a_request_that_breaks_is_counted(api: Api, settings: Settings) -> None:
    settings.MEMORYGW_USER_MEMORY_STORE = "tests.memorygw.test_logs.BrokenStore"
    before = scrape()
    reply = api("DELETE", "/facts/city", headers={"X-Request-ID": "request-1"})
    assert (reply.status, reply.headers["X-Request-ID"]) == (500, "request-1")
    assert added(before, "memorygw_http_requests_total") == {count("api/v1/facts/<path:key>", "DELETE", 500): 1}


def test_a_stream_is_counted_once_it_was_sent(api: Api, model: ScriptedModelServer) -> None:
    before = scrape()
    model.stream("a", "b", model="main")
    response = api.client.post(
        "/api/v1/ask?user=ada",
        {"content": "Hello", "stream": True},
        content_type="application/json",
        headers={"Authorization": f"Bearer {api.key}"},
    )
    assert added(before, "memorygw_http_requests_total") == {}
    assert b"event: done" in b"".join(response)
    assert added(before, "memorygw_http_requests_total") == {count("api/v1/ask", "POST", 200): 1}


def test_model_calls_and_attempts_are_counted_by_how_they_ended(api: Api, model: ScriptedModelServer) -> None:
    before = scrape()
    thread_id = api.ask().body["thread_id"]
    learn()
    model.fail(500, model="main")
    api.ask("Hello", thread_id)
    assert added(before, "memorygw_model_calls_total") == {
        'memorygw_model_calls_total{kind="CHAT",outcome="ok"}': 1,
        'memorygw_model_calls_total{kind="CHAT",outcome="http_500"}': 1,
        'memorygw_model_calls_total{kind="MEMORY_USER",outcome="ok"}': 1,
    }
    assert added(before, "memorygw_model_seconds_count")['memorygw_model_seconds_count{kind="CHAT"}'] == 2
    assert added(before, "memorygw_job_attempts_total") == {
        'memorygw_job_attempts_total{kind="extraction",outcome="done"}': 1
    }


def test_attempts_that_fail_or_lose_their_claim_are_told_apart(api: Api, model: ScriptedModelServer) -> None:
    before = scrape()
    pk = api.ask().body["thread_id"]
    states = ExtractionState.objects
    for attempts in (0, MAX_ATTEMPTS - 1):
        states.filter(pk=pk).update(due_at=Now(), attempts=attempts)
        token = states.claim(pk)
        assert token
        states.fail(pk, token, "timeout")
    assert not states.settle(pk, uuid4())
    kinds = {outcome: f'memorygw_job_attempts_total{{kind="extraction",outcome="{outcome}"}}'
             for outcome in ("failed", "given_up", "lost")}  # fmt: skip
    assert added(before, "memorygw_job_attempts_total") == dict.fromkeys(kinds.values(), 1)


def test_a_backlog_is_told_by_its_rows(api: Api, model: ScriptedModelServer) -> None:
    pending, running, waiting, rewound = (api.ask(f"n={n}").body["thread_id"] for n in range(4))
    states = ExtractionState.objects
    states.filter(pk=pending).update(due_at=after(-60))
    states.filter(pk=running).update(due_at=after(-90), claim_token=uuid4(), claim_expires_at=after(60))
    states.filter(pk=waiting).update(due_at=after(60))
    states.filter(pk=rewound).update(due_at=after(-30), claim_token=uuid4(), claim_expires_at=after(-1))
    told = scrape()
    assert {state: told[spelt("memorygw_jobs", {"kind": "extraction", "state": state})]
            for state in ("pending", "running", "waiting")} == {"pending": 2, "running": 1, "waiting": 1}  # fmt: skip
    oldest = told['memorygw_job_oldest_pending_seconds{kind="extraction"}']
    assert timedelta(seconds=60) <= timedelta(seconds=oldest) < timedelta(seconds=90)
    assert told['memorygw_job_oldest_pending_seconds{kind="notes"}'] == 0
    # Titles and vectors are off in the tests.
    assert {name for name in told if 'kind="title"' in name or 'kind="embedding"' in name} == set()


def test_what_waits_for_review_is_told(tenant: Tenant) -> None:
    assert scrape()["memorygw_review_pending"] == 0
    gateway.upsert_user_fact(tenant.name, "ada", "city", "Turin")
    Fact.objects.update(status="pending_review")
    assert scrape()["memorygw_review_pending"] == 1


@pytest.mark.django_db
def test_every_kind_of_late_work_has_a_name_of_its_own() -> None:
    assert {learner.states.kind for learner in sweep.LEARNERS} == {
        "extraction", "notes", "title", "voice", "embedding"
    }  # fmt: skip


@pytest.mark.django_db
def test_a_scrape_costs_a_query_for_each_kind_that_is_on_and_one_for_the_review() -> None:
    with CaptureQueriesContext(connection) as queries:
        scrape()
    assert len(queries) == 3 + 1


def test_without_the_database_it_tells_what_was_counted(api: Api, settings: Settings) -> None:
    api("GET", "/threads")
    assert scrape()["memorygw_database_up"] == 1
    settings.MEMORYGW_USER_MEMORY_STORE = "tests.api.test_metrics.UnreachableStore"
    told = scrape()
    assert told["memorygw_database_up"] == 0
    assert told[count("api/v1/threads", "GET", 200)] >= 1
    assert "memorygw_review_pending" not in told
