"""A conversation as an operator reads it. Whatever is stored in a turn, it keeps no other from being read."""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from memorygw.text import clean, cut
from threads.models import Thread, Turn
from threads.turns import content_text
from usermemory.models import Fact

TURNS_SHOWN = 50
CHARS_SHOWN = 2_000
FACTS_SHOWN = 200
_CONTENT = ("content", "tool_calls", "tool_call_id", "refusal")
_UNSHOWN = ("client_view", "extras", "metadata")


@dataclass(frozen=True)
class Passage:
    """A text, and when it is long its beginning, too."""

    text: str
    label: str = ""

    @property
    def beginning(self) -> str:
        """Empty when it is short."""
        if len(self.text) <= CHARS_SHOWN:
            return ""
        return cut(self.text[: CHARS_SHOWN + 100], CHARS_SHOWN) or self.text[:CHARS_SHOWN]


@dataclass(frozen=True)
class ShownTurn:
    turn: Turn
    passages: Sequence[Passage] = ()
    facts: Sequence[Fact] = ()


@dataclass(frozen=True)
class TranscriptPage:
    """Turns in their order; ``next``: the number behind which the next page begins, or None. ``facts``: those learned
    from the thread that quote none of its turns."""

    turns: Sequence[ShownTurn]
    next: int | None = None
    facts: Sequence[Fact] = field(default=())


def page_of(thread: Thread, after: str, *, with_content: bool) -> TranscriptPage:
    """The page behind a turn's number; without content only what is known of the turns, and no facts."""
    start = int(after) if after.isascii() and after.isdigit() and len(after) < 10 else 0
    left_out = _UNSHOWN if with_content else (*_UNSHOWN, *_CONTENT)
    found = list(thread.turns.filter(seq__gt=start).defer(*left_out).order_by("seq")[: TURNS_SHOWN + 1])
    turns, following = found[:TURNS_SHOWN], found[TURNS_SHOWN:]
    behind = turns[-1].seq if following else None
    if not with_content:
        return TranscriptPage([ShownTurn(turn) for turn in turns], behind)
    facts = _facts_by_turn(thread, turns)
    shown = [ShownTurn(turn, passages(turn), facts.pop(turn.seq, ())) for turn in turns]
    return TranscriptPage(shown, behind, facts.get(None, ()))


def _facts_by_turn(thread: Thread, turns: Sequence[Turn]) -> dict[int | None, list[Fact]]:
    seqs = [turn.seq for turn in turns]
    facts = Fact.objects.filter(tenant_id=thread.tenant_id, source_thread=thread).shown().in_order()
    found: defaultdict[int | None, list[Fact]] = defaultdict(list)
    for fact in [*facts.filter(source_seq__in=seqs)[:FACTS_SHOWN], *facts.filter(source_seq=None)[:FACTS_SHOWN]]:
        found[fact.source_seq].append(fact)
    return dict(found)


def passages(turn: Turn) -> list[Passage]:
    """What a turn says, in parts: its text, a refusal, the calls it makes."""
    said = [("", content_text(turn.content))] if turn.content else []
    if turn.refusal:
        said.append(("refusal", turn.refusal))
    calls = turn.tool_calls if isinstance(turn.tool_calls, list) else [turn.tool_calls] if turn.tool_calls else []
    # Half a character is no text of a page; JSON may hold one, escaped.
    return [Passage(clean(text), clean(label)) for label, text in [*said, *map(_call, calls)]]


def _call(call: Any) -> tuple[str, str]:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping):
        return "calls", _spelt(call)
    label = f"calls {cut(str(function.get('name')), 100)} ({cut(str(call.get('id')), 100)})"
    return label, _arguments(function.get("arguments"))


def _arguments(arguments: Any) -> str:
    """Indented where they are JSON; as they are where a model got it wrong."""
    try:
        return _spelt(json.loads(arguments))
    except (ValueError, TypeError, RecursionError):
        return arguments if isinstance(arguments, str) else _spelt(arguments)


def _spelt(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2)
