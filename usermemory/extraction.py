"""What a model proposes to remember: its reply read as operations (K6), its quotes held against the turns (S41)."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from memorygw.replies import NumberText, json_values
from memorygw.text import clean, words
from threads.turns import TurnLike, text_of

SCHEMA: dict[str, Any] = {
    "name": "memory_operations",
    "strict": True,
    "schema": {
        "type": "object",
        "properties": {
            "operations": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {
                        "op": {"type": "string", "enum": ["SET", "DELETE"]},
                        "key": {"type": "string"},
                        "value": {"type": "string"},
                        "evidence": {
                            "type": "string",
                            "description": "An exact quote of the user's words, or an empty text.",
                        },
                    },
                    "required": ["op", "key", "value", "evidence"],
                    "additionalProperties": False,
                },
            }
        },
        "required": ["operations"],
        "additionalProperties": False,
    },
}

DEFAULT_CONFIDENCE = 0.8
_DEEPEST = 5


@dataclass(frozen=True)
class Operation:
    """SET or DELETE of one key, trimmed and cleaned; ``value`` is empty for a DELETE, the key for a free text.

    ``evidence`` is a quote, empty when there is none; ``source_seq`` the user's turn it was found in.
    """

    op: str
    key: str
    value: str = ""
    confidence: float = DEFAULT_CONFIDENCE
    evidence: str = ""
    source_seq: int | None = None


@dataclass(frozen=True)
class Proposal:
    """The operations in the order of the reply, and why the other items were skipped (codes, never content)."""

    operations: list[Operation]
    skipped: list[str]


def parse(reply: str) -> Proposal | None:
    """The last valid list of operations in the reply; None when there is none, which is a failure, unlike an empty one.

    A bad item is skipped alone.
    """
    lists = [found for value in json_values(reply) for found in _operation_lists(value)]
    if not lists:
        return None
    return _proposal(_operation(item) for item in lists[-1])


def parse_texts(reply: str) -> Proposal:
    """The free texts of the last array in the reply; none is no failure, whatever else the reply is (A69–A73)."""
    lists = [value for value in json_values(reply) if isinstance(value, list)]
    items = [_text(item) for item in (lists[-1] if lists else ()) if not isinstance(item, NumberText)]
    return Proposal([Operation("SET", "", text) for text in items if text], [])


def check_evidence(proposal: Proposal, turns: Iterable[TurnLike]) -> Proposal:
    """The proposal without the operations whose quote no user turn of these holds (S41).

    An operation that quotes the user comes from the newest turn with the quote; one without a quote stays as it is.
    """
    said = {turn.seq: words(text_of(turn.content)) for turn in turns if turn.role == "user"}
    checked = _proposal(_sourced(operation, said) for operation in proposal.operations)
    return replace(checked, skipped=proposal.skipped + checked.skipped)


def _proposal(items: Iterable[Operation | str]) -> Proposal:
    proposal = Proposal([], [])
    for item in items:
        if isinstance(item, Operation):
            proposal.operations.append(item)
        else:
            proposal.skipped.append(item)
    return proposal


def _operation_lists(value: Any, level: int = 0) -> Iterator[list[Any]]:
    """Lists of operations at any level: under the name "operations", or an array that is empty or holds one."""
    if isinstance(value, dict):
        named = value.get("operations")
        if isinstance(named, list):
            yield named
        elif level < _DEEPEST:
            for inner in value.values():
                if isinstance(inner, dict) or inner:
                    yield from _operation_lists(inner, level + 1)
    elif isinstance(value, list) and (not value or any(isinstance(item, dict) and "op" in item for item in value)):
        yield value


def _operation(item: Any) -> Operation | str:
    """An operation, or the code of why there is none in this item."""
    if not isinstance(item, dict):
        return "not_an_object"
    op = item.get("op")
    kind = op.strip().upper() if isinstance(op, str) else ""
    if kind not in ("SET", "DELETE"):
        return "unknown_operation"
    key, evidence = _text(item.get("key")), _text(item.get("evidence"))
    if not key:
        return "no_key"
    if kind == "DELETE":
        return Operation(kind, key, evidence=evidence)
    value = _value(item.get("value"))
    return Operation(kind, key, value, _confidence(item.get("confidence")), evidence) if value else "no_value"


def _sourced(operation: Operation, said: Mapping[int, str]) -> Operation | str:
    """The operation with the turn it quotes, or the code of why it is refused."""
    if not operation.evidence:
        return operation
    quote = words(operation.evidence)
    # One letter is in every text, and proves nothing.
    newest = max((seq for seq, text in said.items() if len(quote) > 1 and quote in text), default=None)
    return replace(operation, source_seq=newest) if newest else "evidence_not_user_turn"


def _value(value: Any) -> str:
    """Text as it is, a number or truth value as its JSON text (numbers were read as text), nothing else."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return _text(value)


def _text(value: Any) -> str:
    return clean(value).strip() if isinstance(value, str) else ""


def _confidence(value: Any) -> float:
    try:
        confidence = float(value)
    except (TypeError, ValueError):
        return DEFAULT_CONFIDENCE
    return min(max(confidence, 0.0), 1.0) if confidence == confidence else DEFAULT_CONFIDENCE
