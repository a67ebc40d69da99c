"""Items of the OpenAI Agents SDK as turns, and turns as items; pure.

A turn keeps the item that it was made of, so that it comes back as it was; its other fields say as much of it as a
person, a prompt and an extraction can read.
"""

import json
from collections.abc import Iterable
from dataclasses import replace
from itertools import groupby
from operator import attrgetter
from typing import Any, cast

from agents import TResponseInputItem
from agents.models.fake_id import FAKE_RESPONSES_ID

from memorygw.text import clean, cleaned
from threads.turns import INSTRUCTION_ROLES, TurnDraft, TurnLike, text_of, turn_problem

ITEM = "openai_agents_item"
"""Where a turn's metadata has the item that it was made of, as JSON text: that holds U+0000 and lone surrogates."""

MESSAGE_ROLES = ("user", "assistant", *INSTRUCTION_ROLES)


# --- items as turns


def to_draft(item: TResponseInputItem) -> TurnDraft:
    """The turn that stores an item, with as much of it as a person, a prompt and an extraction can read."""
    fields = cast("dict[str, Any]", item)
    kind, role = fields.get("type") or "message", fields.get("role")
    draft = TurnDraft(role="assistant", content=None, metadata={ITEM: json.dumps(item)})
    if kind == "function_call":
        function = {name: fields.get(name) for name in ("name", "arguments")}
        call = {"id": fields.get("call_id"), "type": "function", "function": function}
        draft = replace(draft, tool_calls=[cleaned(call)])
    elif kind == "function_call_output" and isinstance(fields.get("call_id"), str):
        text, call_id = _text(fields.get("output")), clean(fields["call_id"])
        draft = replace(draft, role="tool", content=text, tool_call_id=call_id)
    elif kind == "message" and role in MESSAGE_ROLES:
        draft = replace(draft, role=role, content=_text(fields.get("content")))
    return _placeholder(draft) if turn_problem(draft) else draft


def _placeholder(draft: TurnDraft) -> TurnDraft:
    """The same item in a turn that is always valid, and that nothing is learned from."""
    kind = json.loads(draft.metadata[ITEM]).get("type") or "message"
    role = draft.role if draft.role in MESSAGE_ROLES else "assistant"
    content = clean(f"[{kind}]")
    return replace(draft, role=role, content=content, tool_calls=None, tool_call_id=None, learnable=False)


def _text(content: Any) -> str:
    """What a message or a result says: its texts in their own lines, a placeholder for other parts."""
    if isinstance(content, str):
        return clean(content)
    parts = [part for part in content if isinstance(part, dict)] if isinstance(content, list) else []
    return clean("\n".join(str(part.get("text", part.get("refusal", f"[{part.get('type')}]"))) for part in parts))


def with_calls_at_their_results(drafts: Iterable[TurnDraft]) -> list[TurnDraft]:
    """The same, with the calls of each run of assistant turns in its last one.

    The SDK has an item for each call; a provider, and so `threads.turns.to_messages`, wants all calls of an answer in
    one turn with the results right behind it.
    """
    moved: list[TurnDraft] = []
    for role, group in groupby(drafts, key=attrgetter("role")):
        run = list(group)
        calls = {call["id"]: call for draft in run for call in draft.tool_calls or ()}
        if role == "assistant" and calls:
            *others, last = run
            run = [*(_placeholder(draft) if draft.tool_calls else draft for draft in others)]
            run.append(replace(last, tool_calls=list(calls.values())))
        moved += run
    return moved


def without_stray_results(drafts: Iterable[TurnDraft], stored: Iterable[TurnLike]) -> list[TurnDraft]:
    """The same, with placeholders for results of calls that nobody made, or that have one already."""
    waiting: set[str] = set()
    for turn in stored:
        waiting = (waiting | {call["id"] for call in turn.tool_calls or ()}) - {turn.tool_call_id}
    kept = []
    for draft in drafts:
        stray = draft.role == "tool" and draft.tool_call_id not in waiting
        kept.append(_placeholder(draft) if stray else draft)
        waiting = (waiting | {call["id"] for call in draft.tool_calls or ()}) - {draft.tool_call_id}
    return kept


# --- turns as items


def to_items(turn: Any) -> list[TResponseInputItem]:
    """None of a turn that was forgotten."""
    if getattr(turn, "status", "") == "forgotten":
        return []
    item = _kept_item(turn)
    return [item] if item else cast("list[TResponseInputItem]", list(_other_items(turn)))


def _kept_item(turn: Any) -> TResponseInputItem | None:
    """The item that the turn was made of. Who asks can write metadata, too: a user's turn is no system message."""
    try:
        item = json.loads(turn.metadata[ITEM])
        fits = turn.role in ("assistant", to_draft(item).role)
    except (KeyError, TypeError, ValueError, AttributeError):
        return None
    return cast("TResponseInputItem", item) if fits else None


def _other_items(turn: TurnLike) -> Iterable[dict[str, Any]]:
    """A turn that came in another way. What was said is a message with an id, which the SDK joins with its calls."""
    if turn.role == "tool":
        yield {"type": "function_call_output", "call_id": turn.tool_call_id, "output": turn.content}
    elif turn.role == "assistant":
        said = [{"type": "output_text", "text": text_of(turn.content), "annotations": []}] if turn.content else []
        refused = [{"type": "refusal", "refusal": turn.refusal}] if turn.refusal else []
        message = {"type": "message", "id": FAKE_RESPONSES_ID, "role": turn.role, "status": "completed"}
        if parts := [*said, *refused]:
            yield {**message, "content": parts}
        for call in turn.tool_calls or ():
            yield {"type": "function_call", "call_id": call["id"], **call["function"]}
    else:
        is_text = isinstance(turn.content, str)
        yield {"role": turn.role, "content": turn.content if is_text else [_input_part(part) for part in turn.content]}


def _input_part(part: dict[str, Any]) -> dict[str, Any]:
    kind, body = part["type"], part[part["type"]]
    if kind == "image_url" and body.get("url"):
        return {"type": "input_image", "image_url": body["url"], "detail": body.get("detail", "auto")}
    if kind == "file":
        return {"type": "input_file", **body}
    return part if kind == "input_audio" else {"type": "input_text", "text": text_of([part])}
