"""OpenAI's chat completions with memory behind them: the official package, unchanged, against our server."""

import asyncio
import json
import runpy
from pathlib import Path
from typing import Any

import openai
import pytest
from pydantic import BaseModel
from pytest_django import Settings

from memorygw import gateway
from memorygw.models import Tenant
from memorygw.testing import ScriptedModelServer
from tests.conftest import learn
from tests.memorygw.runs import call
from threads.models import Thread, Turn

pytestmark = pytest.mark.django_db(transaction=True)

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "openai_chat.py"
HELLO: list[Any] = [{"role": "user", "content": "Hello"}]
WEATHER: Any = {
    "type": "function",
    "function": {"name": "get_weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}},
}


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def threads() -> list[list[str]]:
    """What each thread holds, the oldest first."""
    return [
        [f"{turn.role}: {turn.content}" for turn in thread.turns.all()]
        for thread in Thread.objects.order_by("created_at", "id")
    ]


def said_to(model: ScriptedModelServer) -> list[tuple[str, Any]]:
    messages = model.requests_for("main")[-1].messages
    return [(message["role"], message["content"]) for message in messages if message["role"] != "system"]


# --- which messages are new


def test_a_client_that_resends_everything_goes_on_with_its_thread(
    sdk: openai.OpenAI, model: ScriptedModelServer
) -> None:
    messages: list[Any] = [{"role": "system", "content": "Be brief."}, user("I am Ada.")]
    for answer, question in [("Hi Ada.", "Who am I?"), ("Ada.", "And you?"), ("A model.", "")]:
        model.reply(answer, model="main")
        reply = sdk.chat.completions.create(model="main", messages=messages)
        messages += [reply.choices[0].message, user(question)]
    assert threads() == [
        [
            "user: I am Ada.", "assistant: Hi Ada.", "user: Who am I?", "assistant: Ada.", "user: And you?",
            "assistant: A model.",
        ]
    ]  # fmt: skip
    assert model.requests_for("main")[-1].system == "Be brief."


def test_a_client_that_sends_only_what_is_new_names_its_thread(sdk: openai.OpenAI, model: ScriptedModelServer) -> None:
    raw = sdk.chat.completions.with_raw_response.create(model="main", messages=HELLO)
    thread = {"X-Memorygw-Thread": raw.headers["X-Memorygw-Thread"]}
    sdk.chat.completions.create(model="main", messages=[user("More")], extra_headers=thread)  # type: ignore[list-item]
    assert threads() == [["user: Hello", "assistant: ok", "user: More", "assistant: ok"]]
    assert said_to(model) == [("user", "Hello"), ("assistant", "ok"), ("user", "More")]


def test_an_earlier_message_that_was_edited_is_a_conflict_or_a_fork(
    sdk: openai.OpenAI, model: ScriptedModelServer
) -> None:
    raw = sdk.chat.completions.with_raw_response.create(model="main", messages=HELLO)
    thread_id = raw.headers["X-Memorygw-Thread"]
    edited: list[Any] = [user("Goodbye"), {"role": "assistant", "content": "ok"}, user("More")]
    with pytest.raises(openai.ConflictError) as conflict:
        sdk.chat.completions.create(model="main", messages=edited, metadata={"thread_id": thread_id})
    assert conflict.value.code == "history_differs"
    body: Any = {"metadata": {"thread_id": thread_id, "fork": True}}
    sdk.chat.completions.create(model="main", messages=edited, extra_body=body)
    assert [len(turns) for turns in threads()] == [2, 4]
    assert said_to(model)[0] == ("user", "Goodbye")


def test_a_request_that_is_sent_again_adds_nothing(sdk: openai.OpenAI, model: ScriptedModelServer) -> None:
    history: list[Any] = [*HELLO, {"role": "assistant", "content": "ok"}, user("More")]
    sdk.chat.completions.create(model="main", messages=HELLO)
    model.fail(500, model="main")
    with pytest.raises(openai.InternalServerError):
        sdk.chat.completions.create(model="main", messages=history)
    model.reply("Yes.", model="main")
    answers = [sdk.chat.completions.create(model="main", messages=history) for _ in range(2)]
    assert [answer.choices[0].message.content for answer in answers] == ["Yes.", "Yes."]
    assert len(threads()[0]) == 4
    assert len(model.requests_for("main")) == 3


def test_a_conversation_from_elsewhere_is_taken_in_whole(sdk: openai.OpenAI, model: ScriptedModelServer) -> None:
    history: list[Any] = [user("I drink tea."), {"role": "assistant", "content": "Noted."}, user("What do I drink?")]
    sdk.chat.completions.create(model="main", messages=history)
    assert said_to(model) == [("user", "I drink tea."), ("assistant", "Noted."), ("user", "What do I drink?")]
    assert [len(turns) for turns in threads()] == [4]


def test_one_users_history_finds_nobody_elses_thread(sdk: openai.OpenAI, model: ScriptedModelServer) -> None:
    history: list[Any] = [*HELLO, {"role": "assistant", "content": "ok"}, user("More")]
    sdk.chat.completions.create(model="main", messages=HELLO)
    sdk.chat.completions.create(model="main", messages=history, extra_headers={"X-Memorygw-User": "bob"})
    assert Thread.objects.filter(user_id="bob").count() == 1
    assert [len(turns) for turns in threads()] == [2, 4]


# --- memory


def test_it_has_memory_and_can_do_without(sdk: openai.OpenAI, tenant: Tenant, model: ScriptedModelServer) -> None:
    gateway.upsert_user_fact(tenant, "ada", "drink", "tea")
    sdk.chat.completions.create(model="main", messages=HELLO)
    assert "drink: tea" in model.requests_for("main")[-1].system
    off = {"X-Memorygw-Memory": "off"}
    sdk.chat.completions.create(model="main", messages=[user("I am secret.")], extra_headers=off)  # type: ignore[list-item]
    assert "drink: tea" not in model.requests_for("main")[-1].system
    learn()
    read = [request.text for request in model.requests_for("cheap") if '"operations"' in request.text]
    assert ["I am secret." in text for text in read] == [False] * len(read)


def test_memory_tools_run_inside_and_are_not_seen(
    sdk: openai.OpenAI, model: ScriptedModelServer, settings: Settings
) -> None:
    settings.MEMORYGW_MEMORY_TOOLS = "persona"
    model.reply("Let me see. ", model="main", tool_calls=[call("memory_save", key="drink", value="tea")])
    model.reply("Saved.", model="main")
    reply = sdk.chat.completions.create(model="main", messages=HELLO)
    message = reply.choices[0].message
    assert (message.content, message.tool_calls, reply.choices[0].finish_reason) == ("Let me see. Saved.", None, "stop")
    assert reply.usage
    assert reply.usage.total_tokens == 30
    history: list[Any] = [*HELLO, message, user("More")]
    sdk.chat.completions.create(model="main", messages=history)
    assert len(threads()) == 1


def test_the_clients_own_calls_go_to_the_client_and_on_with_its_results(
    sdk: openai.OpenAI, model: ScriptedModelServer, settings: Settings
) -> None:
    settings.MEMORYGW_MEMORY_TOOLS = "persona"
    calls = [call("memory_recall", "c1", query="home"), call("get_weather", "c2", city="Turin")]
    model.reply(None, model="main", tool_calls=calls)
    reply = sdk.chat.completions.create(model="main", messages=HELLO, tools=[WEATHER])
    message = reply.choices[0].message
    assert [made.id for made in message.tool_calls or ()] == ["c2"]
    assert reply.choices[0].finish_reason == "tool_calls"
    model.reply("Sunny.", model="main")
    result = {"role": "tool", "tool_call_id": "c2", "content": "sun"}
    history: list[Any] = [*HELLO, message, result]
    answer = sdk.chat.completions.create(model="main", messages=history, tools=[WEATHER])
    assert answer.choices[0].message.content == "Sunny."
    [thread] = Thread.objects.all()
    assert [turn.role for turn in thread.turns.all()] == ["user", "assistant", "tool", "tool", "assistant"]
    assert [role for role, _ in said_to(model)] == ["user", "assistant", "tool", "tool"]


# --- the same objects as without us


class Person(BaseModel):
    name: str


PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
TWO = [call("get_weather", "c1", city="Turin"), call("get_weather", "c2", city="Rome")]
CALLS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "chat": ({"messages": HELLO, "temperature": 0.5, "seed": 7, "stop": ["x"]}, {"content": "Hi."}),
    "tools": (
        {"messages": HELLO, "tools": [WEATHER], "tool_choice": "required"},
        {"content": None, "tool_calls": TWO[:1]},
    ),
    "parallel tools": ({"messages": HELLO, "tools": [WEATHER]}, {"content": "Both.", "tool_calls": TWO}),
    "structured": (
        {"messages": HELLO, "response_format": {"type": "json_object"}, "max_tokens": 9},
        {"content": '{"name": "Ada"}'},
    ),
    "vision": (
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "What is it?"}, PICTURE]}]},
        {"content": "A cat."},
    ),
    "length": ({"messages": HELLO, "vendor_extra": {"a": 1}}, {"content": "Hi", "finish_reason": "length"}),
}


