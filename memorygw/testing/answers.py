"""What a scripted model server gets and gives: requests, and answers as bytes."""

import json
import math
import struct
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any, TypedDict
from uuid import uuid4

CHAT, EMBEDDINGS, MODELS = "POST /v1/chat/completions", "POST /v1/embeddings", "GET /v1/models"
_STREAMED_PIECES = 4


@dataclass(frozen=True)
class RecordedRequest:
    """A request as it arrived: ``headers`` have lower-case names, ``body`` is {} when it was no JSON object."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]
    method: str = "POST"

    @property
    def route(self) -> str:
        """Method and path without the query string, e.g. "POST /v1/embeddings"."""
        return f"{self.method} {self.path.partition('?')[0]}"

    @property
    def model(self) -> str:
        return str(self.body.get("model", ""))

    @property
    def messages(self) -> list[dict[str, Any]]:
        return list(self.body.get("messages", []))

    @property
    def system(self) -> str:
        """The text of all system and developer messages, joined by newlines."""
        return "\n".join(self._texts("system", "developer"))

    @property
    def last_user(self) -> str:
        """The text of the last user message, "" without one."""
        return (self._texts("user") or [""])[-1]

    @property
    def text(self) -> str:
        """The text of all messages, joined by newlines."""
        return "\n".join(self._texts())

    def _texts(self, *roles: str) -> list[str]:
        return [_text(message.get("content")) for message in self.messages if not roles or message.get("role") in roles]


Piece = str | bytes | float | dict[str, Any]
Content = str | dict[str, Any] | list[Any] | None
Reply = Content | Callable[[RecordedRequest], Content]


class ReplyOptions(TypedDict, total=False):
    """Defaults: no delay, 10 and 5 tokens, "stop" (or "tool_calls" when there are some), no refusal, no tool calls."""

    delay_seconds: float
    prompt_tokens: int
    completion_tokens: int
    finish_reason: str
    refusal: str | None
    tool_calls: Sequence[dict[str, Any]]


@dataclass(frozen=True)
class Answer:
    """``sent_bytes``: how much of the body is sent before the connection is closed, None for a whole answer.
    ``pieces`` are sent instead of a body, with pauses."""

    body: bytes
    content_type: str = "application/json"
    status: int = 200
    headers: Mapping[str, str] | None = None
    delay_seconds: float = 0
    sent_bytes: int | None = None
    pieces: Sequence[bytes | float] | None = None


Step = Callable[[RecordedRequest], Answer]


def concerns(model: str | None, request: RecordedRequest) -> bool:
    """Whether what is meant for the model, None for any, is meant for this request; "any" is about chats alone."""
    return request.route == CHAT if model is None else model == request.model and request.route in (CHAT, EMBEDDINGS)


def reply(content: Reply, options: ReplyOptions, request: RecordedRequest) -> Answer:
    completion = _completion(content(request) if callable(content) else content, options, request.model)
    whole = Answer(to_json(completion), delay_seconds=options.get("delay_seconds", 0))
    if not request.body.get("stream"):
        return whole
    usage_wanted = bool((request.body.get("stream_options") or {}).get("include_usage"))
    events = [*map(to_json, _chunks(completion, usage_wanted)), b"[DONE]"]
    return replace(whole, body=b"".join(b"data: %s\n\n" % event for event in events), content_type="text/event-stream")


def refusal_of(messages: Sequence[Any]) -> str:
    """Why a strict provider refuses these messages; empty when it takes them."""
    open_calls: set[str] = set()
    for message in messages:
        role, content = message.get("role"), message.get("content")
        if role == "tool":
            if message.get("tool_call_id") not in open_calls:
                return "A tool's result answers no call."
            open_calls.remove(message["tool_call_id"])
            continue
        if open_calls:
            return "A call of a tool has no result."
        open_calls = {call["id"] for call in message.get("tool_calls") or ()}
        said = content.strip() if isinstance(content, str) else content
        if role in ("user", "assistant") and not (said or open_calls or message.get("refusal")):
            return f"A message of role {role} is empty."
    return "A call of a tool has no result." if open_calls else ""


def stream(pieces: Sequence[Piece], model: str, *, ends: bool) -> Answer:
    """A stream of these pieces."""
    chunk = {"id": f"chatcmpl-{uuid4().hex}", "object": "chat.completion.chunk", "created": 0, "model": model}

    def choice(delta: dict[str, Any], finish_reason: str | None = None) -> dict[str, Any]:
        return chunk | {"choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}]}

    def sent(piece: Piece) -> bytes | float:
        if isinstance(piece, bytes | int | float):
            return piece
        return b"data: %s\n\n" % to_json(choice({"content": piece}) if isinstance(piece, str) else chunk | piece)

    last = [sent(choice({}, "stop")), b"data: [DONE]\n\n"] if ends else []
    return Answer(b"", "text/event-stream", pieces=[*map(sent, pieces), *last])


def _completion(content: Content, options: ReplyOptions, model: str) -> dict[str, Any]:
    text = json.dumps(content, ensure_ascii=False) if isinstance(content, dict | list) else content
    calls = {"tool_calls": options["tool_calls"]} if options.get("tool_calls") else {}
    message = {"role": "assistant", "content": text, "refusal": options.get("refusal"), **calls}
    reason = options.get("finish_reason", "tool_calls" if calls else "stop")
    return {
        "id": f"chatcmpl-{uuid4().hex}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": model,
        "choices": [{"index": 0, "message": message, "finish_reason": reason}],
        "usage": usage(options.get("prompt_tokens", 10), completion_tokens=options.get("completion_tokens", 5)),
    }


def _chunks(completion: dict[str, Any], usage_wanted: bool) -> Iterator[dict[str, Any]]:
    """The same completion as the chunks of a stream."""
    chunk = completion | {"object": "chat.completion.chunk"}
    (choice,), usage = chunk.pop("choices"), chunk.pop("usage")
    for delta in _deltas(choice["message"]):
        yield chunk | {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    yield chunk | {"choices": [{"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}]}
    if usage_wanted:
        yield chunk | {"choices": [], "usage": usage}


def _deltas(message: dict[str, Any]) -> Iterator[dict[str, Any]]:
    content = message["content"] or ""
    yield {"role": message["role"], "content": message["content"] and "", "refusal": message["refusal"]}
    size = math.ceil(len(content) / _STREAMED_PIECES) or 1
    for start in range(0, len(content), size):
        yield {"content": content[start : start + size]}
    for index, call in enumerate(message.get("tool_calls", ())):
        yield {"tool_calls": [{"index": index, **call}]}


def cut_off(after_bytes: int | None, request: RecordedRequest) -> Answer:
    if after_bytes is None:
        raise ConnectionAbortedError
    return replace(reply("ok", {}, request), sent_bytes=after_bytes)


def vector(value: Any) -> list[float]:
    """A unit vector of 8 numbers, always the same for the same input."""
    numbers = struct.unpack(">8i", sha256(to_json(value)).digest())
    return [number / math.hypot(*numbers) for number in numbers]


def not_found(request: RecordedRequest) -> Answer:
    return error_answer(404, message=f"Invalid URL ({request.route})")


def error_answer(status: int, **error: Any) -> Answer:
    kind = "server_error" if status >= 500 else "invalid_request_error"
    usual = {"message": f"Scripted failure {status}", "type": kind, "param": None, "code": None}
    return Answer(to_json({"error": usual | error}), status=status)


def usage(prompt_tokens: int, **others: int) -> dict[str, int]:
    return {"prompt_tokens": prompt_tokens, **others, "total_tokens": prompt_tokens + sum(others.values())}


def _text(content: str | list[dict[str, Any]] | None) -> str:
    return "".join(part.get("text", "") for part in content) if isinstance(content, list) else content or ""


def to_json(value: Any) -> bytes:
    return json.dumps(value).encode()


def json_object(raw: bytes) -> dict[str, Any]:
    try:
        value = json.loads(raw)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
