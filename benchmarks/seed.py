"""What the run reads and writes: threads of several lengths, with notes; one user with as many facts as allowed."""

import random
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
from usermemory.models import Fact
from usermemory.store import identity
from workingmemory.models import WorkingMemoryState

READ_LENGTHS = (10, 1_000, 10_000)
APPEND_POOLS = {10: 100, 10_000: 1}
"""Length → threads per side to append to in turn, so that short ones stay short."""

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


def seed() -> Seeded:
    tenant, _ = Tenant.objects.get_or_create(name=Tenant.DEFAULT)
    texts = _texts(200)
    pools = [
        {length: [_thread(tenant, length, texts) for _ in range(size)] for length, size in APPEND_POOLS.items()}
        for _ in range(2)
    ]
    seeded = Seeded(
        tenant=tenant,
        texts=texts,
        read={length: _thread(tenant, length, texts) for length in READ_LENGTHS},
        append_raw=pools[0],
        append_ours=pools[1],
    )
    _facts(tenant)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")
    return seeded


def _texts(count: int) -> list[Text]:
    rng, words = random.Random(1), _WORDS.split()
    contents = [" ".join(rng.choices(words, k=TURN_CHARS))[:TURN_CHARS] for _ in range(count)]
    return [Text(text, turn_tokens(TurnDraft(role="user", content=text), conf.MODEL)) for text in contents]


def _thread(tenant: Tenant, length: int, texts: list[Text]) -> Thread:
    """A thread of ``length`` turns, user and assistant by turns, leased for the whole run."""
    chosen = list(islice(cycle(texts), length))
    tokens = list(accumulate(text.tokens for text in chosen))
    thread = Thread.objects.create(
        tenant=tenant,
        user_id=USER,
        turn_count=length,
        token_count=tokens[-1],
        lease_token=uuid4(),
        lease_expires_at=timezone.now() + timedelta(hours=1),
    )
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
            for seq, text in enumerate(chosen, start=1)
        ],
        batch_size=2_000,
    )
    WorkingMemoryState.objects.create(
        thread=thread,
        summary=texts[0].content,
        facts=[text.content[:60] for text in texts[:5]],
        covered=max(length - NOTES_LAG, 0),
        answered=length,
    )
    return thread


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
