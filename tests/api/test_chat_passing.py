"""What a chat passes on that is not memorygw's: fields of messages and calls, answers without words, errors."""

import json
from typing import Any

import openai
import pytest
from pytest_django import Settings

from memorygw.models import Persona, Tenant
from memorygw.testing import ScriptedModelServer
from tests.api.test_chat import HELLO, WEATHER, said_to, threads, user
from tests.api.test_chat_places import MORE, assistant, chat
from tests.memorygw.runs import call
from threads.models import Run, Thread, Turn

pytestmark = pytest.mark.django_db(transaction=True)


# --- messages


def test_fields_of_a_message_are_sent_along_now_and_later(sdk: openai.OpenAI, model: ScriptedModelServer) -> None:
    named = {"role": "user", "content": "Hello", "name": "Ada"}
    thought = {"role": "assistant", "content": "Hi", "reasoning_content": "She greets.", "audio": None}
    chat(sdk, [named, thought, {"role": "user", "content": "And?", "name": "Ada"}])
    sent = model.requests_for("main")[-1].messages
    assert sent == [named, {key: value for key, value in thought.items() if value}, named | {"content": "And?"}]
    chat(sdk, [named, thought, named | {"content": "And?"}, assistant("ok"), user("So?")])
    assert model.requests_for("main")[-1].messages[:3] == sent
    assert len(threads()) == 1


def test_a_signature_of_a_call_goes_to_the_client_and_back_to_the_model(
    sdk: openai.OpenAI, model: ScriptedModelServer
) -> None:
    signed = {**call("get_weather", "c1", city="Turin"), "extra_content": {"google": {"thought_signature": "abc"}}}
    result = {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "sun"}]}
    for streams in (False, True):
        question = user(f"Weather? {streams}")
        model.reply(None, model="main", tool_calls=[signed])
        if streams:
            options: Any = {"messages": [question], "tools": [WEATHER], "stream": True}
            chunks = sdk.chat.completions.create(model="main", **options)
            made = next(part for chunk in chunks for part in chunk.choices[0].delta.tool_calls or ())
        else:
            reply: Any = sdk.chat.completions.create(model="main", messages=[question], tools=[WEATHER])  # type: ignore[list-item]
            [made] = reply.choices[0].message.tool_calls
        seen = made.model_dump(exclude={"index"})
        assert seen == signed
        chat(sdk, [question, {"role": "assistant", "content": None, "tool_calls": [seen]}, result], tools=[WEATHER])
        _, called, answered = model.requests_for("main")[-1].messages
        assert (called["tool_calls"], answered["content"]) == ([signed], "sun")


def test_a_clients_text_is_no_template(sdk: openai.OpenAI, model: ScriptedModelServer, tenant: Tenant) -> None:
    Persona.objects.create(tenant=tenant, name="clerk", instructions="Be kind.")
    text = "Write {memory} where memory goes."
    chat(sdk, [{"role": "system", "content": text}, *HELLO])
    assert model.requests_for("main")[-1].system == text


# --- answers without words


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("reason", ["length", "content_filter"])
def test_an_answer_without_words_is_passed_on_and_not_stored(
    sdk: openai.OpenAI, model: ScriptedModelServer, reason: str, streams: bool
) -> None:
    model.reply("", model="main", finish_reason=reason)
    if streams:
        chunks = list(sdk.chat.completions.create(model="main", messages=HELLO, stream=True))
        assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == reason
        assert not any(chunk.choices[0].delta.content for chunk in chunks if chunk.choices)
    else:
        reply = sdk.chat.completions.create(model="main", messages=HELLO)
        assert (reply.choices[0].finish_reason, reply.choices[0].message.content) == (reason, "")
    assert threads() == [["user: Hello"]]
    assert (Run.objects.get().status, Run.objects.get().error) == ("failed", "empty")
    assert Thread.objects.get().lease_token is None
    # The client sends the empty answer along, as it has it.
    assert chat(sdk, [*HELLO, assistant(""), user("Go on.")]) == "ok"
    assert threads() == [["user: Hello", "user: Go on.", "assistant: ok"]]


