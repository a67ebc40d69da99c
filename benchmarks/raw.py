"""Appending on the floor, for one turn or many."""

from collections.abc import Sequence
from uuid import UUID

from benchmarks.floor import Floor, column_names, table
from benchmarks.seed import Text
from memorygw.ids import new_id
from threads.models import Thread, Turn

# What the database fills in by itself stays out, as in ours.
_INSERTED = [name for name in column_names(Turn) if name not in ("created_at", "stored_at")]


class RawAppend:
    """Counters and turns in one transaction: one UPDATE, which also guards the order, and one INSERT of all rows.

    ``count`` turns a call, whose tokens are known; ``leased``: only under the lease of the thread.
    """

    def __init__(self, floor: Floor, tenant_id: UUID, *, count: int = 1, leased: bool = True) -> None:
        self.floor, self.tenant, self.leased = floor, floor.id(tenant_id), leased
        self.update = floor.sql(
            f"UPDATE {table(Thread)} SET turn_count = turn_count + {count}, token_count = token_count + %s, "
            f"updated_at = {floor.now} WHERE id = %s AND tenant_id = %s AND deleted_at IS NULL"
            f"{' AND lease_token = %s' if leased else ''} RETURNING turn_count, token_count"
        )
        row = f"({', '.join(['%s'] * len(_INSERTED))})"
        self.insert = floor.sql(f"INSERT INTO {table(Turn)} ({', '.join(_INSERTED)}) VALUES {', '.join([row] * count)}")

    def __call__(self, thread: Thread, texts: Sequence[Text]) -> int:
        """The number of the last turn."""
        floor, key, tokens = self.floor, self.floor.id(thread.pk), sum(text.tokens for text in texts)
        lease = (floor.id(thread.lease_token),) if self.leased and thread.lease_token else ()
        floor.run(floor.begin)
        [(last, total)] = floor.rows(self.update, (tokens, key, self.tenant, *lease))
        through, parameters = total - tokens, []
        for seq, text in enumerate(texts, start=last - len(texts) + 1):
            through += text.tokens
            values = {
                "id": floor.id(new_id()),
                "thread_id": key,
                "seq": seq,
                "role": "user",
                "content": floor.json(text.content),
                "model": "",
                "status": "complete",
                "token_count": text.tokens,
                "tokens_through": through,
                "metadata": floor.json({}),
                "learnable": True,
            }
            parameters += [values.get(column) for column in _INSERTED]
        floor.run(self.insert, parameters)
        floor.run("COMMIT")
        return int(last)
