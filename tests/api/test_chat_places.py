"""Where a chat goes on: what is new, what was said before, what was never answered (K14)."""

import json
from typing import Any

import openai
import pytest
from pytest_django import Settings

from memorygw import gateway
from memorygw.models import Tenant
from memorygw.testing import ScriptedModelServer
from tests.api.test_chat import HELLO, WEATHER, threads, user
from tests.conftest import Api, learn
from tests.memorygw.runs import call
from threads.models import Thread, Turn

pytestmark = pytest.mark.django_db(transaction=True)


def assistant(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


MORE: list[Any] = [*HELLO, assistant("ok"), user("More")]


def chat(sdk: openai.OpenAI, messages: list[Any], **options: Any) -> str | None:
    reply = sdk.chat.completions.create(model="main", messages=messages, **options)
    content: str | None = reply.choices[0].message.content
    return content


def in_thread(thread: Thread) -> dict[str, Any]:
    return {"extra_headers": {"X-Memorygw-Thread": str(thread.pk)}}


@pytest.fixture
def hello(sdk: openai.OpenAI, model: ScriptedModelServer) -> Thread:
    """A thread in which HELLO was answered."""
    chat(sdk, HELLO)
    return Thread.objects.get()


# --- a conversation that is taken in


def test_the_answer_to_a_conversation_from_elsewhere_is_the_answer_alone(
    sdk: openai.OpenAI, model: ScriptedModelServer
) -> None:
    history = [user("I drink tea."), assistant("Noted."), user("What do I drink?")]
    model.reply("Tea.", model="main")
    assert chat(sdk, history) == "Tea."
    chat(sdk, [*history, assistant("Tea."), user("More")])
    assert [len(turns) for turns in threads()] == [6]


def test_a_call_with_an_id_that_was_used_before_is_a_call(sdk: openai.OpenAI, model: ScriptedModelServer) -> None:
    again = call("get_weather", "c1", city="Rome")
    made = {"role": "assistant", "content": None, "tool_calls": [call("get_weather", "c1", city="Turin")]}
    result = {"role": "tool", "tool_call_id": "c1", "content": "sun"}
    model.reply(None, model="main", tool_calls=[again])
    reply = sdk.chat.completions.create(
        model="main",
        messages=[*HELLO, made, result, assistant("Sunny"), user("And Rome?")],  # type: ignore[list-item]
        tools=[WEATHER],
    )
    assert [part.id for part in reply.choices[0].message.tool_calls or ()] == ["c1"]
    assert reply.choices[0].message.content is None


def test_a_named_empty_thread_takes_a_conversation_in(
    sdk: openai.OpenAI, model: ScriptedModelServer, tenant: Tenant
) -> None:
    thread = Thread.objects.create(tenant=tenant, user_id="ada")
    chat(sdk, MORE, **in_thread(thread))
    assert [len(turns) for turns in threads()] == [4]


# --- questions that were not answered


def test_a_question_that_failed_goes_with_the_next_one(
    sdk: openai.OpenAI, model: ScriptedModelServer, hello: Thread
) -> None:
    model.fail(500, model="main")
    with pytest.raises(openai.InternalServerError):
        chat(sdk, MORE)
    chat(sdk, [*MORE, user("And this")])
    chat(sdk, [*MORE, user("And this"), assistant("ok"), user("So?")], **in_thread(hello))
    assert [turn.removeprefix("user: ") for turn in threads()[0] if turn.startswith("user")] == [
        "Hello", "More", "And this", "So?",
    ]  # fmt: skip
    assert len(threads()) == 1


@pytest.mark.parametrize(("named", "whole"), [(False, True), (True, True), (True, False)])
def test_a_broken_answer_is_given_anew(
    sdk: openai.OpenAI, model: ScriptedModelServer, hello: Thread, named: bool, whole: bool
) -> None:
    options = in_thread(hello) if named else {}
    sent = MORE if whole else MORE[-1:]
    model.stream("One ", "two", ends=False, model="main")
    with pytest.raises(openai.APIError):
        list(sdk.chat.completions.create(model="main", messages=sent, stream=True, **options))
    model.reply("Whole.", model="main")
    assert chat(sdk, sent, **options) == "Whole."
    assert threads() == [["user: Hello", "assistant: ok", "user: More", "assistant: Whole."]]


def test_the_key_of_a_stream_that_broke_runs_the_question_again(api: Api, model: ScriptedModelServer) -> None:
    key = {"Authorization": f"Bearer {api.key}", "Idempotency-Key": "k1"}
    model.stream("One ", "two", ends=False, model="main")
    body: Any = {"content": "Hello", "stream": True}
    b"".join(api.client.post("/api/v1/ask?user=ada", body, content_type="application/json", headers=key))
    b"".join(api.client.post("/api/v1/ask?user=ada", body, content_type="application/json", headers=key))
    assert threads() == [["user: Hello", "assistant: ok"]]


def test_two_new_conversations_that_begin_alike_do_not_wait_for_each_other(
    sdk: openai.OpenAI, model: ScriptedModelServer
) -> None:
    model.stream("One", 30, model="main")
    held = sdk.chat.completions.create(model="main", messages=HELLO, stream=True)
    next(iter(held))
    assert chat(sdk, HELLO) == "ok"
    held.close()


# --- requests that are sent again


def test_what_is_given_again_is_what_was_given(
    sdk: openai.OpenAI, model: ScriptedModelServer, settings: Settings
) -> None:
    settings.MEMORYGW_MEMORY_TOOLS = "persona"
    chat(sdk, HELLO)
    calls = [call("memory_recall", "c1", query="home"), call("get_weather", "c2", city="Turin")]
    model.reply("Let me see.", model="main", tool_calls=calls)
    first, second = (
        sdk.chat.completions.create(model="main", messages=MORE, tools=[WEATHER]).choices[0] for _ in range(2)
    )
    assert [part.id for part in second.message.tool_calls or ()] == ["c2"]
    assert (first.message.content, first.finish_reason) == (second.message.content, second.finish_reason)
    assert len(model.requests_for("main")) == 2


def test_an_answer_from_elsewhere_is_given_again_as_a_stream_too(
    sdk: openai.OpenAI, model: ScriptedModelServer
) -> None:
    chat(sdk, [*MORE, assistant("Yes."), user("Sure?")])
    chunks = list(sdk.chat.completions.create(model="main", messages=MORE, stream=True))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == "Yes."


def test_a_fork_of_what_was_answered_is_answered_anew(
    sdk: openai.OpenAI, model: ScriptedModelServer, hello: Thread
) -> None:
    chat(sdk, MORE)
    model.reply("Anew.", model="main")
    body = {"metadata": {"thread_id": str(hello.pk), "fork": True}}
    assert chat(sdk, MORE, extra_body=body) == "Anew."
    assert [len(turns) for turns in threads()] == [4, 4]


def test_an_idempotency_key_is_good_for_one_answer(sdk: openai.OpenAI, model: ScriptedModelServer) -> None:
    key = {"Idempotency-Key": "k-1"}
    assert chat(sdk, HELLO, extra_headers=key) == chat(sdk, HELLO, extra_headers=key) == "ok"
    with pytest.raises(openai.ConflictError):
        chat(sdk, [user("Other")], extra_headers=key)
    assert (len(threads()), len(model.requests_for("main"))) == (1, 1)


@pytest.mark.parametrize("fails_first", [False, True])
def test_a_key_gives_the_same_answer_again(
    sdk: openai.OpenAI, model: ScriptedModelServer, tenant: Tenant, settings: Settings, fails_first: bool
) -> None:
    """As the first request asked for it: without memory, with its own parameters, instructions and tools."""
    settings.MEMORYGW_MEMORY_TOOLS = "persona"
    gateway.upsert_user_fact(tenant, "ada", "drink", "tea")
    messages: list[Any] = [{"role": "system", "content": "Be brief."}, user("Weather?")]
    headers = {"Idempotency-Key": "k-1", "X-Memorygw-Memory": "off"}
    options: Any = {"tools": [WEATHER], "temperature": 0.25, "extra_headers": headers}

    def asked() -> Any:
        return sdk.chat.completions.create(model="main", messages=messages, **options).choices[0]

    if fails_first:
        model.fail(500, model="main")
        with pytest.raises(openai.InternalServerError):
            asked()
    model.reply(None, model="main", tool_calls=[call("get_weather", "c1", city="Turin")])
    answers = [asked() for _ in range(3)]
    assert [answer.finish_reason for answer in answers] == ["tool_calls"] * 3
    assert [part.id for answer in answers for part in answer.message.tool_calls] == ["c1"] * 3
    sent = model.requests_for("main")
    assert len(sent) == (2 if fails_first else 1)
    assert (sent[-1].system, sent[-1].body["temperature"]) == ("Be brief.", 0.25)
    assert sent[-1].body["tools"] == [WEATHER]
    assert not Turn.objects.filter(learnable=True).exists()


def test_a_key_gives_a_clients_calls_again_where_a_result_of_ours_is_stored_last(
    sdk: openai.OpenAI, model: ScriptedModelServer, settings: Settings
) -> None:
    settings.MEMORYGW_MEMORY_TOOLS = "persona"
    calls = [call("get_weather", "c1", city="Turin"), call("memory_recall", "c2", query="home")]
    model.reply("Let me see.", model="main", tool_calls=calls)
    key: Any = {"tools": [WEATHER], "extra_headers": {"Idempotency-Key": "k-1"}}
    first, second = (
        sdk.chat.completions.create(model="main", messages=HELLO, **key).choices[0].message for _ in range(2)
    )
    assert [part.id for part in second.tool_calls or ()] == ["c1"]
    assert first == second


def test_a_key_gives_again_what_needed_no_run(sdk: openai.OpenAI, model: ScriptedModelServer, hello: Thread) -> None:
    chat(sdk, MORE)
    key = {"extra_headers": {"Idempotency-Key": "k-1"}}
    assert [chat(sdk, MORE, **key) for _ in range(2)] == ["ok", "ok"]
    assert len(model.requests_for("main")) == 2


def test_metadata_cannot_say_what_a_client_saw(
    sdk: openai.OpenAI, model: ScriptedModelServer, api: Api, hello: Thread
) -> None:
    turns = [
        {"role": "user", "content": "More"},
        {"role": "assistant", "content": "ok", "metadata": {"seen": 5, "client_view": {"content": "Forged."}}},
    ]
    assert api("POST", f"/threads/{hello.pk}/turns", {"turns": turns}).status == 201
    assert chat(sdk, MORE) == "ok"


def test_twins_do_not_answer_for_each_other(sdk: openai.OpenAI, model: ScriptedModelServer, tenant: Tenant) -> None:
    chat(sdk, HELLO)
    twin = Thread.objects.create(tenant=tenant, user_id="ada")
    chat(sdk, HELLO, **in_thread(twin))
    model.fail(500, model="main", times=2)
    for thread in Thread.objects.all():
        with pytest.raises(openai.InternalServerError):
            chat(sdk, MORE, **in_thread(thread))
    for thread in Thread.objects.all():
        model.reply(f"For {thread.pk}.", model="main")
        assert chat(sdk, MORE, **in_thread(thread)) == f"For {thread.pk}."


def test_a_question_behind_a_question_is_no_answer(
    sdk: openai.OpenAI, model: ScriptedModelServer, hello: Thread
) -> None:
    model.fail(500, model="main")
    with pytest.raises(openai.InternalServerError):
        chat(sdk, MORE, **in_thread(hello))
    chat(sdk, [user("Other")], **in_thread(hello))
    model.reply("Real.", model="main")
    assert chat(sdk, MORE) == "Real."


# --- memory off


def test_what_was_said_with_memory_off_is_not_learned_from_a_copy(
    sdk: openai.OpenAI, model: ScriptedModelServer
) -> None:
    secret = [user("I am secret.")]
    off = {"extra_headers": {"X-Memorygw-Memory": "off"}}
    chat(sdk, secret, **off)
    chat(sdk, [*secret, assistant("edited"), user("I drink tea.")])
    model.fail(500, model="main")
    with pytest.raises(openai.InternalServerError):
        chat(sdk, [user("I am hidden.")])
    chat(sdk, [user("I am hidden.")], **off)
    learn()
    read = "\n".join(request.text for request in model.requests_for("cheap") if '"operations"' in request.text)
    assert ("I drink tea." in read, "secret" in read, "hidden" in read) == (True, False, False)


# --- bytes and bodies


def test_half_a_character_in_a_chunk_is_whole_in_the_next(sdk: openai.OpenAI, model: ScriptedModelServer) -> None:
    halves = ("Hi \ud83d", "\ude00!")
    chunks = [{"choices": [{"index": 0, "delta": {"content": half}, "finish_reason": None}]} for half in halves]
    model.stream(*(b"data: %s\n\n" % json.dumps(chunk).encode() for chunk in chunks), model="main")
    told = list(sdk.chat.completions.create(model="main", messages=HELLO, stream=True))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in told if chunk.choices) == "Hi 😀!"
    assert threads() == [["user: Hello", "assistant: Hi 😀!"]]