def test_a_sound_is_passed_on(sdk: openai.OpenAI, model: ScriptedModelServer) -> None:
    audio = {"id": "audio_1", "data": "UklGRg==", "transcript": "Hello.", "expires_at": 1}
    message = {"role": "assistant", "content": None, "audio": audio}
    choices = [{"index": 0, "finish_reason": "stop", "message": message}]
    whole = {"id": "x", "object": "chat.completion", "created": 1, "model": "main", "choices": choices}
    model.garbage(json.dumps(whole).encode(), content_type="application/json", model="main")
    reply = sdk.chat.completions.create(model="main", messages=HELLO, extra_body={"modalities": ["text", "audio"]})
    assert reply.choices[0].message.audio
    assert reply.choices[0].message.audio.model_dump() == audio


def test_a_streamed_answer_that_was_cut_says_so(sdk: openai.OpenAI, model: ScriptedModelServer) -> None:
    model.reply("Half an", model="main", finish_reason="length")
    chunks = list(sdk.chat.completions.create(model="main", messages=HELLO, stream=True))
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "length"
    assert threads() == [["user: Hello", "assistant: Half an"]]


# --- errors


@pytest.mark.parametrize("first_words", [[], ["One "]])
def test_the_words_of_an_error_in_a_stream_are_the_upstreams(
    sdk: openai.OpenAI, model: ScriptedModelServer, first_words: list[str]
) -> None:
    error = {"error": {"message": "Too many.", "type": "rate_limit_error", "code": "slow_down"}}
    model.stream(*first_words, b"data: " + json.dumps(error).encode() + b"\n\n", ends=False, model="main")
    with pytest.raises(openai.APIError) as caught:
        list(sdk.chat.completions.create(model="main", messages=HELLO, stream=True))
    body: Any = caught.value.body
    assert (body["message"], body["type"], body["code"]) == ("Too many.", "rate_limit_error", "slow_down")
    assert Run.objects.get().error == "stream_error"


def test_what_does_not_fit_is_not_stored(sdk: openai.OpenAI, model: ScriptedModelServer, settings: Settings) -> None:
    settings.MEMORYGW_CONTEXT_WINDOW, settings.MEMORYGW_OUTPUT_RESERVE = 300, 100
    with pytest.raises(openai.APIStatusError, match="too large"):
        chat(sdk, [*HELLO, assistant("Hi"), user("word " * 400)])
    assert threads() == []
    model.reply(None, model="main", tool_calls=[call("get_weather", "c1", city="Turin")])
    sdk.chat.completions.create(model="main", messages=HELLO, tools=[WEATHER])
    before = Turn.objects.count()
    made = {"role": "assistant", "content": None, "tool_calls": [call("get_weather", "c1", city="Turin")]}
    result = {"role": "tool", "tool_call_id": "c1", "content": "sun " * 150}
    with pytest.raises(openai.APIStatusError, match="too large"):
        chat(sdk, [*HELLO, made, result], tools=[WEATHER])
    assert Turn.objects.count() == before
    assert chat(sdk, [*HELLO, made, result | {"content": "sun"}], tools=[WEATHER]) == "ok"


# --- the same question to another model


def test_another_model_is_asked_anew_and_the_same_one_is_not(sdk: openai.OpenAI, model: ScriptedModelServer) -> None:
    chat(sdk, HELLO)
    chat(sdk, MORE)
    model.reply("Second opinion.", model="other")
    asked = {"messages": MORE, "stream": False}
    assert sdk.chat.completions.create(model="other", **asked).choices[0].message.content == "Second opinion."  # type: ignore[call-overload]
    assert threads()[1] == ["user: Hello", "assistant: ok", "user: More", "assistant: Second opinion."]
    model.reply("With tools.", model="main")
    assert chat(sdk, MORE, tools=[WEATHER]) == "With tools."
    assert chat(sdk, MORE) == "ok"
    assert said_to(model)[-1] == ("user", "More")
    assert len(model.requests_for("main")) == 3
