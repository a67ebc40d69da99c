"""Processes that die at any moment: what they were at is done by somebody else, and takes effect once."""

import json
import os
import random
import signal
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest
import requests

from memorygw.testing import ScriptedModelServer
from tests.e2e.conftest import Caller, Gateway, free_port, kill, own_gateway, wait_for
from tests.e2e.ledger import EAGER, Ledger, Talk, hundred_requests, new_turn, rest, stored


class Phase(NamedTuple):
    """A part of late work, as the time since an event that is seen from outside: the wake-up, a call, its answer."""

    since: str
    earliest: float
    latest: float


BEFORE_THE_CALL = Phase("wake-up", 0, 0.15)
WHILE_IT_HANGS = Phase("call", 0, 0.5)
JUST_ANSWERED = Phase("answer", 0, 0.02)
WHILE_WRITING = Phase("answer", 0.02, 0.2)
TEN_MOMENTS = [BEFORE_THE_CALL, WHILE_IT_HANGS] * 2 + [JUST_ANSWERED, WHILE_WRITING] * 3


@contextmanager
def moments() -> Iterator[Random]:
    """Random numbers; a failure says how to have the same ones again."""
    seed = os.environ.get("MOMENTS") or str(random.randrange(10**9))
    try:
        yield Random(seed)
    except BaseException as error:
        error.add_note(f"MOMENTS={seed} in the environment gives the same moments.")
        raise


@dataclass
class Assassin:
    """Keeps a gateway busy, and kills what works for it in the middle of a job."""

    gateway: Gateway
    ledger: Ledger
    rng: Random
    talks: list[Talk] = field(default_factory=list)

    def __post_init__(self) -> None:
        server = self.gateway.serve()
        self.caller: Caller = self.gateway.key("acme")
        self.worker = server
        if self.gateway.brokered:
            self.gateway.tick()
            self.worker = self.gateway.work(beat=False)

    def strike(self, phase: Phase) -> None:
        """A new talk, and a kill in this phase of what is learned from it. Older talks go on meanwhile."""
        if self.talks:
            talk = self.rng.choice(self.talks)
            self.caller.ask(new_turn(), user=talk.user, thread_id=talk.thread_id)
        with ExitStack() as held:
            question = new_turn()
            if phase.since != "wake-up":
                held.enter_context(self.ledger.hold(question))
            user = f"user-{len(self.talks)}"
            self.talks.append(Talk(user, self.caller.ask(question, user=user)["thread_id"]))
            if phase.since != "wake-up":
                wait_for(lambda: self.ledger.was_asked(question), "the helper model to be called")
            if phase.since == "answer":
                held.close()
            time.sleep(self.rng.uniform(phase.earliest, phase.latest))
            self._kill()
        self._replace()

    def _kill(self) -> None:
        """Without a broker, the serving process; with one, a child of the worker, all of them, or parent and all."""
        children = child_ids(self.worker) if self.gateway.brokered else []
        victims = self.rng.choice([children[:1], children[1:], children, []])
        if not victims:
            kill(self.worker, signal.SIGKILL)
            self.worker.wait(10)
        for pid in victims:
            os.kill(pid, signal.SIGKILL)

    def _replace(self) -> None:
        if self.worker.poll() is not None:
            self.worker = self.gateway.work(beat=False) if self.gateway.brokered else self.gateway.serve()


def child_ids(process: "subprocess.Popen[str]") -> list[int]:
    listed = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    pairs = [line.split() for line in listed.splitlines()]
    return [int(pid) for pid, parent in pairs if int(parent) == process.pid]


@pytest.mark.rows("U5", "U109", "W20", "W21", "W47")
def test_ten_kills_in_the_middle_of_learning_lose_no_turn_and_repeat_no_effect(
    model: ScriptedModelServer, tmp_path: Path
) -> None:
    # Many facts, so that writing them takes a while.
    ledger = Ledger(model, facts_per_call=40)
    with moments() as rng, own_gateway(model, tmp_path, **EAGER) as gateway:
        assassin = Assassin(gateway, ledger, rng)
        for phase in rng.sample(TEN_MOMENTS, 10):
            assassin.strike(phase)
        effective = ledger.check(rest(gateway), assassin.caller, assassin.talks)
        assert ledger.calls > effective, "No kill hit a call."


