"""Turns as they are stored, and as a provider's messages: the TurnBuilder (T1, K21).

Stored content is text, a list of parts, or nothing. Everything here is pure.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol, TypeVar
from uuid import UUID

from memorygw.llm.base import Message
from memorygw.text import one_line
from memorygw.tokens import count_tokens

Content = str | list[dict[str, Any]] | None

PART_TYPES = ("text", "image_url", "input_audio", "file", "refusal")
# What providers charge for a picture or a sound is not in its bytes; a middling flat rate keeps budgets honest (K2).
_PART_TOKENS = {"image_url": 765, "input_audio": 300, "file": 1_000}
INSTRUCTION_ROLES = ("system", "developer")


@dataclass(frozen=True, kw_only=True)
class TurnDraft:
    """A turn before it has a place in a thread."""

    role: str
    content: Content
    tool_calls: list[dict[str, Any]] | None = None
    tool_call_id: str | None = None
    model: str = ""
    refusal: str | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    created_at: datetime | None = None
    learnable: bool = True


class TurnLike(Protocol):
    """What is read from a stored turn; a replaced store gives objects of this shape."""

    seq: int
    role: str
    content: Any
    tool_calls: Any
    tool_call_id: str | None
    refusal: str | None
    created_at: datetime
    token_count: int


class ThreadLike(Protocol):
    """What is read from a thread."""

    id: UUID
    turn_count: int
    token_count: int


T = TypeVar("T", bound=TurnLike)


def content_problem(content: object) -> str:
    """Why a user turn cannot have this content (K21), or an empty string."""
    if isinstance(content, str):
        return "" if content.strip() else "A user turn needs text."
    if not isinstance(content, list) or not content:
        return "Must be text or a list of parts."
    problems = (_part_problem(part) for part in content)
    return next((problem for problem in problems if problem), "")


def _part_problem(part: object) -> str:
    if not isinstance(part, dict) or part.get("type") not in PART_TYPES:
        return f"Every part needs one of the types {', '.join(PART_TYPES)}."
    body = part.get(part["type"])
    if part["type"] in ("text", "refusal"):
        return "" if isinstance(body, str) else "A text part needs its text."
    return "" if isinstance(body, dict) else f"A part of type {part['type']} needs an object of that name."


def text_of(content: Content) -> str:
    """What a person would read: text parts in their own lines, a placeholder for everything else (row A67)."""
    if not isinstance(content, list):
        return content or ""
    return "\n".join(_text_of_part(part) for part in content)


def _text_of_part(part: dict[str, Any]) -> str:
    kind = str(part.get("type"))
    return str(part[kind]) if kind in ("text", "refusal") else f"[{kind}]"


def turn_tokens(turn: TurnDraft, model: str) -> int:
    """Tokens of the content and of its calls, without per-message overhead."""
    parts = turn.content if isinstance(turn.content, list) else []
    flat = sum(_PART_TOKENS.get(str(part.get("type")), 0) for part in parts)
    texts = [text_of([part]) for part in parts if part.get("type") in ("text", "refusal")]
    texts += [turn.content] if isinstance(turn.content, str) else []
    texts += [turn.refusal] if turn.refusal else []
    texts += [json.dumps(turn.tool_calls, ensure_ascii=False)] if turn.tool_calls else []
    return flat + sum(count_tokens(text, model) for text in texts)


def to_message(turn: TurnLike) -> Message:
    """One stored turn in the provider's shape."""
    message: Message = {"role": turn.role, "content": turn.content}
    if turn.tool_calls:
        message["tool_calls"] = turn.tool_calls
    if turn.tool_call_id:
        message["tool_call_id"] = turn.tool_call_id
    if turn.refusal:
        message["refusal"] = turn.refusal
    return message


def open_on_user(turns: list[T]) -> list[T]:
    """Without what stands before the first user turn: providers refuse a window that opens otherwise (W31)."""
    first = next((index for index, turn in enumerate(turns) if turn.role == "user"), len(turns))
    return turns[first:]


def to_transcript(turns: Iterable[TurnLike]) -> str:
    """What user and assistant said, one line a turn with its own time (K7).

    Everything else a model could mistake for the user's words stays out: instructions, tool results, injected memory.
    Line breaks inside a turn become blanks, so that no text can pretend to be another speaker's line.
    """
    spoken = (turn for turn in turns if turn.role in ("user", "assistant"))
    lines = ((turn, one_line(text_of(turn.content)).strip()) for turn in spoken)
    return "\n".join(f"[{turn.created_at.isoformat()}] {turn.role}: {text}" for turn, text in lines if text)