def comparable(reply: Any) -> Any:
    """A parsed object without ids and times."""
    dumped = reply.model_dump()
    for name in ("id", "created"):
        dumped.pop(name)
    return dumped


@pytest.mark.parametrize(("request_", "answer"), CALLS.values(), ids=CALLS)
def test_a_call_gives_what_the_model_gives(
    sdk: openai.OpenAI,
    direct: openai.OpenAI,
    model: ScriptedModelServer,
    settings: Settings,
    request_: dict[str, Any],
    answer: dict[str, Any],
) -> None:
    settings.MEMORYGW_MEMORY_TOOLS = "none"
    content = answer.pop("content") if "content" in answer else None
    extra = {name: request_[name] for name in ("vendor_extra",) if name in request_}
    sent = {name: value for name, value in request_.items() if name not in extra}
    replies = []
    for one in (direct, sdk):
        model.reply(content, model="main", **answer)
        replies.append(one.chat.completions.create(model="main", extra_body=extra, **sent))
    assert comparable(replies[0]) == comparable(replies[1])
    first, second = (request.body for request in model.requests_for("main"))
    assert first == second
    answer["content"] = content


@pytest.mark.parametrize("request_", [HELLO], ids=["text"])
@pytest.mark.parametrize("usage", [True, False])
@pytest.mark.parametrize("calls", [(), TWO], ids=["text", "calls"])
def test_a_stream_gives_what_the_model_gives(
    sdk: openai.OpenAI,
    direct: openai.OpenAI,
    model: ScriptedModelServer,
    settings: Settings,
    request_: list[Any],
    usage: bool,
    calls: Any,
) -> None:
    settings.MEMORYGW_MEMORY_TOOLS = "none"
    wholes = []
    for one in (direct, sdk):
        model.reply("One two three four.", model="main", tool_calls=calls)
        options: Any = {"stream_options": {"include_usage": True}} if usage else {}
        stream = one.chat.completions.create(
            model="main", messages=request_, stream=True, tools=[WEATHER] if calls else openai.omit, **options
        )
        chunks = list(stream)
        text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
        made = [part for chunk in chunks if chunk.choices for part in chunk.choices[0].delta.tool_calls or ()]
        reasons = [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices]
        used = [chunk.usage.model_dump() for chunk in chunks if chunk.usage]
        wholes.append(
            (text, [(part.id, part.function) for part in made], reasons[-1], used, len({c.id for c in chunks}))
        )
    assert wholes[0] == wholes[1]


