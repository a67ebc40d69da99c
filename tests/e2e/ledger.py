"""A model that keeps books: from what is stored one can tell which of its calls took effect, and what they had read."""

import json
import re
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Condition
from typing import Any
from uuid import uuid4

from memorygw.testing import RecordedRequest, ScriptedModelServer
from tests.e2e.conftest import Caller, Gateway

Rows = list[dict[str, Any]]

TURN = re.compile(r"turn-[0-9a-f]{32}")
FACT = re.compile(r"fact \d+ of call (\d+)")
SUMMARY = re.compile(r"the notes of call (\d+)")
LONGEST_HOLD_SECONDS = 60

# Every answer is learned from at once. Short calls, so that the claims of the dead run out soon.
EAGER = {
    "MEMORYGW_EXTRACT_EVERY_TURNS": "2",
    "MEMORYGW_UPDATE_EVERY_TURNS": "2",
    "MEMORYGW_LLM_TIMEOUT_SECONDS": "3",
    "MEMORYGW_MAX_FACTS": "0",
}


def new_turn(_: object = None) -> str:
    """What a user or the model says; no other turn says the same."""
    return f"turn-{uuid4().hex}"


@dataclass(frozen=True)
class Talk:
    """A user with one thread."""

    user: str
    thread_id: str


class Ledger:
    """Answers with turns that are all different. Facts and notes name the call that they come from."""

    def __init__(self, model: ScriptedModelServer, *, facts_per_call: int) -> None:
        self.facts_per_call = facts_per_call
        self._model = model
        self._texts: list[str] = []
        self._held = ""
        self._changed = Condition()
        model.defaults = {"main": new_turn, "cheap": self._learn}

    def _learn(self, request: RecordedRequest) -> Any:
        with self._changed:
            self._changed.wait_for(lambda: not self._held or self._held not in request.text, LONGEST_HOLD_SECONDS)
            number = len(self._texts)
            self._texts.append(request.text)
        if '"operations"' not in request.text:
            return {"summary": f"the notes of call {number}", "facts": []}
        keys = [f"fact {n} of call {number}" for n in range(self.facts_per_call)]
        return {"operations": [{"op": "SET", "key": key, "value": "x"} for key in keys]}

    @contextmanager
    def hold(self, turn: str) -> Iterator[None]:
        """Calls of the helper model that read this turn get no answer before the end of the block."""
        with self._changed:
            self._held = turn
        try:
            yield
        finally:
            with self._changed:
                self._held = ""
                self._changed.notify_all()

    def was_asked(self, turn: str) -> bool:
        """Whether the helper model was shown this turn, answered or not."""
        return any(turn in request.text for request in self._model.requests_for("cheap"))

    @property
    def calls(self) -> int:
        """How often the helper model was called."""
        return len(self._texts)

    def learned(self, keys: list[str]) -> list[str]:
        """The turns behind these facts, as often as they were read."""
        facts = Counter(int(number) for key in keys for number in FACT.findall(key))
        assert set(facts.values()) <= {self.facts_per_call}, f"Facts of a call are missing or doubled: {facts}"
        return [turn for number in facts for turn in TURN.findall(self._texts[number])]

    def noted(self, summary: str) -> list[str]:
        """The turns behind these notes and all that they were rewritten from, as often as they were read."""
        return [turn for number in self._rewrites(summary) for turn in TURN.findall(self._texts[number])]

    def _rewrites(self, text: str) -> Iterator[int]:
        while found := SUMMARY.search(text):
            number = int(found[1])
            yield number
            text = self._texts[number]

    def knows(self, caller: Caller, talk: Talk) -> bool:
        """Whether everything of the talk has been learned from, as a program sees it."""
        turns = len(caller.turns(talk.thread_id, user=talk.user))
        notes = caller("GET", f"/threads/{talk.thread_id}/memory", user=talk.user)["summary"]
        return len(self.learned(list(caller.facts(talk.user)))) == len(self.noted(notes)) == turns

    def check(self, rows: Rows, caller: Caller, talks: list[Talk]) -> int:
        """Each turn was learned from once and noted once, nothing is left to do; how many calls took effect."""
        effective = 0
        for talk in talks:
            said = [turn["content"] for turn in caller.turns(talk.thread_id, user=talk.user)]
            facts = [row["fields"]["key"] for row in rows if row["fields"].get("owner_id") == talk.user]
            states = [row["fields"] for row in rows if row["pk"] == talk.thread_id]
            [summary] = [state["summary"] for state in states if "summary" in state]
            assert sorted(self.learned(facts)) == sorted(said)
            assert sorted(self.noted(summary)) == sorted(said)
            assert [progress(state) for state in states] == [(len(said), len(said), None, None)] * 2
            effective += len(facts) // self.facts_per_call + len(list(self._rewrites(summary)))
        return effective


def hundred_requests(caller: Caller) -> list[Talk]:
    """Asks, and turns of a caller that has a model of its own, by ten users; none is refused."""
    users = [f"user-{n}" for n in range(10)]
    talks = [Talk(user, caller("POST", "/threads", {}, user=user, expect=201)["id"]) for user in users]
    for n in range(100):
        user, thread_id = talks[n % 10].user, talks[n % 10].thread_id
        if n // 10 % 2:
            caller.ask(new_turn(), user=user, thread_id=thread_id)
        else:
            turns = [{"role": role, "content": new_turn()} for role in ("user", "assistant")]
            caller("POST", f"/threads/{thread_id}/turns", {"turns": turns}, user=user, expect=201)
    return talks


def progress(state: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(state[name] for name in ("covered", "answered", "due_at", "claim_token"))


def stored(gateway: Gateway) -> Rows:
    """What was learned, and how far: every row."""
    rows: Rows = json.loads(gateway.manage("dumpdata", "memorygw_usermemory", "memorygw_workingmemory"))
    return rows


def rest(gateway: Gateway) -> Rows:
    """The rows, once no learning is left to do: no retry either, after a call that failed on a busy machine."""
    for _ in range(5):
        gateway.until_idle()
        rows = stored(gateway)
        if not any(row["fields"].get("due_at") for row in rows):
            return rows
        time.sleep(10)
    raise AssertionError("There is always something left to learn.")
