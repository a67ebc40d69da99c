"""Vectors of facts: made late, kept in the fact's own row, gone with it.

Whoever writes a fact's key or value takes its vector away (`NO_VECTOR`) and notes the change in the same transaction.
The late work is that of `memorygw.claims`; a vector is written only onto the words that it was made of.
"""

import logging
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any
from uuid import UUID

import numpy as np
from django.db import transaction
from django.db.models.functions import Now

from memorygw.embeddings.base import Vector, to_bytes
from memorygw.embeddings.calls import embed, embedding_model, query_vector
from memorygw.exceptions import ErasureRunningError, ModelFailedError
from usermemory.models import EmbeddingState, Fact, Owner, UserMemory
from usermemory.recall import Hit, rank

logger = logging.getLogger(__name__)

BATCH_FACTS = 100

_REFUSALS = ("http_400", "http_413", "http_422")
_NO_NUMBERS: Vector = np.empty(0, dtype=np.float32)

NO_VECTOR: dict[str, Any] = {"embedding": None, "embedding_model": ""}
"""What belongs to every change of a fact's key or value."""


def recall_facts(tenant_id: UUID, facts: Sequence[Fact], query: str, *, only_matches: bool) -> list[Hit]:
    """`rank` with the query's vector, if any fact has one to compare; with words alone when the embedder fails (R101).

    It may ask the embedder: never call it inside a transaction.
    """
    model = embedding_model()
    comparable = model and any(fact.embedding_model == model for fact in facts)
    vector = query_vector(query, tenant_id=tenant_id) if comparable else None
    return rank(facts, query, vector, only_matches=only_matches, model=model)


# --- late work


def note_change(tenant_id: UUID, owner: Owner) -> UUID | None:
    """Say, last in the transaction that wrote them, that facts of this owner want vectors; the id to wake on commit.

    None without an embedder; what is written then is found by `mark_outdated`.
    """
    if not embedding_model():
        return None
    state, _ = EmbeddingState.objects.get_or_create(tenant_id=tenant_id, **asdict(owner))
    EmbeddingState.objects.filter(pk=state.pk).update(due_at=Now(), attempts=0)
    state_id: UUID = state.pk
    return state_id


def embed_facts(state_id: UUID) -> None:
    """Give one owner's facts their vectors, if it is due. A failure is tried again, with half as many facts."""
    while embedding_model() and (token := EmbeddingState.objects.claim(state_id)):
        state = EmbeddingState.objects.filter(pk=state_id).first()
        if state is None:
            return
        try:
            _embed_batch(state, state.batch_of(BATCH_FACTS))
        except ModelFailedError as error:
            logger.warning("Embedding %s failed: %s", state_id, error.reason)
            EmbeddingState.objects.fail(state_id, token, error.reason)
        except ErasureRunningError as error:
            EmbeddingState.objects.fail(state_id, token, error.code)
        else:
            _settle(state, token)


def mark_outdated(tenant_id: UUID | None = None) -> int:
    """Make every owner due whose facts have no vector of the current model; how many owners. For one tenant, or all."""
    facts = Fact.objects.without_vector(embedding_model())
    if tenant_id:
        facts = facts.filter(tenant_id=tenant_id)
    owners = facts.values_list("tenant_id", "scope", "owner_id", "user_id").order_by().distinct()
    return sum(_mark(tenant, Owner(*owner)) for tenant, *owner in owners.iterator())


@transaction.atomic
def _mark(tenant_id: UUID, owner: Owner) -> bool:
    """Behind the user's record, as every write of facts: a person who was erased meanwhile leaves no row again."""
    if owner.person:
        UserMemory.objects.select_for_update().filter(tenant_id=tenant_id, user_id=owner.person).first()
    waiting = Fact.objects.of(tenant_id, owner).without_vector(embedding_model())
    return waiting.exists() and bool(note_change(tenant_id, owner))


def _embed_batch(state: EmbeddingState, size: int) -> None:
    """Vectors for the oldest facts that wait. `ModelFailedError`, `ErasureRunningError`."""
    erasing = UserMemory.objects.filter(tenant_id=state.tenant_id, erasing_at__isnull=False)
    if erasing.filter(user_id=state.owner.person).exists():
        raise ErasureRunningError
    model = embedding_model()
    waiting = list(state.facts.without_vector(model).in_order().only("key", "value")[: max(size, 2)])
    facts = waiting[:size]
    try:
        vectors = embed([fact.text for fact in facts], tenant_id=state.tenant_id) or []
    except ModelFailedError as error:
        if size > 1 or len(waiting) == 1 or error.reason not in _REFUSALS:
            raise
        # If the next text is taken, this one is to blame: it must not hold up the others, and is found by its words.
        facts, vectors = waiting, [_NO_NUMBERS, *(embed([waiting[1].text], tenant_id=state.tenant_id) or [])]
    for fact, vector in zip(facts, vectors, strict=True):
        # Each in a transaction of its own: who holds facts and waits for the owner's state could wait for ever.
        unchanged = Fact.objects.filter(pk=fact.pk, key=fact.key, value=fact.value)
        unchanged.update(embedding=to_bytes(vector), embedding_model=model)


@transaction.atomic
def _settle(state: EmbeddingState, token: UUID) -> None:
    """Due again when facts still wait. The lock makes a change that is noted meanwhile seen here, or due later."""
    EmbeddingState.objects.select_for_update().filter(pk=state.pk).first()
    more = state.facts.without_vector(embedding_model()).exists()
    EmbeddingState.objects.settle(state.pk, token, due_at=Now() if more else None)
