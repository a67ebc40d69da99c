"""The main job, over HTTP, with real processes: told in one thread, known in the next, unknown to everybody else."""

import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import requests

from memorygw.testing import RecordedRequest, ScriptedModelServer
from tests.conftest import cheap_default
from tests.e2e.conftest import ROOT, Gateway, environment, kill, own_gateway, wait_for


def last_system(model: ScriptedModelServer) -> str:
    return model.requests_for("main")[-1].system


@pytest.mark.rows("U1", "U3", "U4", "U5", "U7", "U94", "U109")
def test_what_is_told_in_one_thread_is_known_in_the_next_and_to_nobody_else(
    running: Gateway, e2e_model: ScriptedModelServer
) -> None:
    acme, globex = running.key("acme", "admin"), running.key("globex")
    e2e_model.reply({"operations": [{"op": "SET", "key": "city", "value": "Turin"}]}, model="cheap")
    told = acme.ask("I live in Turin.", user="ada")
    running.until_idle()
    assert acme.facts("ada") == {"city": "Turin"}
    [fact] = acme("GET", "/facts", user="ada")["items"]
    assert fact["source_thread_id"] == told["thread_id"]

    asked = acme.ask("Where do I live?", user="ada")
    assert asked["thread_id"] != told["thread_id"]
    assert "city: Turin" in last_system(e2e_model)
    for caller, user in ((acme, "bob"), (globex, "ada")):
        caller.ask("Where do I live?", user=user)
        assert "Turin" not in e2e_model.requests_for("main")[-1].text
        assert caller.facts(user) == {}
        caller("GET", f"/threads/{told['thread_id']}", user=user, expect=404)

    receipt = acme("POST", "/users/ada/forget", {"mode": "delete"}, user="ada")
    assert receipt["verified"] is True
    counted = {name: receipt["counts"][name] for name in ("threads", "turns", "runs", "facts", "voice_sessions")}
    assert counted == {"threads": 2, "turns": 4, "runs": 2, "facts": 1, "voice_sessions": 0}
    assert acme.facts("ada") == {}
    acme("GET", f"/threads/{told['thread_id']}", user="ada", expect=404)
    assert len(acme("GET", "/threads", user="bob")["items"]) == 1


@pytest.mark.rows("U108", "W48")
def test_the_answer_does_not_wait_for_learning(running: Gateway, e2e_model: ScriptedModelServer) -> None:
    caller = running.key("acme")
    user = uuid4().hex
    e2e_model.reply({"operations": [{"op": "SET", "key": "a", "value": "b"}]}, model="cheap")
    with e2e_model.hold(model="cheap"):
        assert caller.ask("Hello", user=user)["answer"]["content"] == "ok"
        assert caller.facts(user) == {}
    running.until_idle()
    assert caller.facts(user) == {"a": "b"}


def test_fifty_slow_asks_share_five_connections(running: Gateway, e2e_model: ScriptedModelServer) -> None:
    caller = running.key("acme")
    with ThreadPoolExecutor(50) as pool:
        with e2e_model.hold(model="main"):
            asks = [pool.submit(caller.ask, f"n={n}", user=f"user-{n}") for n in range(50)]
            e2e_model.wait_for_requests(50, model="main", timeout_seconds=50)
        assert [ask.result()["answer"]["content"] for ask in asks] == ["ok"] * 50
    running.until_idle()


@pytest.mark.rows("T4", "T81")
def test_a_server_killed_between_question_and_answer_leaves_just_the_question(
    running: Gateway, e2e_model: ScriptedModelServer
) -> None:
    caller = running.key("acme")
    thread_id = caller("POST", "/threads", {}, user="kim", expect=201)["id"]
    victim = Gateway(running.environment, running.log)
    server = victim.serve()
    doomed = type(caller)(victim, caller.key, caller.tenant)
    with ThreadPoolExecutor(1) as pool:
        with e2e_model.hold(model="main"):
            lost = pool.submit(doomed.ask, "Are you there?", user="kim", thread_id=thread_id)
            e2e_model.wait_for_requests(1, model="main")
            kill(server, signal.SIGKILL)
            with pytest.raises(requests.ConnectionError):
                lost.result()
        victim.stop()
    turns = caller("GET", f"/threads/{thread_id}/turns", user="kim")["items"]
    assert [(turn["role"], turn["content"]) for turn in turns] == [("user", "Are you there?")]
    busy = caller.ask("Hello?", user="kim", thread_id=thread_id, expect=409)
    assert busy["error"]["code"] == "thread_busy"

    def answered() -> bool:
        try:
            return bool(caller.ask("Hello?", user="kim", thread_id=thread_id))
        except AssertionError:
            return False

    wait_for(answered, "the lease to end by itself")
    turns = caller("GET", f"/threads/{thread_id}/turns", user="kim")["items"]
    assert [turn["role"] for turn in turns] == ["user", "user", "assistant"]


