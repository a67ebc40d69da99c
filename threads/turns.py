"""Turns as they are stored, and as a provider's messages: the TurnBuilder (T1, K21).

Stored content is text, a list of parts, or nothing. Everything here is pure.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice, takewhile
from typing import Any, Protocol, TypeVar
from uuid import UUID

from memorygw.llm.base import MAX_CALL_ID_CHARS, Message
from memorygw.text import one_line
from memorygw.tokens import count_tokens

Content = str | list[dict[str, Any]] | None

PART_TYPES = ("text", "image_url", "input_audio", "file", "refusal")
# What providers charge for a picture or a sound is not in its bytes; a middling flat rate keeps budgets honest (K2).
_PART_TOKENS = {"image_url": 765, "input_audio": 300, "file": 1_000}
INSTRUCTION_ROLES = ("system", "developer")
ROLES = ("user", "assistant", "tool", *INSTRUCTION_ROLES)
MESSAGE_FIELDS = ("role", "content", "refusal", "tool_calls", "tool_call_id")


@dataclass(frozen=True, kw_only=True)
class TurnDraft:
    """A turn before it has a place in a thread. ``client_view``: the message that a client gets instead of it;
    ``hidden``: none at all. ``extras``: what its message has that no rule here is about."""

    role: str
    content: Content
    tool_calls: list[dict[str, Any]] | None = None
    tool_call_id: str | None = None
    model: str = ""
    refusal: str | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    created_at: datetime | None = None
    learnable: bool = True
    teaches_facts: bool = True
    status: str = "complete"
    client_view: Message | None = None
    extras: dict[str, Any] | None = None
    hidden: bool = False
    id: UUID | None = None


class TurnLike(Protocol):
    """What is read from a stored turn; a replaced store gives objects of this shape."""

    seq: int
    role: str
    content: Any
    tool_calls: Any
    tool_call_id: str | None
    refusal: str | None
    extras: Any
    created_at: datetime
    token_count: int


@dataclass(frozen=True)
class Said:
    """What somebody said where there is no thread."""

    role: str
    content: Content
    created_at: datetime


class ThreadLike(Protocol):
    """What is read from a thread."""

    id: UUID
    tenant_id: UUID
    user_id: str
    title: str
    turn_count: int
    token_count: int


T = TypeVar("T", bound=TurnLike)


def client_view_of(turn: Any) -> Message:
    """What a client that keeps the conversation itself has of a turn, stored or not."""
    return turn.client_view or {name: getattr(turn, name) for name in MESSAGE_FIELDS}


def turn_problem(turn: TurnDraft) -> tuple[str, str] | None:
    """The field and the reason why a turn cannot be stored, since a provider would refuse it for ever (K21)."""
    kinds = {"tool_calls": list, "tool_call_id": str, "refusal": str}
    for name, kind in kinds.items():
        if not isinstance(getattr(turn, name), kind | None):
            return name, "Has the wrong type."
    if problem := _calls_problem(turn.tool_calls):
        return "tool_calls", problem
    if turn.tool_calls and turn.role != "assistant":
        return "tool_calls", "Only an assistant turn calls tools."
    if bool(turn.tool_call_id) != (turn.role == "tool"):
        return "tool_call_id", "A tool turn, and no other, names the call that it answers."
    if turn.role == "tool":
        return None if isinstance(turn.content, str) else ("content", "A tool turn needs text, which may be empty.")
    if turn.role == "assistant" and (turn.tool_calls or turn.refusal) and not turn.content:
        return None
    problem = content_problem(turn.content)
    return ("content", problem) if problem else None


def content_problem(content: object) -> str:
    """Why content cannot stand alone, or an empty string: text that is not blank, or parts of known types."""
    if isinstance(content, str):
        return "" if content.strip() else "Needs text."
    if not isinstance(content, list) or not content:
        return "Must be text or a list of parts."
    problems = (_part_problem(part) for part in content)
    if problem := next((problem for problem in problems if problem), ""):
        return problem
    return "" if any(part["type"] != "text" or part["text"].strip() for part in content) else "Needs text."


def _part_problem(part: object) -> str:
    if not isinstance(part, dict) or part.get("type") not in PART_TYPES:
        return f"Every part needs one of the types {', '.join(PART_TYPES)}."
    body = part.get(part["type"])
    if part["type"] in ("text", "refusal"):
        return "" if isinstance(body, str) else "A text part needs its text."
    return "" if isinstance(body, dict) else f"A part of type {part['type']} needs an object of that name."


def _calls_problem(calls: list[Any] | None) -> str:
    ids = [call.get("id") if isinstance(call, dict) else None for call in calls or ()]
    if not all(isinstance(call_id, str) and 0 < len(call_id) <= MAX_CALL_ID_CHARS for call_id in ids) or len(
        set(ids)
    ) < len(ids):
        return f"Every call needs an id of its own, of 1 to {MAX_CALL_ID_CHARS} characters."
    functions = [call.get("function") for call in calls or ()]
    if not all(isinstance(f, dict) and isinstance(f.get("name"), str) for f in functions):
        return "Every call needs a function with a name."
    return "" if all(isinstance(f.get("arguments"), str) for f in functions) else "Arguments are JSON, as text."


def text_of(content: Content) -> str:
    """What a person would read: text parts in their own lines, a placeholder for everything else (row A67)."""
    if not isinstance(content, list):
        return content or ""
    return "\n".join(_text_of_part(part) for part in content)


def _text_of_part(part: dict[str, Any]) -> str:
    kind = str(part.get("type"))
    return str(part[kind]) if kind in ("text", "refusal") else f"[{kind}]"


def content_text(content: Any) -> str:
    """The same of whatever is stored: what is of no known shape as the JSON that it is."""
    try:
        return str(text_of(content))
    except (AttributeError, KeyError, TypeError):
        return json.dumps(content, ensure_ascii=False, indent=2)


def turn_tokens(turn: TurnDraft, model: str) -> int:
    """Tokens of the content and of its calls, without per-message overhead."""
    parts = turn.content if isinstance(turn.content, list) else []
    flat = sum(_PART_TOKENS.get(str(part.get("type")), 0) for part in parts)
    texts = [text_of([part]) for part in parts if part.get("type") in ("text", "refusal")]
    texts += [turn.content] if isinstance(turn.content, str) else []
    texts += [turn.refusal] if turn.refusal else []
    texts += [json.dumps(field, ensure_ascii=False) for field in (turn.tool_calls, turn.extras) if field]
    return flat + sum(count_tokens(text, model) for text in texts)


def to_messages(turns: Sequence[TurnLike]) -> list[tuple[TurnLike, Message]]:
    """Stored turns in the provider's shape, each with the turn it comes from.

    A turn that says nothing, since it was forgotten, is left out. A call and all of its results go together or not at
    all (K3). Results are the tool turns right behind the call, as
    providers demand it; where one is missing, the calls are left out with the results there are, and what was said
    beside them stays.
    """
    messages = []
    open_calls: set[str] = set()
    for index, turn in enumerate(turns):
        if turn.role == "tool":
            if turn.tool_call_id in open_calls:
                open_calls.remove(turn.tool_call_id)
                messages.append((turn, message_of(turn)))
            continue
        calls = {str(call["id"]) for call in turn.tool_calls or ()}
        behind = takewhile(lambda later: later.role == "tool", islice(turns, index + 1, None)) if calls else ()
        open_calls = calls if calls <= {result.tool_call_id for result in behind} else set()
        if open_calls or (not calls and (turn.content or turn.refusal)):
            messages.append((turn, message_of(turn)))
        elif turn.content or turn.refusal:
            messages.append((turn, message_of(turn, without_calls=True)))
    return messages


def message_of(turn: TurnLike | TurnDraft, *, without_calls: bool = False) -> Message:
    """A turn in the provider's shape, as it is alone."""
    optional = {
        "tool_calls": None if without_calls else [_sent_call(call) for call in turn.tool_calls or ()],
        "tool_call_id": turn.tool_call_id,
        "refusal": turn.refusal,
    }
    known = {"role": turn.role, "content": turn.content} | {name: value for name, value in optional.items() if value}
    return {**(turn.extras or {}), **known}


def _sent_call(call: dict[str, Any]) -> dict[str, Any]:
    """A call whose arguments are JSON: what a model got wrong once must not make every later request invalid."""
    try:
        json.loads(call["function"]["arguments"])
    except (ValueError, RecursionError):
        return {**call, "function": {**call["function"], "arguments": "{}"}}
    return call


def open_on_user(turns: list[T]) -> list[T]:
    """Without what stands before the first user turn: providers refuse a window that opens otherwise (W31)."""
    first = next((index for index, turn in enumerate(turns) if turn.role == "user"), len(turns))
    return turns[first:]


def to_transcript(turns: Iterable[TurnLike | Said]) -> str:
    """What user and assistant said, one line a turn with its own time (K7).

    Everything else a model could mistake for the user's words stays out: instructions, tool results, injected memory.
    Line breaks inside a turn become blanks, so that no text can pretend to be another speaker's line.
    """
    spoken = (turn for turn in turns if turn.role in ("user", "assistant"))
    lines = ((turn, one_line(text_of(turn.content)).strip()) for turn in spoken)
    return "\n".join(f"[{turn.created_at.isoformat()}] {turn.role}: {text}" for turn, text in lines if text)
