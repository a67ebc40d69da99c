"""Runs and tools over REST."""

import json
from typing import Any

import pytest

from memorygw import gateway
from memorygw.models import Persona, Tenant
from memorygw.testing import ScriptedModelServer
from tests.conftest import Api

REMEMBER, FORGET = "remember_user_fact", "forget_user_fact"
ARGUMENTS = json.dumps({"key": "drink", "value": "tea"})
CALL = {"id": "c1", "type": "function", "function": {"name": REMEMBER, "arguments": ARGUMENTS}}
CLIENT_CALL = {"id": "c2", "type": "function", "function": {"name": "get_time", "arguments": "{}"}}
CLIENT_TOOL = {"type": "function", "function": {"name": "get_time", "parameters": {"type": "object"}}}
UNKNOWN = "00000000-0000-7000-8000-000000000000"


@pytest.fixture
def paused(api: Api, model: ScriptedModelServer) -> Any:
    """An ask that waits for an approval and for a tool of the client's."""
    model.reply("One moment.", model="main", tool_calls=[CALL, CLIENT_CALL])
    reply = api.ask("I drink tea. What time is it?", tools=[CLIENT_TOOL])
    assert reply.status == 200
    return reply.body


def test_a_paused_ask_says_what_it_waits_for(api: Api, paused: Any) -> None:
    assert paused["answer"] is None
    assert [turn["role"] for turn in paused["turns"]] == ["user", "assistant"]
    run = api("GET", f"/runs/{paused['run']['id']}").body
    assert run == paused["run"]
    assert run["status"] == "awaiting_human"
    assert run["pending"] == [
        {"tool_call_id": "c1", "name": REMEMBER, "arguments": ARGUMENTS, "kind": "approval"},
        {"tool_call_id": "c2", "name": "get_time", "arguments": "{}", "kind": "client"},
    ]
    assert api("GET", f"/threads/{paused['thread_id']}").body["status"] == "AWAITING_HUMAN"


def test_continuing_answers_as_ask_does(api: Api, paused: Any) -> None:
    decisions = [{"tool_call_id": "c1", "approved": True}, {"tool_call_id": "c2", "content": " 12:00\n"}]
    reply = api("POST", f"/runs/{paused['run']['id']}/continue", {"decisions": decisions})
    assert reply.status == 200
    assert reply.body["answer"]["content"] == "ok"
    assert [turn["content"] for turn in reply.body["turns"]] == ["Remembered.", " 12:00\n", "ok"]
    assert api.facts() == {"drink": "tea"}
    again = api("POST", f"/runs/{paused['run']['id']}/continue", {"decisions": decisions})
    assert (again.status, again.error["code"]) == (409, "run_not_waiting")


def test_a_waiting_thread_says_which_run_waits(api: Api, paused: Any) -> None:
    reply = api.ask("Hello?", paused["thread_id"])
    assert (reply.status, reply.error["code"]) == (409, "thread_awaiting_human")
    assert reply.error["run_id"] == paused["run"]["id"]


def test_cancelling_gives_the_run_and_frees_the_thread(api: Api, paused: Any) -> None:
    reply = api("POST", f"/runs/{paused['run']['id']}/cancel")
    assert (reply.status, reply.body["status"], reply.body["pending"]) == (200, "cancelled", [])
    assert api.ask("Hello?", paused["thread_id"]).status == 200


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "decisions"),
        ({"decisions": "yes"}, "decisions"),
        ({"decisions": []}, "decisions"),
        ({"decisions": [{"approved": True}]}, "decisions[0].tool_call_id"),
        ({"decisions": [{"tool_call_id": "c1", "approved": "maybe"}]}, "decisions[0].approved"),
        ({"decisions": [{"tool_call_id": "c1", "approved": True}]}, "decisions"),
    ],
)
def test_decisions_are_checked(api: Api, paused: Any, body: Any, field: str) -> None:
    reply = api("POST", f"/runs/{paused['run']['id']}/continue", body)
    assert reply.status == 400
    assert list(reply.error["fields"]) == [field]
    assert api("GET", f"/runs/{paused['run']['id']}").body["status"] == "awaiting_human"


@pytest.mark.parametrize("action", ["", "/continue", "/cancel"])
def test_a_run_of_somebody_else_is_one_that_never_was(api: Api, other_api: Api, paused: Any, action: str) -> None:
    method = "POST" if action else "GET"
    body = {"decisions": [{"tool_call_id": "c1", "approved": True}]} if action == "/continue" else None
    answers = [
        other_api(method, f"/runs/{paused['run']['id']}{action}", body),
        api(method, f"/runs/{paused['run']['id']}{action}", body, user="eve"),
        api(method, f"/runs/{UNKNOWN}{action}", body),
        api(method, f"/runs/nonsense{action}", body),
    ]
    assert {(answer.status, answer.error["code"], len(answer.error)) for answer in answers} == {
        (404, "run_not_found", 2)
    }


@pytest.mark.parametrize(
    "tools",
    [
        ["get_time"],
        [{"type": "function"}],
        [{"type": "function", "function": {"name": "no blanks"}}],
        [CLIENT_TOOL, CLIENT_TOOL],
        [{"type": "function", "function": {"name": REMEMBER}}],
    ],
)
def test_tools_that_no_provider_would_take_are_refused(api: Api, model: ScriptedModelServer, tools: Any) -> None:
    reply = api.ask("Hello", tools=tools)
    assert (reply.status, list(reply.error["fields"])) == (400, ["tools"])
    assert model.requests == []
    assert api("GET", "/threads").body["items"] == []


def test_the_memory_tools_are_listed_by_persona(api: Api, tenant: Tenant) -> None:
    Persona.objects.create(tenant=tenant, name="coach", memory_tools=FORGET)
    names = [tool["function"]["name"] for tool in api("GET", "/tools").body["items"]]
    assert names == [REMEMBER, FORGET]
    own = api("GET", "/tools?persona=coach").body["items"]
    assert [tool["function"]["name"] for tool in own] == [FORGET]
    assert api("GET", "/tools?persona=nobody").error["code"] == "persona_not_found"


def test_a_memory_tool_runs_for_the_acting_user_whatever_the_arguments_say(api: Api, other_api: Api) -> None:
    arguments = {"key": "drink", "value": "tea", "user_id": "eve", "tenant": "globex"}
    reply = api("POST", f"/tools/{REMEMBER}", {"arguments": arguments})
    assert (reply.status, reply.body) == (200, {"content": "Remembered."})
    assert api.facts() == {"drink": "tea"}
    assert api.facts(user="eve") == {}
    assert other_api.facts() == {}
    blank = api("POST", f"/tools/{REMEMBER}", {"arguments": {"key": "drink", "value": " "}})
    assert (blank.status, blank.body["content"]) == (200, "Error: A fact needs a key and a value.")
    api("POST", f"/tools/{FORGET}", {"arguments": {"key": "drink"}})
    assert api.facts() == {}


def test_unknown_tools_and_foreign_threads_are_not_found(api: Api, tenant: Tenant) -> None:
    assert api("POST", "/tools/clear_everything", {"arguments": {}}).error["code"] == "tool_not_found"
    foreign = gateway.create_thread(tenant, "eve").pk
    body = {"arguments": {"key": "drink", "value": "tea"}, "thread_id": str(foreign)}
    assert api("POST", f"/tools/{REMEMBER}", body).error["code"] == "thread_not_found"
    assert api.facts() == {}