@pytest.mark.rows("U107", "U109", "U111")
def test_two_workers_at_once_learn_each_turn_once(running: Gateway, e2e_model: ScriptedModelServer) -> None:
    """Whoever is at it (a worker, the embedded one, two sweeps), each row is claimed before the model is called."""
    caller = running.key("acme")
    e2e_model.defaults["cheap"] = slow_cheap
    for n in range(6):
        caller.ask(f"unique-{n}", user="eve")
    command = [sys.executable, "manage.py", "sweep", "--until-idle"]
    sweeps = [subprocess.Popen(command, cwd=ROOT, env=running.environment) for _ in range(2)]
    assert [sweep.wait(60) for sweep in sweeps] == [0, 0]
    texts = [request.text for request in e2e_model.requests_for("cheap")]
    for n in range(6):
        assert sum(f"unique-{n}" in text for text in texts) == 1


def slow_cheap(request: RecordedRequest) -> Any:
    time.sleep(0.2)
    return cheap_default(request)


def test_a_wake_up_is_enough_to_learn(e2e_model: ScriptedModelServer, tmp_path: Path) -> None:
    """Without any sweep: by the embedded worker, or by a worker process on the broker."""
    with own_gateway(e2e_model, tmp_path, MEMORYGW_SWEEP_EVERY_SECONDS="3600") as gateway:
        gateway.serve()
        if gateway.brokered:
            gateway.work(beat=False)
        caller = gateway.key("acme")
        e2e_model.reply({"operations": [{"op": "SET", "key": "a", "value": "b"}]}, model="cheap")
        caller.ask("Hello", user="ada")
        wait_for(lambda: caller.facts("ada") == {"a": "b"}, "the worker")


def test_a_worker_killed_while_it_learns_loses_nothing(e2e_model: ScriptedModelServer, tmp_path: Path) -> None:
    """Its claim runs out, the sweep finds the row, and what the model said to the dead one is not missed."""
    with own_gateway(e2e_model, tmp_path, MEMORYGW_LLM_TIMEOUT_SECONDS="2") as gateway:
        server = gateway.serve()
        worker = gateway.work() if gateway.brokered else server
        caller = gateway.key("acme")
        e2e_model.reply({"operations": [{"op": "SET", "key": "a", "value": "b"}]}, model="cheap", times=2)
        with e2e_model.hold(model="cheap"):
            caller.ask("Hello", user="ada")
            e2e_model.wait_for_requests(1, model="cheap")
            kill(worker, signal.SIGKILL)
            worker.wait(10)
        if not gateway.brokered:
            gateway.serve()
        assert caller.facts("ada") == {}
        if gateway.brokered:
            gateway.work()
        wait_for(lambda: caller.facts("ada") == {"a": "b"}, "the claim to run out and the row to be found")
        gateway.until_idle()
        assert len(e2e_model.requests_for("cheap")) == 2


def test_a_broker_that_is_down_fails_no_request_and_learning_catches_up(
    database_url: str, running: Gateway, e2e_model: ScriptedModelServer
) -> None:
    broken = Gateway(environment(database_url, e2e_model, MEMORYGW_BROKER_URL="redis://127.0.0.1:1/0"), running.log)
    try:
        broken.serve()
        caller = broken.key("acme")
        e2e_model.reply({"operations": [{"op": "SET", "key": "a", "value": "b"}]}, model="cheap")
        caller.ask("Hello", user="without-broker")
        ready = requests.get(f"{broken.base_url}/readyz", timeout=20)
        assert (ready.status_code, ready.json()["status"]) == (200, "degraded")
    finally:
        broken.stop()
    working = running.key("acme")
    wait_for(lambda: working.facts("without-broker") == {"a": "b"}, "the periodic sweep")
