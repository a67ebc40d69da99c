"""A model for a machine without one: deterministic, no network, and it says what it is.

It learns by a few plain patterns, which is enough to see memorygw at work. It is used only when it is chosen, or in
development when nothing is configured; never in place of a model that fails.
"""

import json
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import regex

from memorygw.llm.base import Completion, CompletionRequest, Piece, Pieces
from memorygw.models import ModelCall

_SPOKEN = regex.compile(r"^\[[^\]]+\] (?P<role>user|assistant): (?P<text>.*)$", regex.MULTILINE)
_END = r"(?=[.,!?;]|\s+(?:and|but|und|aber)\s|$)"
_PATTERNS = [
    ("name", r"\b(?:my name is|mein Name ist|ich heiße) (?P<value>[\p{L}'’ -]+?)" + _END),
    ("home", r"\b(?:I live in|ich wohne in) (?P<value>.+?)" + _END),
    ("work", r"\b(?:I work (?:as|for|at)|ich arbeite (?:als|für|bei)) (?P<value>.+?)" + _END),
    ("way to work", r"\bI (?P<value>cycle|walk|run|drive|take the [\p{L} ]+?) to work" + _END),
    ("way to work", r"\bfahre (?P<value>mit [\p{L} ]+?) zur Arbeit" + _END),
    ("likes", r"\b(?:I (?:like|love|enjoy)|ich mag) (?P<value>.+?)" + _END),
    ("allergy", r"\b(?:I(?: am|'m|’m) allergic to|allergisch gegen) (?P<value>.+?)" + _END),
    ("", r"\bmy favou?rite (?P<key>[\p{L} ]+?) is (?P<value>.+?)" + _END),
    ("language", r"\bplease (?:answer|speak|write)(?: to me)? in (?P<value>\p{L}+)" + _END),
]
_ASKED_TO_REMEMBER = regex.compile(
    r"\bremember (?:that )?my (?P<key>[\p{L} ]+?) is (?P<value>.+?)" + _END, regex.IGNORECASE
)
_FORGET = regex.compile(r"\bforget (?:about )?my (?P<key>[\p{L} ]+?)" + _END, regex.IGNORECASE)
_REMARK = "(Offline model: no language model is configured.)"
_FACT_LINES = regex.compile(r"<user_memory>\n[^\n]*\n(?P<lines>.*?)\n</user_memory>", regex.DOTALL)


class OfflineClient:
    """An `LLMClient` that needs nothing. Token counts are counts of words."""

    def complete(self, request: CompletionRequest) -> Completion:
        last = str(request.messages[-1]["content"])
        if request.kind == ModelCall.Kind.MEMORY_USER:
            content = json.dumps({"operations": list(_operations(last))}, ensure_ascii=False)
        elif request.kind == ModelCall.Kind.MEMORY_WORKING:
            content = json.dumps(_notes(last), ensure_ascii=False)
        elif request.kind == ModelCall.Kind.THREAD_TITLE:
            content = " ".join(" ".join(_said(last, "user")).split()[:6])
        elif call := _call(request):
            return Completion(content=None, model="offline", finish_reason="tool_calls", tool_calls=[call])
        else:
            content = _answer(request)
        sent = sum(len(str(message["content"]).split()) for message in request.messages)
        return Completion(content=content, model="offline", prompt_tokens=sent, completion_tokens=len(content.split()))

    def stream(self, request: CompletionRequest) -> Pieces:
        """Word by word."""
        completion = self.complete(request)
        yield from map(Piece, regex.findall(r"\S+\s*", completion.content or ""))
        yield completion

    def list_models(self) -> list[dict[str, Any]]:
        return [{"id": "offline", "object": "model", "created": 0, "owned_by": "memorygw"}]


def _said(prompt: str, role: str) -> list[str]:
    return [match["text"] for match in _SPOKEN.finditer(prompt) if match["role"] == role]


def _operations(prompt: str) -> Iterator[dict[str, str]]:
    for text in _said(prompt, "user"):
        yield from _stated(text)
        for match in _FORGET.finditer(text):
            yield {"op": "DELETE", "key": match["key"].strip().lower(), "value": ""}


def _stated(text: str) -> Iterator[dict[str, str]]:
    for key, pattern in _PATTERNS:
        for match in regex.finditer(pattern, text, regex.IGNORECASE):
            named = match["key"].strip().lower() if not key else ""
            fact = {"key": key or f"favourite {named}", "value": match["value"].strip()}
            yield {"op": "SET", **fact, "evidence": match[0]}


def _notes(prompt: str) -> dict[str, object]:
    said = _said(prompt, "user")
    return {"summary": f"The user wrote {len(said)} more messages.", "facts": [text[:80] for text in said[-3:]]}


def _call(request: CompletionRequest) -> dict[str, Any] | None:
    """A call of the remember tool, when it is offered and the user has just said "remember that my … is …"."""
    names = [tool["function"]["name"] for tool in request.tools if request.tool_choice != "none"]
    name = next((name for name in names if name.endswith("remember_user_fact")), None)
    last = request.messages[-1]
    match = _ASKED_TO_REMEMBER.search(str(last["content"])) if name and last["role"] == "user" else None
    if match is None:
        return None
    arguments = json.dumps(match.groupdict(), ensure_ascii=False)
    return {"id": f"call_{uuid4().hex}", "type": "function", "function": {"name": name, "arguments": arguments}}


def _answer(request: CompletionRequest) -> str:
    """What it reads in the question, and what memory told it; of a question without a fact, the latter alone."""
    last = request.messages[-1]
    said = str(last["content"]) if last["role"] == "user" else ""
    stated = [f"{fact['key']}: {fact['value']}" for fact in _stated(said)]
    system = next((str(m["content"]) for m in request.messages if m["role"] == "system"), "")
    block = _FACT_LINES.search(system)
    known = block["lines"].splitlines() if block else []
    parts = [
        f"I read this in what you say: {'; '.join(stated)}." if stated else "",
        f"I remember this about you: {'; '.join(known)}." if known else "",
        "" if stated or known else "I know nothing about you yet.",
        _REMARK,
    ]
    return " ".join(part for part in parts if part)
