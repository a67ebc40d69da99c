"""The seam between memorygw and a model: one request type, one result type, one method."""

from dataclasses import dataclass
from typing import Any, Protocol

Message = dict[str, Any]
"""A chat message in OpenAI's shape."""


@dataclass(frozen=True, kw_only=True)
class CompletionRequest:
    """One question to a model. ``kind`` is a `ModelCall.Kind`; ``json_schema`` asks for a reply of that shape."""

    kind: str
    model: str
    messages: list[Message]
    temperature: float | None = None
    max_output_tokens: int | None = None
    json_schema: dict[str, Any] | None = None


@dataclass(frozen=True, kw_only=True)
class Completion:
    """One reply. ``finish_reason`` is OpenAI's (``stop``, ``length``, …); ``model`` is what the server says it used."""

    content: str | None
    model: str
    finish_reason: str = "stop"
    refusal: str | None = None
    prompt_tokens: int = 0
    completion_tokens: int = 0


class LLMClient(Protocol):
    """What ``MEMORYGW_LLM_CLIENT`` names; made once per process with ``MEMORYGW_LLM_OPTIONS``, used by many threads."""

    def complete(self, request: CompletionRequest) -> Completion:
        """Ask and wait. Raises `ModelFailedError` after its own retries; never lets another error out."""
        ...
