"""O06, O07 and O08: parallel calls at the edge of the budget, a group above it, a call without its result. Rule K3."""

from typing import Any

import pytest
from pytest_django import Settings

from memorygw.testing import ScriptedModelServer
from tests.conftest import Api


def call(name: str, *ids: str) -> dict[str, Any]:
    calls = [{"id": i, "type": "function", "function": {"name": name, "arguments": "{}"}} for i in ids]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def result(call_id: str, content: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def user(content: str) -> dict[str, Any]:
    return {"role": "user", "content": content}


def assistant(content: str) -> dict[str, Any]:
    return {"role": "assistant", "content": content}


def words(prefix: str, count: int) -> str:
    return " ".join(f"{prefix}{n:04}" for n in range(1, count + 1))


class Talk:
    def __init__(self, api: Api, *turns: dict[str, Any]) -> None:
        self.api, self.id = api, api("POST", "/threads", {}).body["id"]
        self.costs = [0]
        if turns:
            stored = api("POST", f"/threads/{self.id}/turns", {"turns": list(turns)})
            self.costs += [turn["token_count"] for turn in stored.body["items"]]

    def cost(self, first: int, last: int) -> int:
        return sum(self.costs[first : last + 1])

    def window(self, budget: int) -> tuple[list[int], bool]:
        context = self.api("POST", f"/threads/{self.id}/context", {"budget_tokens": budget}).body
        return [message["seq"] for message in context["messages"]], context["over_budget"]


@pytest.fixture(autouse=True)
def sliding(settings: Settings) -> None:
    settings.MEMORYGW_WORKING_MEMORY = "SLIDING_WINDOW"


@pytest.mark.rows("W9", "W13", "W31", "W32", "W44")
def test_the_cut_falls_between_user_groups_never_inside_one(api: Api) -> None:
    talk = Talk(
        api,
        user("Compare the weather in Oslo and Lima."),
        call("weather", "c1", "c2"),
        result("c1", words("hour", 300)),
        result("c2", "22 C, dry"),
        assistant("Oslo 4 C and wet, Lima 22 C and dry."),
        user("Which one is drier?"),
        assistant("Lima."),
        user("Thanks. And Cairo?"),
        call("weather", "c3"),
        result("c3", "31 C"),
        assistant("Cairo 31 C."),
    )
    newest = [6, 7, 8, 9, 10, 11]
    assert talk.window(talk.cost(4, 11)) == (newest, False)
    assert talk.window(talk.cost(2, 11)) == (newest, False)
    assert talk.window(talk.cost(1, 11)) == (list(range(1, 12)), False)
    assert talk.window(talk.cost(6, 11) - 1) == ([8, 9, 10, 11], False)
    assert talk.window(talk.cost(8, 11)) == ([8, 9, 10, 11], False)


@pytest.mark.rows("W14", "W34", "W45")
def test_the_newest_group_is_whole_whatever_the_budget(
    api: Api, model: ScriptedModelServer, settings: Settings
) -> None:
    long = Talk(api, user(words("w", 6_000)))
    assert long.window(200) == ([1], True)
    tools = Talk(
        api,
        user("first"),
        assistant("noted"),
        user("find the two files"),
        call("find", "d1"),
        result("d1", words("line", 200)),
        call("find", "d2"),
        result("d2", words("row", 200)),
    )
    assert tools.window(tools.cost(6, 7)) == ([3, 4, 5, 6, 7], True)
    assert Talk(api, assistant("Hi, how can I help?")).window(200) == ([], False)
    empty = Talk(api)
    assert empty.window(200) == ([], False)

    settings.MEMORYGW_MODELS = {"main": {"context_window": 4_000, "output_reserve": 500}}
    refused = api.ask(words("w", 6_000), empty.id)
    assert (refused.status, model.requests) == (413, [])
    assert api.ask("hi", empty.id).status == 200


@pytest.mark.rows("W35", "W32")
def test_a_call_that_never_got_its_second_result_breaks_nothing(api: Api, model: ScriptedModelServer) -> None:
    talk = Talk(
        api,
        user("Check both tickets"),
        call("ticket", "k1", "k2"),
        result("k1", "open"),
        user("Never mind, what is 2+2?"),
        assistant("4"),
    )
    assert api.ask("and 3+3?", talk.id).status == 200
    sent = model.requests_for("main")[-1].messages
    assert [message["role"] for message in sent] == ["user", "user", "assistant", "user"]
    assert not any("tool_calls" in message for message in sent)

    path = f"/threads/{talk.id}/turns"
    assert api("POST", path, {"turns": [result("zzz", "?")]}).status == 400
    second = api("POST", path, {"turns": [result("k1", "closed")]})
    assert (second.status, second.error["code"]) == (409, "double_result")
    turns = api("GET", path).body["items"]
    assert [turn["content"] for turn in turns if turn["role"] == "tool"] == ["open"]
    assert len(turns) == 7
    assert api("POST", path, {"turns": [result("k2", "late")]}).status == 201
