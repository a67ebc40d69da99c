"""The one way to a model: no connection held meanwhile, and a row that says what it cost."""

import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import Any, Protocol
from uuid import UUID, uuid4

import regex

from memorygw.conf import component, conf
from memorygw.database import release_connection
from memorygw.exceptions import ModelFailedError, ModelUnavailableError, UsageRefusedError
from memorygw.llm.base import MAX_CALL_ID_CHARS, Completion, CompletionRequest, LLMClient, Piece, Pieces
from memorygw.llm.breaker import guarded
from memorygw.metrics import model_called
from memorygw.models import ModelCall
from memorygw.text import clean, cleaned

_NOT_IN_NAMES = regex.compile(r"[^a-zA-Z0-9_-]")


class UsageGuard(Protocol):
    """What ``MEMORYGW_USAGE_GUARD`` names: a host's say in what helper calls may cost."""

    def allows(self, request: CompletionRequest, *, tenant_id: UUID, thread_id: UUID | None) -> bool:
        """Whether a helper call (extraction, notes, title) may be made now. A refusal is silent; it is asked again."""
        ...


class AllowAll:
    def allows(self, request: CompletionRequest, *, tenant_id: UUID, thread_id: UUID | None) -> bool:
        return True


def call_model(
    request: CompletionRequest, *, tenant_id: UUID, thread_id: UUID | None = None, run_id: UUID | None = None
) -> Completion:
    """Ask the configured client and record the call.

    Raises `ModelFailedError` when the model did not answer, `UsageRefusedError` when the guard says no. Never call it
    inside a transaction.
    """
    guard: UsageGuard = component("USAGE_GUARD")
    if request.kind != ModelCall.Kind.CHAT and not guard.allows(request, tenant_id=tenant_id, thread_id=thread_id):
        raise UsageRefusedError
    client: LLMClient = component("LLM_CLIENT")
    call = ModelCall(
        tenant_id=tenant_id, thread_id=thread_id, run_id=run_id, kind=request.kind, model=request.model[:200]
    )
    with recorded(call):
        completion = client.complete(request)
        call.prompt_tokens = completion.prompt_tokens
        call.completion_tokens = completion.completion_tokens
    return _storable(completion)


def stream_model(request: CompletionRequest, *, tenant_id: UUID, thread_id: UUID, run_id: UUID) -> Pieces:
    """The same for a chat, as `LLMClient.stream` gives it."""
    client: LLMClient = component("LLM_CLIENT")
    call = ModelCall(
        tenant_id=tenant_id, thread_id=thread_id, run_id=run_id, kind=request.kind, model=request.model[:200]
    )
    with recorded(call), closing(client.stream(request)) as items:
        for item in items:
            if isinstance(item, Completion):
                call.prompt_tokens, call.completion_tokens = item.prompt_tokens, item.completion_tokens
                yield _storable(item)
            else:
                yield _storable_piece(item) if item else item


@contextmanager
def recorded(call: ModelCall) -> Iterator[None]:
    """Around a request to a model: no connection is held meanwhile; the row keeps how it ended and how long it took.

    An error that is no `ModelFailedError` leaves no row, and no request to a model that is left alone has one.
    """
    release_connection()
    started = time.monotonic()
    try:
        with guarded(_server_of(call), call.model):
            yield
        call.outcome = ModelCall.OK
    except ModelUnavailableError as error:
        model_called(call.kind, error.reason)
        raise
    except ModelFailedError as error:
        call.outcome = error.reason
        raise
    except GeneratorExit:
        call.outcome = "given_up"
        raise
    finally:
        seconds = time.monotonic() - started
        call.latency_ms = int(seconds * 1000)
        if call.outcome:
            model_called(call.kind, call.outcome, seconds)
            call.save(force_insert=True)


def _server_of(call: ModelCall) -> str:
    """What names a server, where a host's own client may have another."""
    is_embedding = call.kind == ModelCall.Kind.EMBEDDING
    parts = (conf.EMBEDDER, conf.EMBEDDING_BASE_URL) if is_embedding else (conf.LLM_CLIENT, conf.LLM_BASE_URL)
    return " ".join(parts)


def _storable_piece(piece: Piece) -> Piece:
    """A piece whose chunk has the text that is stored: characters are whole, though two chunks may have halves."""
    text, chunk = clean(piece.text), cleaned(piece.chunk)
    for choice in chunk.get("choices") or ():
        if isinstance((choice.get("delta") or {}).get("content"), str):
            choice["delta"]["content"] = text
    return Piece(text, chunk)


def _storable(completion: Completion) -> Completion:
    content, refusal = (None if text is None else clean(text) for text in (completion.content, completion.refusal))
    return replace(
        completion,
        content=content,
        refusal=refusal,
        tool_calls=_storable_calls(completion.tool_calls),
        model=clean(completion.model)[:200],
        raw=cleaned(completion.raw),
    )


def _storable_calls(calls: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Calls as they may be stored and sent back to any provider: each with an id of its own, which not every server
    gives, and a name that is one; a provider refuses a history with another for ever."""
    found: dict[str, dict[str, Any]] = {}
    for call in map(cleaned, calls):
        call_id, function = call["id"], call["function"]
        if not 0 < len(call_id) <= MAX_CALL_ID_CHARS or call_id in found:
            call_id = f"call_{uuid4().hex}"
        name = _NOT_IN_NAMES.sub("_", function["name"])[:64] or "_"
        function = {"name": name, "arguments": function["arguments"] or "{}"}
        found[call_id] = {**call, "id": call_id, "function": function}
    return list(found.values())
