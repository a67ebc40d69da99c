"""The one way to an embedder: no connection held meanwhile, and a row that says what it cost."""

import logging
from collections.abc import Sequence
from uuid import UUID

import numpy as np

from memorygw.conf import component, conf
from memorygw.embeddings.base import Embedder, Vector
from memorygw.exceptions import ModelFailedError
from memorygw.llm.calls import recorded
from memorygw.models import ModelCall
from memorygw.text import cut
from memorygw.tokens import count_tokens

logger = logging.getLogger(__name__)

MAX_TEXT_CHARS = 2_000
"""A longer text is embedded by its beginning: embedding models take few tokens, and many refuse more."""


def embedding_model() -> str:
    """The name that vectors of today are kept under; empty: there is no embedder."""
    return str(conf.EMBEDDING_MODEL)[:200]


def embed(texts: Sequence[str], *, tenant_id: UUID) -> list[Vector] | None:
    """One vector per text, of one length, made of finite numbers; None when no embedder is configured.

    Raises `ModelFailedError`. Never call it inside a transaction.
    """
    model = embedding_model()
    if not model or not texts:
        return [] if model else None
    texts = [cut(text, MAX_TEXT_CHARS) for text in texts]
    call = ModelCall(tenant_id=tenant_id, kind=ModelCall.Kind.EMBEDDING, model=model)
    with recorded(call):
        vectors = _checked(_ask(texts), len(texts))
        # An embedder says nothing of what it used.
        call.prompt_tokens = sum(count_tokens(text, model) for text in texts)
    return vectors


def query_vector(text: str, *, tenant_id: UUID) -> Vector | None:
    """The vector of a question; None without an embedder, for a blank text, and when the embedder fails (R101)."""
    if not text.strip():
        return None
    try:
        vectors = embed([text], tenant_id=tenant_id)
    except ModelFailedError as error:
        logger.warning("No vector for a query, words must do: %s", error.reason)
        return None
    return vectors[0] if vectors else None


def _ask(texts: Sequence[str]) -> object:
    embedder: Embedder = component("EMBEDDER")
    try:
        return embedder.embed(texts)
    except ModelFailedError:
        raise
    except Exception as error:
        # A host's part: no answer may fail because an embedder broke its word (R101). The name says no content.
        logger.warning("The embedder raised %s instead of ModelFailedError.", type(error).__name__)
        raise ModelFailedError("embedder_error") from None


def _checked(vectors: object, count: int) -> list[Vector]:
    """The vectors as float32. `ModelFailedError` when they are not so many, of one length, and finite numbers."""
    try:
        numbers = np.asarray(vectors)
    except ValueError:
        raise ModelFailedError("malformed") from None
    if numbers.dtype.kind not in "fiu" or numbers.ndim != 2 or len(numbers) != count or not numbers.size:
        raise ModelFailedError("malformed")
    with np.errstate(over="ignore"):
        matrix = numbers.astype(np.float32)
    if not np.isfinite(matrix).all():
        raise ModelFailedError("malformed")
    return list(matrix)
