"""Lists and pages read what they show, however much else there is: no table is counted, sorted or walked."""

from functools import partial
from typing import Any

import pytest
from django.db import connection

from memorygw import gateway
from memorygw.models import ApiKey, ErasureReceipt, Tenant
from tests.admin.conftest import LISTS, Operator, make_fact, queries
from tests.threads.test_plans import STEPS_PER_ROW, analyze, fill, make_threads, nodes, sqlite_steps
from usermemory.models import Fact, Owner, UserMemory, identity

pytestmark = pytest.mark.django_db

# A list counts up to its end, which is 1,000 rows away.
MOST = 1_100
MANY = 6_000


def rows_touched(sql: str) -> int:
    """The most rows that any part of the statement goes through."""
    if connection.vendor != "postgresql":
        return sqlite_steps(sql) // STEPS_PER_ROW
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {sql}")
        [[[explained]]] = cursor.fetchall()
    return int(
        max(
            (n["Actual Rows"] + n.get("Rows Removed by Filter", 0)) * n["Actual Loops"]
            for n in nodes(explained["Plan"])
        )
    )


def test_lists_and_pages_read_what_they_show_of_big_tables(root: Operator, tenant: Tenant) -> None:
    threads = make_threads(tenant, MANY, users=600)
    thread = threads[0]
    fill(thread, 5_000)
    UserMemory.objects.bulk_create(
        [UserMemory(tenant=tenant, user_id=f"user {n}") for n in range(MANY)], batch_size=1_000
    )
    Fact.objects.bulk_create(
        [
            Fact(
                tenant=tenant,
                owner_id=f"user {n % 600}",
                key=f"k{n}",
                value="x",
                identity=identity(f"k{n}"),
                searchable="x",
                origin="auto",
                source_thread=threads[n],
            )
            for n in range(MANY)
        ],
        batch_size=1_000,
    )
    make_fact(tenant, owner=Owner.user("user 7"), key="waits", status="pending_review")
    analyze()
    person = UserMemory.objects.get(user_id="user 7")
    for path, query in (
        ("memorygw_threads/thread/", {}),
        ("memorygw_threads/thread/", {"q": "user 7"}),
        (f"memorygw_threads/thread/{thread.pk}/change/", {"after": "2500"}),
        ("memorygw_usermemory/usermemory/", {}),
        ("memorygw_usermemory/usermemory/", {"q": "user 7"}),
        (f"memorygw_usermemory/usermemory/{person.pk}/change/", {}),
        ("memorygw_usermemory/fact/", {}),
        ("memorygw_usermemory/fact/", {"q": "user 7"}),
        ("memorygw_usermemory/fact/review/", {}),
    ):
        sent = [sql for sql in queries(partial(root.get, path, **query)) if sql.startswith("SELECT")]
        costs = {sql: rows_touched(sql) for sql in sent}
        assert max(costs.values()) <= MOST, (path, query, max(costs, key=costs.__getitem__))


def test_every_list_and_page_costs_the_same_for_one_row_and_for_many(root: Operator, tenant: Tenant) -> None:
    def grow(count: int) -> dict[str, Any]:
        """List → its newest row."""
        for _ in range(count):
            name = f"number {ApiKey.objects.count()}"
            key = gateway.create_api_key(name, role="service", name="phone")[0]
            persona = gateway.create_persona(key.tenant, name)
            thread = gateway.create_thread(key.tenant, name)
            receipt = ErasureReceipt.objects.create(tenant_id=key.tenant_id, subject=name, mode="delete", status="done")
            fact = make_fact(key.tenant, owner=Owner.user(name), key="x", source_thread=thread)
        rows: list[Any] = [key.tenant, key, persona, receipt, thread, UserMemory.objects.get(user_id=name), fact]
        return dict(zip(LISTS, rows, strict=True))

    def cost(rows: dict[str, Any]) -> dict[str, int]:
        pages = [(path, end) for path, row in rows.items() for end in ("", f"{row.pk}/change/", f"{row.pk}/history/")]
        pages += [("memorygw/apikey/", "add/"), ("memorygw/persona/", "add/"), ("", "")]
        return {path + end[-8:]: len(queries(partial(root.get, path + end))) for path, end in pages}

    # Django looks up its content types once.
    cost(grow(1))
    few = cost(grow(1))
    assert cost(grow(30)) == few
    assert max(few.values()) <= 14
