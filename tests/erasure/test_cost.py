"""What an erasure costs: so many queries, whatever else is stored, by indexes alone."""

import re
from itertools import pairwise
from math import ceil
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from memorygw import erasure, gateway, purge
from memorygw.ids import new_id
from memorygw.models import ErasureReceipt, ModelCall, Tenant
from memorygw.personal_data import personal_data
from threads.models import Run, Thread, Turn
from usermemory.models import ExtractionState, Fact, identity
from workingmemory.models import WorkingMemoryState

pytestmark = pytest.mark.django_db(transaction=True)

THREADS, TURNS, FACTS = 100, 100, 100


def fill(tenant: Tenant, user: str, *, threads: int = THREADS, turns: int = TURNS, facts: int = FACTS) -> None:
    """So many rows, straight into the tables."""
    made = [Thread(tenant=tenant, user_id=user, title="t", turn_count=turns, token_count=turns) for _ in range(threads)]
    Thread.objects.bulk_create(made)
    for thread in made:
        numbers = range(1, turns + 1)
        Turn.objects.bulk_create(
            Turn(thread=thread, seq=n, role="user", content="Hello", token_count=1, tokens_through=n) for n in numbers
        )
    Run.objects.bulk_create(
        Run(
            thread=thread,
            first_seq=1,
            last_seq=2,
            status="completed",
            finished_at=timezone.now(),
        )
        for thread in made
    )
    ExtractionState.objects.bulk_create(ExtractionState(thread=thread) for thread in made)
    WorkingMemoryState.objects.bulk_create(WorkingMemoryState(thread=thread) for thread in made)
    ModelCall.objects.bulk_create(
        ModelCall(tenant=tenant, thread_id=thread.pk, kind="CHAT", model="m", outcome="ok") for thread in made
    )
    Fact.objects.bulk_create(
        Fact(
            id=new_id(), tenant=tenant, owner_id=user, key=f"k{n}", value="v", identity=identity(f"k{n}"),
            searchable="k v", origin="auto", source_thread=made[n % threads],
        )
        for n in range(facts)
    )  # fmt: skip


def statements(queries: CaptureQueriesContext) -> list[str]:
    return [
        query["sql"] for query in queries if not query["sql"].startswith(("BEGIN", "COMMIT", "SAVEPOINT", "RELEASE"))
    ]


@pytest.mark.parametrize("mode", ["delete", "anonymize"])
def test_a_large_person_costs_forty_queries_and_one_for_each_batch(tenant: Tenant, mode: str) -> None:
    fill(tenant, "ada")
    with CaptureQueriesContext(connection) as queries:
        receipt = gateway.forget_user(tenant, "ada", mode=mode)
    assert (receipt.counts["turns"], receipt.counts["facts"], receipt.verified) == (THREADS * TURNS, FACTS, True)
    batches = ceil(sum(receipt.counts.values()) / purge.BATCH_ROWS)
    assert len(statements(queries)) <= 40 + batches, "\n".join(sql[:150] for sql in statements(queries))


def test_nobody_costs_little(tenant: Tenant) -> None:
    with CaptureQueriesContext(connection) as queries:
        gateway.forget_user(tenant, "nobody")
    assert len(statements(queries)) <= 20, "\n".join(sql[:150] for sql in statements(queries))


def test_a_dry_run_is_one_query(tenant: Tenant) -> None:
    fill(tenant, "ada", threads=2, turns=2, facts=2)
    with CaptureQueriesContext(connection) as queries:
        gateway.count_user_data(tenant, "ada")
    assert len(statements(queries)) == 1


def test_others_are_never_read(tenant: Tenant) -> None:
    """Every statement finds the person's rows by an index, with so many others that a table would be dear to read."""
    for user in ("bob", "eve"):
        fill(tenant, user, threads=100, turns=200, facts=10_000)
    fill(tenant, "ada", threads=5, turns=20, facts=20)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")
    for table in personal_data():
        rows = table.rows(tenant.pk, "ada")
        batch = table.model._base_manager.filter(pk__in=rows.values("pk")[:100])
        for found in (rows, batch):
            assert not whole_tables(found.explain()), f"{table.name}: {found.explain()}"


def whole_tables(plan: str) -> list[str]:
    """The large tables that a plan reads from end to end."""
    large = {table.model._meta.db_table for table in personal_data() if table.model._base_manager.count() > 10_000}
    return [name for name in re.findall(r"(?:Seq Scan on|SCAN) (\w+)", plan) if name in large]


def test_a_batch_is_never_larger_than_it_should_be(tenant: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(purge, "BATCH_ROWS", 50)
    fill(tenant, "ada", threads=3, turns=70, facts=20)
    counted: list[int] = []
    real = erasure._batch

    def count(receipt: Any, way: Any) -> int:
        gone = real(receipt, way)
        counted.append(sum(ErasureReceipt.objects.get(pk=receipt.pk).counts.values()))
        return gone

    monkeypatch.setattr(erasure, "_batch", count)
    gateway.forget_user(tenant, "ada")
    assert max(later - earlier for earlier, later in pairwise([0, *counted])) <= 50