def test_an_async_client_streams_too(sdk: openai.OpenAI, model: ScriptedModelServer) -> None:
    async def listen() -> str:
        base_url, key, headers = sdk.base_url, sdk.api_key, {"X-Memorygw-User": "ada"}
        async with (
            openai.AsyncOpenAI(base_url=base_url, api_key=key, default_headers=headers) as one,
            one.chat.completions.stream(model="main", messages=HELLO) as stream,
        ):
            return (await stream.get_final_completion()).choices[0].message.content or ""

    model.reply("Hi there.", model="main")
    assert asyncio.run(listen()) == "Hi there."
    assert threads() == [["user: Hello", "assistant: Hi there."]]


def test_structured_output_is_parsed(sdk: openai.OpenAI, model: ScriptedModelServer) -> None:
    model.reply({"name": "Ada"}, model="main")
    parsed = sdk.chat.completions.parse(model="main", messages=HELLO, response_format=Person)
    assert parsed.choices[0].message.parsed == Person(name="Ada")


# --- errors


def test_an_error_of_the_model_keeps_its_status_and_words(sdk: openai.OpenAI, model: ScriptedModelServer) -> None:
    model.fail(429, model="main", headers={"Retry-After": "7"}, error={"message": "Slow down", "type": "rate_limit"})
    with pytest.raises(openai.RateLimitError) as refused:
        sdk.chat.completions.create(model="main", messages=HELLO)
    assert (refused.value.type, refused.value.response.headers["Retry-After"]) == ("rate_limit", "7")
    assert "Slow down" in str(refused.value)
    model.fail(401, model="main")
    with pytest.raises(openai.APIStatusError) as failed:
        sdk.chat.completions.create(model="main", messages=[user("Again")])  # type: ignore[list-item]
    assert (failed.value.status_code, failed.value.code) == (502, "model_failed")


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"n": 2}, "n"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "messages[0].role"),
        ({"messages": [*HELLO, {"role": "assistant", "content": "x"}]}, "messages"),
        ({"messages": [{"role": "tool", "tool_call_id": "c1", "content": "x"}]}, "turns[0].tool_call_id"),
        ({"messages": "Hello"}, "messages"),
    ],
)
def test_what_cannot_be_is_told_in_openais_words(sdk: openai.OpenAI, body: dict[str, Any], param: str) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        sdk.post("/chat/completions", body={"model": "main", "messages": HELLO, **body}, cast_to=object)
    assert (refused.value.type, refused.value.param) == ("invalid_request_error", param)
    assert not Turn.objects.exists()


