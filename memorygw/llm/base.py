"""The seam between memorygw and a model: one request type, one result type, one method."""

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

Message = dict[str, Any]
"""A chat message in OpenAI's shape."""

MAX_CALL_ID_CHARS = 200


@dataclass(frozen=True, kw_only=True)
class CompletionRequest:
    """One question to a model. ``kind`` is a `ModelCall.Kind`; ``json_schema`` asks for a reply of that shape.

    ``tools`` are function schemas, ``tool_choice`` is OpenAI's. A server that knows no tools is asked without them,
    unless ``needs_tools``. ``extra`` is a caller's own, and sent as it is, before all of that.
    """

    kind: str
    model: str
    messages: list[Message]
    temperature: float | None = None
    max_output_tokens: int | None = None
    json_schema: dict[str, Any] | None = None
    tools: Sequence[dict[str, Any]] = ()
    tool_choice: str | None = None
    needs_tools: bool = False
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Completion:
    """One reply. ``finish_reason`` is OpenAI's (``stop``, ``length``, …); ``model`` is what the server says it used.

    ``tool_calls`` are OpenAI's: each with an id of its own and a function with a name and arguments as JSON text.
    ``raw`` is the reply as it came, where it came whole.
    """

    content: str | None
    model: str
    finish_reason: str = "stop"
    refusal: str | None = None
    tool_calls: Sequence[dict[str, Any]] = ()
    prompt_tokens: int = 0
    completion_tokens: int = 0
    raw: dict[str, Any] | None = None


@dataclass(frozen=True)
class Piece:
    """A part of a reply: the text it adds, and the chunk of OpenAI's that it came in."""

    text: str
    chunk: dict[str, Any] = field(default_factory=dict)


Pieces = Generator[Piece | Completion | None, None, None]


class LLMClient(Protocol):
    """What ``MEMORYGW_LLM_CLIENT`` names; made once per process with ``MEMORYGW_LLM_OPTIONS``, used by many threads."""

    def complete(self, request: CompletionRequest) -> Completion:
        """Ask and wait. Raises `ModelFailedError` after its own retries; never lets another error out."""
        ...

    def stream(self, request: CompletionRequest) -> Pieces:
        """Ask, and give the pieces as they come, the whole completion last; None now and then while nothing comes.

        Raises as `complete`, also in the middle. Closing the iterator gives the request up.
        """
        ...

    def list_models(self) -> list[dict[str, Any]]:
        """The models there are, in OpenAI's shape. Raises as `complete`."""
        ...
