"""What the run reads and writes: threads of several lengths, with notes; one user with as many facts as allowed."""

import random
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from itertools import accumulate, cycle, islice
from uuid import uuid4

from django.db import connection
from django.utils import timezone

from memorygw.conf import conf
from memorygw.models import Tenant
from threads.models import Thread, Turn
from threads.turns import TurnDraft, turn_tokens
from usermemory.models import Fact, identity
from workingmemory.models import WorkingMemoryState

READ_LENGTHS = (10, 1_000, 10_000)
APPEND_POOLS = {10: 100, 10_000: 1}
"""Length → threads per side to append to in turn, so that short ones stay short."""

HTTP_APPEND_POOLS = {10: 100}
HTTP_HISTORY_LENGTH = 100

THREADS_IN_TABLE = 200_000
LISTER = "bench lister"
LISTER_THREADS = 10_000
LISTED = 50

TURN_CHARS = 200
FACTS = 100
USER = "bench"
# Notes that lag behind: not they but the token budget closes the window of a context.
NOTES_LAG = 100

_WORDS = """
the a of to and in we you it was is not what when where there meeting garden tomorrow question answer please remember
holiday budget Tuesday morning coffee train ticket number between, because, after. before. however, weather project
draft version kitchen window really maybe something different
"""


@dataclass(frozen=True)
class Text:
    content: str
    tokens: int


@dataclass(frozen=True)
class Seeded:
    tenant: Tenant
    texts: list[Text]
    read: dict[int, Thread]
    append_raw: dict[int, list[Thread]]
    append_ours: dict[int, list[Thread]]
    http_raw: dict[int, list[Thread]]
    http_ours: dict[int, list[Thread]]
    history: Thread


def seed() -> Seeded:
    tenant, _ = Tenant.objects.get_or_create(name=Tenant.DEFAULT)
    texts = _texts(200)

    def pools(sizes: Mapping[int, int], *, leased: bool) -> dict[int, list[Thread]]:
        return {
            length: [_thread(tenant, length, texts, leased=leased) for _ in range(size)]
            for length, size in sizes.items()
        }

    seeded = Seeded(
        tenant=tenant,
        texts=texts,
        read={length: _thread(tenant, length, texts) for length in READ_LENGTHS},
        append_raw=pools(APPEND_POOLS, leased=True),
        append_ours=pools(APPEND_POOLS, leased=True),
        http_raw=pools(HTTP_APPEND_POOLS, leased=False),
        http_ours=pools(HTTP_APPEND_POOLS, leased=False),
        history=_thread(tenant, HTTP_HISTORY_LENGTH, texts),
    )
    _facts(tenant)
    _other_threads(tenant)
    with connection.cursor() as cursor:
        # Left to itself, PostgreSQL would clean up in the middle of the run.
        cursor.execute("VACUUM ANALYZE" if connection.vendor == "postgresql" else "ANALYZE")
    return seeded


def _texts(count: int) -> list[Text]:
    rng, words = random.Random(1), _WORDS.split()
    contents = [" ".join(rng.choices(words, k=TURN_CHARS))[:TURN_CHARS] for _ in range(count)]
    return [Text(text, turn_tokens(TurnDraft(role="user", content=text), conf.MODEL)) for text in contents]


def _thread(tenant: Tenant, length: int, texts: list[Text], *, leased: bool = False) -> Thread:
    """A thread of ``length`` turns, user and assistant by turns; ``leased``: for the whole run."""
    chosen = list(islice(cycle(texts), length))
    tokens = list(accumulate(text.tokens for text in chosen))
    thread = Thread.objects.create(
        tenant=tenant,
        user_id=USER,
        turn_count=length,
        token_count=tokens[-1],
        lease_token=uuid4() if leased else None,
        lease_expires_at=timezone.now() + timedelta(hours=1) if leased else None,
    )
    _turns(thread, chosen, tokens)
    WorkingMemoryState.objects.create(
        thread=thread,
        summary=texts[0].content,
        facts=[text.content[:60] for text in texts[:5]],
        covered=max(length - NOTES_LAG, 0),
        answered=length,
    )
    return thread


def _turns(thread: Thread, texts: list[Text], tokens: list[int]) -> None:
    """``tokens``: of all turns up to and with each."""
    Turn.objects.bulk_create(
        [
            Turn(
                thread=thread,
                seq=seq,
                role=Turn.Role.USER if seq % 2 else Turn.Role.ASSISTANT,
                content=text.content,
                model="" if seq % 2 else conf.MODEL,
                token_count=text.tokens,
                tokens_through=tokens[seq - 1],
            )
            for seq, text in enumerate(texts, start=1)
        ],
        batch_size=2_000,
    )


def _facts(tenant: Tenant) -> None:
    keys = [f"subject {n}" for n in range(FACTS)]
    Fact.objects.bulk_create(
        Fact(
            tenant=tenant,
            owner_id=USER,
            key=key,
            value="likes it in the morning, not later",
            identity=identity(key),
            origin=Fact.Origin.MANUAL,
        )
        for key in keys
    )


def _other_threads(tenant: Tenant) -> None:
    """Threads without turns, a second apart, by one statement: each twentieth is the lister's, others have 100."""
    every = THREADS_IN_TABLE // LISTER_THREADS
    if connection.vendor == "postgresql":
        numbers, new_id = f"SELECT n FROM generate_series(1, {THREADS_IN_TABLE}) n", "gen_random_uuid()"
        created = "NOW() - n * INTERVAL '1 second'"
    else:
        numbers = f"SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {THREADS_IN_TABLE}"
        new_id, created = "LOWER(HEX(RANDOMBLOB(16)))", "STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW', '-' || n || ' seconds')"
    key = Tenant._meta.pk.get_db_prep_value(tenant.pk, connection)
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO {connection.ops.quote_name(Thread._meta.db_table)} "
            "(id, tenant_id, user_id, title, status, turn_count, token_count, created_at, updated_at) "
            f"WITH RECURSIVE numbers(n) AS ({numbers}) "
            f"SELECT {new_id}, %s, CASE WHEN n %% {every} = 0 THEN %s ELSE 'user ' || n %% {every * 100} END, "
            f"'Plans for the garden', 'OPEN', 0, 0, {created.replace('%', '%%')}, {created.replace('%', '%%')} "
            "FROM numbers",
            [key, LISTER],
        )
