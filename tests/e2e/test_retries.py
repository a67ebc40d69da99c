"""Clients that lost their answer, and send the request again with its key."""

import json
import signal
import socket
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import pytest
import requests

from memorygw.testing import ScriptedModelServer
from tests.e2e.conftest import Caller, Gateway, kill, wait_for


def ask(caller: Caller, thread_id: str, content: str, key: str, user: str) -> requests.Response:
    return requests.post(
        f"{caller.gateway.base_url}/api/v1/threads/{thread_id}/ask?user={user}",
        json={"content": content},
        headers={"Authorization": f"Bearer {caller.key}", "Idempotency-Key": key},
        timeout=60,
    )


def ask_and_hang_up(caller: Caller, thread_id: str, content: str, key: str, user: str, model: Any) -> None:
    """Send the request, and close the connection while the model is at it."""
    address = urlsplit(caller.gateway.base_url)
    body = json.dumps({"content": content})
    with socket.create_connection((str(address.hostname), address.port or 80)) as connection, model.hold(model="main"):
        lines = [
            f"POST /api/v1/threads/{thread_id}/ask?user={user} HTTP/1.1",
            f"Host: {address.netloc}",
            f"Authorization: Bearer {caller.key}",
            f"Idempotency-Key: {key}",
            "Content-Type: application/json",
            f"Content-Length: {len(body)}",
        ]
        connection.sendall("\r\n".join([*lines, "", body]).encode())
        model.wait_for_requests(1, model="main")


def roles(caller: Caller, thread_id: str, user: str) -> list[str]:
    return [turn["role"] for turn in caller("GET", f"/threads/{thread_id}/turns", user=user)["items"]]


@pytest.mark.rows("T3")
def test_a_client_that_hung_up_gets_the_answer_that_was_given(running: Gateway, e2e_model: ScriptedModelServer) -> None:
    caller, user = running.key("acme"), uuid4().hex
    thread_id = caller("POST", "/threads", {}, user=user, expect=201)["id"]
    e2e_model.reply("384,400 km", model="main")
    ask_and_hang_up(caller, thread_id, "How far is the moon?", "L-2", user, e2e_model)
    wait_for(lambda: roles(caller, thread_id, user) == ["user", "assistant"], "the answer")
    again = ask(caller, thread_id, "How far is the moon?", "L-2", user)
    assert again.status_code == 200
    assert again.json()["answer"]["content"] == "384,400 km"
    assert ask(caller, thread_id, "How far is the moon?", "L-2", user).json() == again.json()
    assert len(e2e_model.requests_for("main")) == 1
    assert roles(caller, thread_id, user) == ["user", "assistant"]


def test_a_request_whose_server_was_killed_is_answered_by_the_next_one(
    running: Gateway, e2e_model: ScriptedModelServer
) -> None:
    """The turn is stored and the model asked; then the process is gone."""
    caller, user = running.key("acme"), uuid4().hex
    thread_id = caller("POST", "/threads", {}, user=user, expect=201)["id"]
    victim = Gateway(running.environment, running.log)
    server = victim.serve()
    with e2e_model.hold(model="main"):
        ask_and_hang_up(
            Caller(victim, caller.key, caller.tenant), thread_id, "How far is the moon?", "L-3", user, e2e_model
        )
        kill(server, signal.SIGKILL)
        server.wait()
    victim.stop()
    answers: list[requests.Response] = []

    def answered() -> bool:
        answers.append(ask(caller, thread_id, "How far is the moon?", "L-3", user))
        assert answers[-1].status_code in (200, 409), answers[-1].text
        return answers[-1].status_code == 200

    wait_for(answered, "the lease of the dead process to end")
    assert answers[0].status_code == 409
    assert answers[-1].json()["answer"]["content"] == "ok"
    assert roles(caller, thread_id, user) == ["user", "assistant"]
