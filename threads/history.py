"""Which conversation a client goes on with (K14): a hash that follows what the client has seen of it.

A client that resends the whole conversation names no thread, but its messages do. Each message is chained to those
before it, so one indexed look-up finds the thread, however long it is.
"""

import hashlib
import json
from typing import Any
from uuid import UUID

from memorygw.llm.base import Message


def begin(tenant_id: UUID, user_id: str) -> UUID:
    """The history of a user who has said nothing: of one user alone, so that none finds another's thread."""
    return _digest([str(tenant_id), user_id])


def follow(history: UUID, message: Message) -> UUID:
    """The history with this message behind it."""
    return _digest([history.hex, _canonical(message)])


def _digest(value: Any) -> UUID:
    return UUID(bytes=hashlib.sha256(json.dumps(value, sort_keys=True).encode()).digest()[:16])


def _canonical(message: Message) -> list[Any]:
    """What stays of a message when a client sends it back in its own spelling."""
    return [
        message["role"],
        _content(message.get("content") or message.get("refusal")),
        [[call["id"], call["function"]["name"], _json(call["function"]["arguments"])] for call in _calls(message)],
        message.get("tool_call_id") or "",
    ]


def _content(content: Any) -> Any:
    """Text however it is wrapped, without outer blanks; parts as they are."""
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content or []
    if all(part.get("type") in ("text", "refusal") for part in parts):
        return "\n".join(str(part[part["type"]]) for part in parts).strip()
    return parts


def _calls(message: Message) -> list[dict[str, Any]]:
    return message.get("tool_calls") or []


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
