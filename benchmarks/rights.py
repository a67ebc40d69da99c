"""`make bench-rights`: forgetting a person with 100 threads of 100 turns and 100 facts, beside the plain deletes.

On the database of DATABASE_URL or a temporary SQLite file, among so many turns of others. Fails above the goal.
"""

import sys
from argparse import ArgumentParser
from statistics import median
from time import perf_counter
from uuid import UUID

from django.db import connection, transaction
from django.utils import timezone

from benchmarks.database import configure, temporary_database

THREADS, TURNS, FACTS, PAIRS = 100, 100, 100, 5
GOAL_SECONDS = 0.25


def main() -> None:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--others", type=int, default=20, help="So many people like that are there besides.")
    options = parser.parse_args()
    configure()
    from memorygw import gateway
    from memorygw.models import Tenant

    raw: list[float] = []
    ours: list[float] = []
    with temporary_database():
        tenant, _ = Tenant.objects.get_or_create(name=Tenant.DEFAULT)
        for number in range(options.others):
            fill(tenant.pk, f"other-{number}")
        with connection.cursor() as cursor:
            cursor.execute("ANALYZE")
        for number in range(PAIRS):
            for user, times in ((f"raw-{number}", raw), (f"ours-{number}", ours)):
                fill(tenant.pk, user)
                started = perf_counter()
                if times is raw:
                    delete_by_hand(tenant.pk, user)
                else:
                    assert gateway.forget_user(tenant, user).verified
                times.append(perf_counter() - started)
    floor, cost = median(raw), median(ours)
    others = f"{options.others * THREADS * TURNS:,} turns of others"
    print(f"{THREADS} threads × {TURNS} turns, {FACTS} facts, among {others}")
    print(f"plain deletes: {floor * 1000:.0f} ms; fenced, checked, sealed: {cost * 1000:.0f} ms; × {cost / floor:.2f}")
    if cost > GOAL_SECONDS:
        sys.exit(f"Above the goal of {GOAL_SECONDS} s.")


def fill(tenant_id: UUID, user: str) -> None:
    """One person's rows, straight into the tables."""
    from memorygw.ids import new_id
    from threads.models import Run, Thread, Turn
    from usermemory.models import ExtractionState, Fact, UserMemory, identity
    from workingmemory.models import WorkingMemoryState

    UserMemory.objects.create(tenant_id=tenant_id, user_id=user)
    threads = [Thread(tenant_id=tenant_id, user_id=user, turn_count=TURNS, token_count=TURNS) for _ in range(THREADS)]
    Thread.objects.bulk_create(threads)
    text = "Half a sentence, and then the other half. " * 5
    turns = (
        Turn(thread=thread, seq=seq, role="user", content=text, token_count=1, tokens_through=seq)
        for thread in threads
        for seq in range(1, TURNS + 1)
    )
    Turn.objects.bulk_create(turns, batch_size=1_000)
    now = timezone.now()
    Run.objects.bulk_create(
        Run(thread=thread, first_seq=1, last_seq=2, status="completed", finished_at=now) for thread in threads
    )
    ExtractionState.objects.bulk_create(ExtractionState(thread=thread) for thread in threads)
    WorkingMemoryState.objects.bulk_create(WorkingMemoryState(thread=thread) for thread in threads)
    Fact.objects.bulk_create(
        Fact(
            id=new_id(),
            tenant_id=tenant_id,
            owner_id=user,
            key=f"key {number}",
            value=text,
            identity=identity(f"key {number}"),
            searchable=text,
            origin="auto",
        )
        for number in range(FACTS)
    )


@transaction.atomic
def delete_by_hand(tenant_id: UUID, user: str) -> None:
    """What one would write without anything around it: children, then parents."""
    from threads.models import Run, Thread, Turn
    from usermemory.models import ExtractionState, Fact, UserMemory
    from workingmemory.models import WorkingMemoryState

    place = [tenant_id.hex if connection.vendor == "sqlite" else tenant_id, user]
    mine = f"SELECT id FROM {Thread._meta.db_table} WHERE tenant_id = %s AND user_id = %s"
    with connection.cursor() as cursor:
        for model in (Turn, Run, ExtractionState, WorkingMemoryState):
            cursor.execute(f"DELETE FROM {model._meta.db_table} WHERE thread_id IN ({mine})", place)
        cursor.execute(f"DELETE FROM {Fact._meta.db_table} WHERE tenant_id = %s AND owner_id = %s", place)
        cursor.execute(f"DELETE FROM {Thread._meta.db_table} WHERE tenant_id = %s AND user_id = %s", place)
        cursor.execute(f"DELETE FROM {UserMemory._meta.db_table} WHERE tenant_id = %s AND user_id = %s", place)


if __name__ == "__main__":
    main()
