"""A run under way, what it is told, and what it tells."""

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal
from uuid import UUID

from memorygw.context import Context, ContextWarning
from memorygw.models import Persona
from memorygw.tools import Toolbox, ToolCaller


@dataclass(frozen=True, kw_only=True)
class Decision:
    """What becomes of one call that a run waits for: an approval, or the result of a tool of the caller's own."""

    tool_call_id: str
    approved: bool | None = None
    reason: str = ""
    content: str | None = None

    def problem(self, kind: str) -> str:
        """Why it decides no call of this kind, or an empty string."""
        if kind == "approval":
            return "" if self.approved is not None and self.content is None else "Needs approved: true or false."
        return "" if (self.content is not None) != (self.approved is False) else "Needs content, or approved: false."


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What an ask gives: thread, run, the answer (None: the run waits), every turn that is new, and the cost.

    ``reply``: what the model's server said last, where that came whole and is at hand; ``finish_reason``: why it ended,
    in its word. A client that keeps the conversation gets an answer without words as the reply alone."""

    thread_id: UUID
    run: Any
    answer: Any
    turns: Sequence[Any]
    usage: dict[str, int]
    warnings: Sequence[ContextWarning]
    reply: dict[str, Any] | None = None
    finish_reason: str = ""


@dataclass(frozen=True)
class ToolEvent:
    """A tool call that has ``started``, is ``finished``, or is ``waiting`` for somebody."""

    tool_call_id: str
    name: str
    status: Literal["started", "finished", "waiting"]


@dataclass(frozen=True)
class Event:
    """What happens in a run. ``value``: the run; a turn that was stored; text; a `ToolEvent`; the `Answer`.

    ``silence`` says that the model says nothing at the moment.
    """

    kind: Literal["run", "turn", "delta", "chunk", "tool", "silence", "done"]
    value: Any


Events = Generator[Event, None, None]
"""What happens in a run, as it happens. Closing it ends the run."""


@dataclass(frozen=True, kw_only=True)
class ClientChat:
    """A run for a client that keeps the conversation itself: its own tool calls complete the run and go to it.

    ``parameters`` of the model are its own, ``instructions`` those that it sent along; without ``remembers`` memory is
    neither read nor written. ``passes_chunks``: it gets the model's chunks as they are.
    """

    parameters: dict[str, Any] = field(default_factory=dict)
    instructions: str = ""
    remembers: bool = True
    passes_chunks: bool = False


@dataclass(kw_only=True)
class LiveRun:
    """A run under way, moved along. ``turns`` are new in this call, ``unsent`` not seen by the model yet.

    ``open_calls`` are the calls of its last answer that lack a result, None: to be read; without a ``context`` one is
    read before the model is asked; ``next_turn_id`` is given to the next turn it stores. ``streams``: the model is to
    say its answer in pieces, of which ``text_so_far`` is not stored yet. ``said`` is what it said beside calls of tools
    that run here: to a client that is one with the answer. Without ``remembers`` memory is neither read nor written.
    """

    caller: ToolCaller
    thread: Any
    run: Any
    persona: Persona | None
    tools: Toolbox
    context: Context | None = None
    turns: list[Any] = field(default_factory=list)
    unsent: list[Any] = field(default_factory=list)
    open_calls: list[dict[str, Any]] | None = None
    decisions: dict[str, Decision] = field(default_factory=dict)
    next_turn_id: UUID | None = None
    streams: bool = False
    text_so_far: str = ""
    said: str = ""
    chat: ClientChat | None = None
    remembers: bool = True