@pytest.mark.rows("U108", "W48")
def test_a_hundred_requests_without_the_broker_are_answered_and_learned_from_later(
    model: ScriptedModelServer, tmp_path: Path
) -> None:
    """Nothing listens at the broker's address; the next serving process has no broker to need."""
    ledger = Ledger(model, facts_per_call=1)
    nowhere = f"redis://127.0.0.1:{free_port()}/0"
    with own_gateway(model, tmp_path, **EAGER, MEMORYGW_BROKER_URL=nowhere) as gateway:
        gateway.serve()
        caller = gateway.key("acme")
        talks = hundred_requests(caller)
        assert ledger.calls == 0
        gateway.stop()
        del gateway.environment["MEMORYGW_BROKER_URL"]
        gateway.serve()
        wait_for(lambda: all(ledger.knows(caller, talk) for talk in talks), "the timer of the embedded worker", 90)
        ledger.check(stored(gateway), caller, talks)


def told(caller: Caller, base_url: str, user: str) -> list[dict[str, Any]]:
    """The turns that a streamed ask tells of, until it ends or breaks; what the answer came to is the last of them."""
    turns: list[dict[str, Any]] = []
    headers = {"Authorization": f"Bearer {caller.key}"}
    question = {"content": f"Hello, I am {user}.", "stream": True}
    url = f"{base_url}/api/v1/ask?user={user}"
    with (
        suppress(requests.RequestException),
        requests.post(url, json=question, headers=headers, stream=True, timeout=60) as answer,
    ):
        name = ""
        for line in answer.iter_lines(chunk_size=1, decode_unicode=True):
            name = line.removeprefix("event: ") if line.startswith("event: ") else name
            if name == "turn" and line.startswith("data: "):
                turns.append(json.loads(line.removeprefix("data: ")))
    return turns


@pytest.mark.rows("U5")
def test_a_server_and_a_worker_that_are_killed_under_streams_lose_nothing_that_was_told(
    model: ScriptedModelServer, tmp_path: Path
) -> None:
    model.stream("One", " two", 2.0, " three", model="main", times=20)
    with own_gateway(model, tmp_path, MEMORYGW_LEASE_SECONDS="8") as gateway:
        victims = [gateway.serve()]
        servers = [gateway.base_url]
        gateway.serve()
        servers.append(gateway.base_url)
        if gateway.brokered:
            victims.append(gateway.work(beat=False))
        caller = gateway.key("acme")
        with ThreadPoolExecutor(20) as pool:
            asks = [pool.submit(told, caller, servers[n % 2], f"user-{n}") for n in range(20)]
            model.wait_for_requests(20, model="main", timeout_seconds=60)
            time.sleep(0.5)
            for victim in victims:
                kill(victim, signal.SIGKILL)
            heard = [ask.result() for ask in asks]
        assert [len(turns) for turns in heard] == [1, 2] * 10, "Half of the streams break, half are whole."
        for n, turns in enumerate(heard):
            thread_id = _only_thread(caller, f"user-{n}")
            stored = caller.turns(thread_id, user=f"user-{n}")
            assert [turn["content"] for turn in stored[: len(turns)]] == [turn["content"] for turn in turns]
        assert all(turns[-1]["content"] == "One two three" for turns in heard[1::2])
        wait_for(lambda: _all_go_on(caller), "the leases of the dead")


def _only_thread(caller: Caller, user: str) -> str:
    [thread] = caller("GET", "/threads", user=user)["items"]
    return str(thread["id"])


def _all_go_on(caller: Caller) -> bool:
    """The model is strict: it would refuse a history that is not one."""
    answers = (
        caller.send("POST", f"/threads/{_only_thread(caller, f'user-{n}')}/ask", {"content": "More"}, user=f"user-{n}")
        for n in range(20)
    )
    return all(answer.status_code == 200 for answer in answers)
