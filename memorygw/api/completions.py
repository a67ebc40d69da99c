"""Runs in the shape of OpenAI's chat completions: whole, or as chunks. Pure."""

import time
from collections.abc import Iterator
from typing import Any

from memorygw.gateway import Answer, Event
from threads.turns import client_view_of


def completion(answer: Answer) -> dict[str, Any]:
    """A chat completion: the upstream's reply with everything that it had, but for what a client must not see or has to
    see as one: calls of tools that ran here, text of several steps, the cost of all of them."""
    raw = answer.reply or _plain(answer)
    [choice, *_] = raw["choices"]
    message = {name: value for name, value in choice["message"].items() if name != "tool_calls"}
    seen = client_view_of(answer.answer) if answer.answer else message
    calls = seen.get("tool_calls")
    message |= {"content": seen.get("content"), **({"tool_calls": calls} if calls else {})}
    reason = "tool_calls" if calls else choice.get("finish_reason") or "stop"
    return {**raw, "choices": [{**choice, "message": message, "finish_reason": reason}], "usage": _usage(raw, answer)}


_HEAD = ("id", "object", "created", "model", "system_fingerprint", "service_tier")


class Chunks:
    """The chunks of a run as one stream: text as it comes, calls when it is known whose they are, one end."""

    def __init__(self, *, usage_wanted: bool) -> None:
        self._usage_wanted = usage_wanted
        self._head: dict[str, Any] = {}
        self._role_sent = False
        self._usage: dict[str, Any] = {}

    def of(self, event: Event) -> Iterator[dict[str, Any]]:
        """What a client gets to see of an event."""
        if event.kind == "chunk":
            yield from self._passed(event.value)
        elif event.kind == "done":
            yield from self._end(event.value)

    def _passed(self, chunk: dict[str, Any]) -> Iterator[dict[str, Any]]:
        self._usage = chunk.get("usage") or self._usage
        choices = chunk.get("choices")
        if not choices:
            return
        # One reply to the client, however many the model gave.
        self._head = self._head or {name: chunk[name] for name in _HEAD if name in chunk}
        delta = {name: value for name, value in (choices[0].get("delta") or {}).items() if name != "tool_calls"}
        if self._role_sent:
            delta.pop("role", None)
        if delta and any(value is not None for value in delta.values()):
            self._role_sent = True
            passed = {name: value for name, value in chunk.items() if name != "usage"}
            yield {**passed, **self._head, "choices": [{**choices[0], "delta": delta, "finish_reason": None}]}

    def _end(self, answer: Answer) -> Iterator[dict[str, Any]]:
        whole = completion(answer)
        head = self._head or {name: whole[name] for name in ("id", "created", "model")}
        head = {**head, "object": "chat.completion.chunk"}
        message, reason = whole["choices"][0]["message"], whole["choices"][0]["finish_reason"]
        if not self._role_sent:
            yield {**head, "choices": [_choice({"role": "assistant", "content": message["content"]})]}
        for index, call in enumerate(message.get("tool_calls", ())):
            yield {**head, "choices": [_choice({"tool_calls": [{**call, "index": index}]})]}
        yield {**head, "choices": [_choice({}, reason)]}
        if self._usage_wanted and self._usage:
            yield {**head, "choices": [], "usage": self._usage | whole["usage"]}


def _choice(delta: dict[str, Any], finish_reason: str | None = None) -> dict[str, Any]:
    return {"index": 0, "delta": delta, "finish_reason": finish_reason}


def _plain(answer: Answer) -> dict[str, Any]:
    """For an answer whose reply is not at hand: it was given before, or came in pieces."""
    turn = answer.answer
    message = {"role": "assistant", "refusal": turn.refusal if turn else None}
    return {
        "id": f"chatcmpl-{(turn or answer.run).id.hex}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": (turn or answer.run).model,
        "choices": [{"index": 0, "message": message, "finish_reason": answer.finish_reason}],
    }


def _usage(raw: dict[str, Any], answer: Answer) -> dict[str, Any]:
    prompt, answered = answer.usage.get("prompt_tokens", 0), answer.usage.get("completion_tokens", 0)
    own = raw.get("usage") or {}
    return {**own, "prompt_tokens": prompt, "completion_tokens": answered, "total_tokens": prompt + answered}
