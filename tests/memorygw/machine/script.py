"""What the models say: the main one as a rule wants it, the helper so that everything it was told can be told apart."""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

from memorygw.testing import RecordedRequest, ScriptedModelServer
from memorygw.tools import Tool

HOST_TOOL = Tool(
    name="look_up",
    description="Look something up.",
    parameters={"type": "object", "properties": {"what": {"type": "string"}}},
    call=lambda caller, arguments: "found",
)
CLIENT_TOOL = {"type": "function", "function": {"name": "get_time", "parameters": {"type": "object"}}}
REMEMBER, FORGET = "remember_user_fact", "forget_user_fact"

APPROVED, AT_ONCE, CLIENT, FORGETS, REFUSED, UNKNOWN = "approved", "at once", "client", "forgets", "refused", "unknown"
"""Tools by how they run: after an approval, here, at the caller's, here on the facts, never."""
WAITING_TOOLS = {REMEMBER, "get_time"}

MAX_TOOL_STEPS = 3
HELPER_FAULTS = ("http", "malformed", "cut")

_TURNS = "New turns, each with its time"
_USER_LINE = re.compile(r"^\[\S+\] user: (word\d+)$", re.MULTILINE)
_LINE = re.compile(r"^\[\S+\] ", re.MULTILINE)
_NOTE = re.compile(r"^- (word\d+)$", re.MULTILINE)


@dataclass(frozen=True)
class Script:
    """What the main model does in one call: tool steps, each of some calls, then words or a failure."""

    steps: Sequence[Sequence[str]] = ()
    fails: bool = False

    def outcome(self, tool_steps: int) -> str:
        """How a run ends, or that it waits, when it has taken so many tool steps before."""
        for tool_step, calls in enumerate(self.steps, tool_steps):
            if tool_step >= MAX_TOOL_STEPS:
                return "model_failed"
            if {APPROVED, CLIENT} & set(calls):
                return "waits"
        return "model_failed" if self.fails else "answered"


class Models:
    """The scripted models. ``largest_batch`` is the most turns that the helper was ever shown at once."""

    def __init__(self, server: ScriptedModelServer) -> None:
        self.server, self.largest_batch = server, 0
        self._extractions, self._numbers = count(1), count(1)

    def begin(self, helper_fault: str = "") -> None:
        """Forget what was scripted; the helper's next answer has the fault."""
        self.server.reset()
        self.server.defaults["cheap"] = self._help
        match helper_fault:
            case "http":
                self.server.fail(500, model="cheap")
            case "malformed":
                self.server.reply("Nothing.", model="cheap")
            case "cut":
                self.server.reply('{"operations": [', model="cheap", finish_reason="length")

    def play(self, script: Script, a_key: Callable[[], str], model: str = "main") -> None:
        """Script one call. ``a_key`` gives the key for calls that forget one."""
        for step in script.steps:
            calls = [self._call(kind, f"c{index}", a_key) for index, kind in enumerate(step)]
            self.server.reply(None, model=model, tool_calls=calls)
        if script.fails:
            self.server.fail(500, model=model)
        else:
            self.server.reply(f"reply{next(self._numbers)}", model=model)

    def _call(self, kind: str, call_id: str, a_key: Callable[[], str]) -> dict[str, Any]:
        """Ids come again in every step, as some servers give them."""
        number = next(self._numbers)
        name, arguments = {
            APPROVED: (REMEMBER, {"key": f"key{number}", "value": f"value{number}"}),
            AT_ONCE: ("look_up", {"what": "that"}),
            CLIENT: ("get_time", {}),
            FORGETS: (FORGET, {"key": a_key() if kind == FORGETS else ""}),
            REFUSED: ("look_up", {"what": 7}),
            UNKNOWN: ("no_such_tool", {}),
        }[kind]
        return call(name, call_id, arguments)

    def _help(self, request: RecordedRequest) -> Any:
        known, _, turns = request.text.partition(_TURNS)
        self.largest_batch = max(self.largest_batch, len(_LINE.findall(turns)))
        words = _USER_LINE.findall(turns)
        if '"operations"' in request.text:
            # A value names its extraction, so that a turn which is learned from twice shows.
            number = next(self._extractions)
            sets = [{"op": "SET", "key": word, "value": f"{word} by {number}", "evidence": word} for word in words]
            return {"operations": sets}
        if '"summary"' in request.text:
            return {"summary": "Notes.", "facts": [*_NOTE.findall(known), *words]}
        return "A title"


def call(name: str, call_id: str, arguments: Any) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
