"""Logs and metrics of real processes, after a day of a person's: nothing in them is of the person."""

import json
from pathlib import Path
from typing import Any

import requests

from memorygw.testing import RecordedRequest, ScriptedModelServer
from tests.e2e.conftest import Caller, Gateway, own_gateway

USER = "canary.user@example.com"
TOOL = {"type": "function", "function": {"name": "canary_tool", "parameters": {"type": "object"}}}
CALL = {"id": "c1", "type": "function", "function": {"name": "canary_tool", "arguments": '{"canary": "argument"}'}}
REMEMBER = {
    "id": "c2",
    "type": "function",
    "function": {"name": "remember_user_fact", "arguments": '{"key": "canary tea", "value": "canary Assam"}'},
}


IDS = ("of-the-stream", "of-the-failure")


def test_logs_and_metrics_say_nothing_of_a_person(e2e_model: ScriptedModelServer, tmp_path: Path) -> None:
    shared = tmp_path / "metrics"
    shared.mkdir()
    values = {
        "MEMORYGW_LOG_FORMAT": "json",
        "MEMORYGW_TITLES_ENABLED": "true",
        "PROMETHEUS_MULTIPROC_DIR": str(shared),
    }
    with own_gateway(e2e_model, tmp_path, **values) as gateway:
        gateway.serve()
        if gateway.brokered:
            gateway.work()
        live_a_day(gateway, gateway.key("acme", "admin"), e2e_model)
        # Another process tells what the first has counted.
        gateway.serve()
        told = requests.get(f"{gateway.base_url}/metrics", timeout=20).text
        log = gateway.log.read_text()
    assert "canary" not in (told + log).lower()
    assert 'memorygw_http_requests_total{method="POST",route="api/v1/ask",status="200"}' in told
    assert 'memorygw_model_calls_total{kind="MEMORY_USER",outcome="ok"}' in told
    assert 'memorygw_job_attempts_total{kind="extraction",outcome="done"}' in told
    assert "memorygw_database_up 1.0" in told
    # What is said before logging is set up, and is no line of the log, is a warning of Celery's.
    lines = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
    assert any(line["logger"].startswith("celery.") for line in lines) == gateway.brokered
    assert {"timestamp", "level", "logger", "message"} <= set.intersection(*map(set, lines))
    messages = {
        id_: {line["message"].partition(" in ")[0] for line in lines if line.get("request_id") == id_} for id_ in IDS
    }
    assert messages == {
        "of-the-stream": {"POST api/v1/ask 200"},
        "of-the-failure": {"POST api/v1/ask 502", "Bad Gateway: POST api/v1/ask"},
    }


def live_a_day(gateway: Gateway, caller: Caller, model: ScriptedModelServer) -> None:
    model.defaults["cheap"] = helper
    model.reply(None, model="main", tool_calls=[CALL])
    question = {"content": "I live in canary Turin.", "tools": [TOOL], "metadata": {"canary": "page"}}
    asked = caller("POST", "/ask", question, user=USER)
    decide(caller, asked, {"tool_call_id": "c1", "content": "canary result"})
    model.reply(None, model="main", tool_calls=[REMEMBER])
    asked = caller.ask("My canary tea is Assam.", user=USER)
    decide(caller, asked, {"tool_call_id": "c2", "approved": True, "reason": "canary reason"})
    gateway.until_idle()
    assert caller.facts(USER) == {"canary city": "Canary Turin", "canary tea": "canary Assam"}
    caller("PUT", "/facts/canary%20size", {"value": "canary 42"}, user=USER)
    caller("POST", "/threads", {"title": "Canary talk"}, user=USER, expect=201)
    caller("GET", "/canary/path", user=USER, expect=404)
    caller("GET", "/facts/canary%00", user=USER, expect=405)
    send(caller, "of-the-stream", content="a canary stream", stream=True)
    model.fail(500, model="main", error={"message": "canary words of the server"})
    send(caller, "of-the-failure", content="a canary that fails")
    caller("DELETE", "/facts/canary%20size", user=USER, expect=204)
    caller("POST", f"/users/{USER}/forget", {"mode": "delete"}, user=USER)
    assert caller.facts(USER) == {}


def helper(request: RecordedRequest) -> Any:
    """The helper model: it learns, and gives titles."""
    learned = [{"op": "SET", "key": "canary city", "value": "Canary Turin"}]
    return {"operations": learned} if '"operations"' in request.text else "Canary title"


def decide(caller: Caller, asked: Any, verdict: dict[str, Any]) -> None:
    run = asked["run"]
    assert run["status"] == "awaiting_human"
    caller("POST", f"/runs/{run['id']}/continue", {"decisions": [verdict]}, user=USER)


def send(caller: Caller, request_id: str, **question: Any) -> None:
    response = requests.post(
        f"{caller.gateway.base_url}/api/v1/ask?user={USER}",
        json=question,
        headers={"Authorization": f"Bearer {caller.key}", "X-Request-ID": request_id},
        timeout=60,
    )
    assert response.headers["X-Request-ID"] == request_id
    assert response.content