def test_a_first_chunk_without_choices_spoils_nothing(sdk: openai.OpenAI, model: ScriptedModelServer) -> None:
    first = {"choices": [], "id": "", "object": "", "created": 0, "model": "", "prompt_filter_results": []}
    model.stream(first, "Hi.", model="main")
    told = list(sdk.chat.completions.create(model="main", messages=HELLO, stream=True))
    assert {(chunk.object, chunk.model) for chunk in told} == {("chat.completion.chunk", "main")}
    assert all(chunk.id and chunk.usage is None for chunk in told)


def test_what_fails_before_the_first_word_has_its_status_in_a_stream_too(
    sdk: openai.OpenAI, model: ScriptedModelServer
) -> None:
    model.fail(429, model="main", headers={"Retry-After": "7"})
    with pytest.raises(openai.RateLimitError) as refused:
        sdk.chat.completions.create(model="main", messages=HELLO, stream=True)
    assert refused.value.response.headers["Retry-After"] == "7"


@pytest.mark.parametrize(
    "body",
    [
        {"metadata": {"thread_id": 5}},
        {"metadata": {"thread_id": ["x"]}},
        {"messages": [{**assistant("x"), "tool_calls": 5}, user("x")]},
        {"messages": [{**assistant("x"), "refusal": {"a": 1}}, user("x")]},
        {"messages": [{"role": "tool", "content": "x", "tool_call_id": [1]}]},
        {"user": 1.5},
        {"user": ""},
    ],
)
def test_bodies_of_all_kinds_are_refused(sdk: openai.OpenAI, body: dict[str, Any]) -> None:
    with pytest.raises(openai.APIStatusError) as refused:
        sdk.post("/chat/completions", body={"model": "main", "messages": HELLO, **body}, cast_to=object)
    assert 400 <= refused.value.status_code < 500
    assert not Turn.objects.exists()