def test_a_user_is_named_once_and_a_thread_is_ones_own(sdk: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as mismatch:
        sdk.chat.completions.create(model="main", messages=HELLO, user="bob")
    assert mismatch.value.code == "user_mismatch"
    with pytest.raises(openai.NotFoundError):
        sdk.chat.completions.create(model="main", messages=HELLO, metadata={"thread_id": "nobody's"})
    with pytest.raises(openai.AuthenticationError):
        sdk.with_options(api_key="mgw_x").chat.completions.create(model="main", messages=HELLO)


def test_models_are_those_of_the_upstream(sdk: openai.OpenAI, model: ScriptedModelServer) -> None:
    model.defaults["main"] = "ok"
    assert {"main", "cheap"} <= {found.id for found in sdk.models.list()}


def test_a_stream_that_breaks_says_so_and_leaves_the_thread_free(
    sdk: openai.OpenAI, model: ScriptedModelServer
) -> None:
    model.stream("One ", "two", ends=False, model="main")
    with pytest.raises(openai.APIError):
        list(sdk.chat.completions.create(model="main", messages=HELLO, stream=True))
    assert threads() == [["user: Hello", "assistant: One two"]]
    history: list[Any] = [*HELLO, {"role": "assistant", "content": "One two"}, user("Go on")]
    sdk.chat.completions.create(model="main", messages=history)
    assert len(threads()) == 1
    assert json.dumps(said_to(model)) == json.dumps([("user", "Hello"), ("assistant", "One two"), ("user", "Go on")])


def test_the_example_runs(
    sdk: openai.OpenAI,
    model: ScriptedModelServer,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", str(sdk.base_url))
    monkeypatch.setenv("OPENAI_API_KEY", sdk.api_key)
    for answer in ("Hi Ada.", "The Mole.", "In Turin."):
        model.reply(answer, model="gpt-5.4-mini")
    runpy.run_path(str(EXAMPLE))["client"].close()
    assert capsys.readouterr().out == "Hi Ada.\nThe Mole.\nIn Turin.\n"
    assert [len(turns) for turns in threads()] == [4, 2]


def test_the_example_of_an_agent_framework_runs(
    sdk: openai.OpenAI,
    model: ScriptedModelServer,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Its tool runs at its side, between two requests of one conversation."""
    monkeypatch.setenv("OPENAI_BASE_URL", str(sdk.base_url))
    monkeypatch.setenv("OPENAI_API_KEY", sdk.api_key)
    model.reply(None, model="gpt-5.4-mini", tool_calls=[call("find_meetups", "c1", city="Turin")])
    model.reply("Python Turin.", model="gpt-5.4-mini")
    runpy.run_path(str(EXAMPLE.with_name("openai_agents_chat.py")))
    assert capsys.readouterr().out == "Python Turin.\n"
    [turns] = threads()
    assert turns == [
        "user: Which meetups are near me?",
        "assistant: None",
        "tool: Python Turin, Thursday at 19:00",
        "assistant: Python Turin.",
    ]


def test_an_unknown_path_is_told_in_the_envelope(sdk: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as unknown:
        sdk.embeddings.create(model="main", input="Hello")
    assert unknown.value.code == "not_found"
