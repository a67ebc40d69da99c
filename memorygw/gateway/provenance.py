"""Where memories come from, and which answers had them: many at once, for pages that show them to a person."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from memorygw.conf import component
from memorygw.gateway.arguments import TenantLike, UserLike, external_user_id, tenant_id
from memorygw.ids import uuid_or_none

MAX_FACTS_LISTED = 50
"""As many facts of one answer are looked up."""


@dataclass(frozen=True)
class MemorySource:
    """The thread that a memory comes from, the turn that was quoted for it, and for one that waits the value it would
    change; None where there is none, or none any more."""

    thread: Any = None
    turn: Any = None
    current_value: str | None = None


@dataclass(frozen=True)
class PastAnswer:
    """A run with its ``thread``, and those of the facts in its prompt that were about the user: as they are now.

    ``gone``: how many are not remembered any more. ``unlisted``: how many were not looked up, where there were many.
    """

    run: Any
    facts: Sequence[Any]
    gone: int
    unlisted: int


def get_sources_of(tenant: TenantLike, user_id: UserLike, memories: Sequence[Any]) -> dict[UUID, MemorySource]:
    """`get_memory_sources` for a page of the user's memories, by their ids; the number of reads is always the same."""
    tenant_pk, user, store = tenant_id(tenant), external_user_id(user_id), component("THREAD_STORE")
    thread_ids = {memory.source_thread_id for memory in memories if memory.source_thread_id}
    threads = {thread.id: thread for thread in store.find_threads(tenant_pk, thread_ids, user_id=user)}
    places = {memory.id: (memory.source_thread_id, memory.source_seq) for memory in memories}
    quoted = {place for place in places.values() if place[0] in threads and place[1]}
    turns = {(turn.thread_id, turn.seq): turn for turn in store.find_turns(tenant_pk, quoted, user_id=user)}
    current = component("USER_MEMORY_STORE").current_values(memories)
    return {pk: MemorySource(threads.get(place[0]), turns.get(place), current.get(pk)) for pk, place in places.items()}


def list_answers(tenant: TenantLike, user_id: UserLike, *, limit: int = 20) -> list[PastAnswer]:
    """The user's newest runs whose prompts had facts about them, newest first."""
    tenant_pk, user = tenant_id(tenant), external_user_id(user_id)
    runs = component("THREAD_STORE").recent_runs(tenant_pk, user, limit=limit)
    ids = {pk for run in runs for pk in map(uuid_or_none, run.memories[:MAX_FACTS_LISTED]) if pk}
    facts = {str(fact.id): fact for fact in component("USER_MEMORY_STORE").find_used(tenant_pk, user, ids)}
    answers = [_answer(run, facts) for run in runs]
    return [answer for answer in answers if answer.facts or answer.gone]


def _answer(run: Any, facts: Mapping[str, Any]) -> PastAnswer:
    listed = [facts.get(pk) for pk in run.memories[:MAX_FACTS_LISTED]]
    # What a persona knows is nobody's own, and not theirs to see.
    own = [fact for fact in listed if fact and fact.scope != "persona"]
    return PastAnswer(run, own, listed.count(None), len(run.memories) - len(listed))
