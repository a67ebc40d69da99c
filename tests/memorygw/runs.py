"""Steps of the tests about runs and tools."""

import json
from typing import Any
from uuid import UUID

from memorygw import gateway
from memorygw.models import Tenant
from memorygw.testing import ScriptedModelServer
from memorygw.tools import Tool, ToolCaller
from threads.models import Thread

REMEMBER, FORGET = "remember_user_fact", "forget_user_fact"
CLIENT_TOOL = {"type": "function", "function": {"name": "get_time", "parameters": {"type": "object"}}}

CALLERS: list[ToolCaller] = []


def _weather(caller: ToolCaller, arguments: dict[str, Any]) -> Any:
    CALLERS.append(caller)
    if arguments["city"] == "Atlantis":
        raise LookupError("Ada asked for Atlantis")
    return {"city": arguments["city"], "sky": "grau\x00"}


WEATHER = Tool(
    name="get_weather",
    description="The weather in a city.",
    parameters={"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    call=_weather,
)


def call(name: str, call_id: str = "c1", **arguments: Any) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}


def remember(value: str = "tea", call_id: str = "c1", key: str = "drink") -> dict[str, Any]:
    return call(REMEMBER, call_id, key=key, value=value)


def facts(tenant: Tenant, user: str = "ada") -> dict[str, str]:
    return {fact.key: fact.value for fact in gateway.get_user_facts(tenant, user)}


def results(model: ScriptedModelServer) -> dict[str, str]:
    """Call id → result, as the model saw them last, in their order."""
    messages = model.requests_for("main")[-1].messages
    return {message["tool_call_id"]: message["content"] for message in messages if message["role"] == "tool"}


def status(thread_id: UUID) -> str:
    return Thread.objects.get(pk=thread_id).status


def wait_for_approval(tenant: Tenant, model: ScriptedModelServer, *calls: dict[str, Any], **options: Any) -> Any:
    """An ask whose answer calls tools and waits."""
    model.reply(None, model="main", tool_calls=calls or (remember(),))
    paused = gateway.ask(tenant, "ada", "I drink tea.", **options)
    assert paused.run.status == "awaiting_human"
    return paused
