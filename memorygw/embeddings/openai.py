"""Any server with OpenAI's /embeddings, through the openai package."""

from collections.abc import Sequence
from itertools import chain
from operator import itemgetter
from typing import Any

from openai.types import CreateEmbeddingResponse

from memorygw.conf import conf
from memorygw.exceptions import ModelFailedError
from memorygw.llm.openai import as_model_failures, connect

BATCH_TEXTS = 100


class OpenAIEmbedder:
    """Without a server of its own it asks the language model's, which sees the conversations anyway.

    It tries once: a query falls back to words, and late work comes again.
    """

    def __init__(self) -> None:
        base_url = conf.EMBEDDING_BASE_URL or conf.LLM_BASE_URL
        # A key is for its own server alone.
        shared = conf.LLM_API_KEY if base_url == conf.LLM_BASE_URL else ""
        self._client = connect(
            base_url, conf.EMBEDDING_API_KEY or shared, timeout=conf.EMBEDDING_TIMEOUT_SECONDS, max_retries=0
        )

    def close(self) -> None:
        """Close the connections that are kept open; called when settings change."""
        self._client.close()

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        batches = (texts[start : start + BATCH_TEXTS] for start in range(0, len(texts), BATCH_TEXTS))
        return list(chain.from_iterable(map(self._embed, batches)))

    def _embed(self, texts: Sequence[str]) -> list[list[float]]:
        with as_model_failures():
            # Without encoding_format the package asks for base64, which not every server knows.
            reply = self._client.embeddings.create(
                model=conf.EMBEDDING_MODEL, input=list(texts), encoding_format="float"
            )
        return _vectors(reply, len(texts))


def _vectors(reply: object, count: int) -> list[Any]:
    """The vectors in the order of the texts. The package builds replies without validating them."""
    data = reply.data if isinstance(reply, CreateEmbeddingResponse) else None
    found = [
        (getattr(item, "index", None), getattr(item, "embedding", None))
        for item in (data if isinstance(data, list) else ())
    ]
    indexes = [index for index, _ in found if type(index) is int]
    if len(found) != count or sorted(indexes) != list(range(count)):
        raise ModelFailedError("malformed")
    return [vector for _, vector in sorted(found, key=itemgetter(0))]
