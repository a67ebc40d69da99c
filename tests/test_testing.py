"""The scripted model server, seen through the openai package: the client that a host project has too."""

import json
import math
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletion

from memorygw.testing import RecordedRequest, ScriptedModelServer

AT_ONCE = {"Retry-After": "0.01"}
TOOL_CALL = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Oslo"}'}}


@pytest.fixture
def server() -> Iterator[ScriptedModelServer]:
    with ScriptedModelServer() as server:
        yield server


@pytest.fixture
def client(server: ScriptedModelServer) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=server.base_url, api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor() as pool:
        yield pool


def complete(client: openai.OpenAI, text: str = "hi", model: str = "main", **options: Any) -> ChatCompletion:
    completion = client.chat.completions.create(model=model, messages=[{"role": "user", "content": text}], **options)
    assert isinstance(completion, ChatCompletion)
    return completion


def ask(client: openai.OpenAI, text: str = "hi", model: str = "main") -> str | None:
    return complete(client, text, model).choices[0].message.content


def stream(client: openai.OpenAI, **options: Any) -> list[Any]:
    messages: Any = [{"role": "user", "content": "hi"}]
    return list(client.chat.completions.create(model="main", messages=messages, stream=True, **options))


def test_a_reply_is_a_whole_chat_completion(server: ScriptedModelServer, client: openai.OpenAI) -> None:
    server.reply("hello", prompt_tokens=7, completion_tokens=3, finish_reason="length")
    completion = complete(client)
    (choice,), usage = completion.choices, completion.usage
    assert (completion.object, completion.model) == ("chat.completion", "main")
    assert completion.id.startswith("chatcmpl-")
    assert abs(completion.created - time.time()) < 60
    assert (choice.message.role, choice.message.content, choice.finish_reason) == ("assistant", "hello", "length")
    assert usage
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (7, 3, 10)


def test_a_reply_may_refuse_call_tools_or_say_nothing(server: ScriptedModelServer, client: openai.OpenAI) -> None:
    server.reply(None, refusal="no")
    server.reply(None, tool_calls=[TOOL_CALL])
    refused, called = complete(client).choices[0], complete(client).choices[0]
    assert (refused.message.content, refused.message.refusal, refused.finish_reason) == (None, "no", "stop")
    assert called.finish_reason == "tool_calls"
    assert called.message.tool_calls
    assert called.message.tool_calls[0].to_dict() == TOOL_CALL


def test_each_model_takes_its_own_replies_in_order(server: ScriptedModelServer, client: openai.OpenAI) -> None:
    server.reply("cheap 1", model="cheap")
    server.reply("main 1", model="main")
    server.reply("anyone's")
    server.reply("main 2", model="main")
    assert [ask(client, model="main") for _ in range(3)] == ["main 1", "anyone's", "main 2"]
    assert [ask(client, model="cheap") for _ in range(2)] == ["cheap 1", "ok"]


def test_a_reply_is_good_for_as_many_requests_as_it_says(server: ScriptedModelServer, client: openai.OpenAI) -> None:
    server.reply("again", times=2)
    assert [ask(client) for _ in range(3)] == ["again", "again", "ok"]


def test_a_dict_or_list_is_sent_as_json_text(server: ScriptedModelServer, client: openai.OpenAI) -> None:
    server.reply({"operations": [], "name": "Zoë"})
    server.reply([1])
    assert ask(client) == '{"operations": [], "name": "Zoë"}'
    assert ask(client) == "[1]"


def test_the_default_answers_when_nothing_is_scripted(server: ScriptedModelServer, client: openai.OpenAI) -> None:
    server.default = lambda request: f"{request.last_user}?"
    server.defaults["cheap"] = {"operations": []}
    assert ask(client, "tea") == "tea?"
    assert ask(client, "tea", model="cheap") == '{"operations": []}'


def test_an_exception_of_a_function_is_raised_by_close() -> None:
    server = ScriptedModelServer()
    server.default = lambda _: str(1 / 0)
    with openai.OpenAI(base_url=server.base_url, api_key="none", max_retries=0) as client:
        with pytest.raises(openai.APIConnectionError):
            ask(client)
        with pytest.raises(ZeroDivisionError):
            server.close()


def test_a_failed_request_is_retried_by_the_sdk(server: ScriptedModelServer, client: openai.OpenAI) -> None:
    server.fail(500, headers=AT_ONCE)
    server.fail(429, headers=AT_ONCE, model="main")
    server.reply("at last")
    assert ask(client.with_options(max_retries=2)) == "at last"
    assert [request.headers["x-stainless-retry-count"] for request in server.requests] == ["0", "1", "2"]


def test_a_failure_is_an_error_of_openai(server: ScriptedModelServer, client: openai.OpenAI) -> None:
    server.fail(400, error={"message": "No temperature.", "param": "temperature"}, headers={"X-Request-Id": "req-1"})
    with pytest.raises(openai.BadRequestError, match=r"No temperature\.") as caught:
        ask(client)
    assert (caught.value.param, caught.value.type) == ("temperature", "invalid_request_error")
    assert caught.value.request_id == "req-1"


def test_garbage_is_sent_as_it_is(server: ScriptedModelServer, client: openai.OpenAI) -> None:
    server.garbage(b"<html>")
    server.garbage(b"{", content_type="application/json", model="main")
    server.garbage(b"<html>", status=502)
    assert client.chat.completions.with_raw_response.create(model="main", messages=[]).text == "<html>"
    with pytest.raises(json.JSONDecodeError):
        ask(client)
    with pytest.raises(openai.InternalServerError):
        ask(client)


@pytest.mark.parametrize("after_bytes", [None, 0, 20])
def test_a_disconnect_ends_one_request(
    server: ScriptedModelServer, client: openai.OpenAI, after_bytes: int | None
) -> None:
    server.disconnect(after_bytes=after_bytes)
    with pytest.raises(openai.APIConnectionError):
        ask(client)
    assert ask(client) == "ok"


def test_a_stream_may_break_off(server: ScriptedModelServer, client: openai.OpenAI) -> None:
    server.disconnect(after_bytes=400)
    chunks = client.chat.completions.create(model="main", messages=[], stream=True)
    assert next(chunks).choices[0].delta.role == "assistant"
    with pytest.raises(openai.APIConnectionError):
        list(chunks)


def test_a_delayed_reply_is_late(server: ScriptedModelServer, client: openai.OpenAI) -> None:
    server.reply("late", delay_seconds=0.1)
    started = time.monotonic()
    assert ask(client) == "late"
    assert time.monotonic() - started >= 0.1


def test_a_client_may_give_up_on_a_delayed_reply(server: ScriptedModelServer, client: openai.OpenAI) -> None:
    server.reply("never", delay_seconds=30)
    with pytest.raises(openai.APITimeoutError):
        ask(client.with_options(timeout=0.05))
    assert len(server.requests) == 1


def test_a_held_request_is_recorded_and_waits(
    server: ScriptedModelServer, client: openai.OpenAI, pool: ThreadPoolExecutor
) -> None:
    server.reply("first")
    with server.hold():
        first = pool.submit(ask, client, "one")
        assert server.wait_for_requests(1)[0].last_user == "one"
        server.reply("second")
        second = pool.submit(ask, client, "two")
        server.wait_for_requests(2)
        assert not first.done()
        assert not second.done()
    assert (first.result(10), second.result(10)) == ("first", "second")


def test_a_hold_may_be_for_one_model(
    server: ScriptedModelServer, client: openai.OpenAI, pool: ThreadPoolExecutor
) -> None:
    with server.hold("cheap"):
        held = pool.submit(ask, client, model="cheap")
        server.wait_for_requests(1, model="cheap")
        assert ask(client, model="main") == "ok"
        assert not held.done()
    assert held.result(10) == "ok"


def test_closing_answers_what_is_held_or_delayed(pool: ThreadPoolExecutor) -> None:
    server = ScriptedModelServer()
    server.reply("delayed", delay_seconds=30, model="main")
    with openai.OpenAI(base_url=server.base_url, api_key="none") as client, server.hold("cheap"):
        delayed, held = pool.submit(ask, client), pool.submit(ask, client, model="cheap")
        server.wait_for_requests(2)
        server.close()
        assert (delayed.result(10), held.result(10)) == ("delayed", "ok")


def test_a_closed_server_answers_no_more() -> None:
    with ScriptedModelServer() as server:
        client = openai.OpenAI(base_url=server.base_url, api_key="none", max_retries=0)
        ask(client)
    with client, pytest.raises(openai.APIConnectionError):
        ask(client)
    server.close()
    assert len(server.requests) == 1


def test_waiting_in_vain_says_what_arrived(server: ScriptedModelServer, client: openai.OpenAI) -> None:
    ask(client, model="main")
    with pytest.raises(TimeoutError, match=r"No 2 requests for cheap in 0\.01 s; arrived: POST /v1/chat/comp.* main\."):
        server.wait_for_requests(2, model="cheap", timeout_seconds=0.01)


def test_a_reply_is_streamed_in_pieces(server: ScriptedModelServer, client: openai.OpenAI) -> None:
    server.reply("hello, world", prompt_tokens=7, completion_tokens=3)
    *chunks, last = stream(client, stream_options={"include_usage": True})
    pieces = [chunk.choices[0].delta.content for chunk in chunks if chunk.choices[0].delta.content]
    assert len(pieces) > 1
    assert "".join(pieces) == "hello, world"
    assert {chunk.object for chunk in [*chunks, last]} == {"chat.completion.chunk"}
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-1].choices[0].finish_reason == "stop"
    assert (last.choices, last.usage.total_tokens) == ([], 10)


def test_usage_is_streamed_only_on_request(server: ScriptedModelServer, client: openai.OpenAI) -> None:
    assert all(chunk.usage is None and chunk.choices for chunk in stream(client))


def test_a_refusal_and_tool_calls_are_streamed(server: ScriptedModelServer, client: openai.OpenAI) -> None:
    server.reply(None, refusal="no", tool_calls=[TOOL_CALL])
    deltas = [chunk.choices[0].delta for chunk in stream(client)]
    assert not any(delta.content for delta in deltas)
    assert [delta.refusal for delta in deltas if delta.refusal] == ["no"]
    assert [call.to_dict() for delta in deltas for call in delta.tool_calls or []] == [{"index": 0, **TOOL_CALL}]


def test_embeddings_are_unit_vectors_of_their_input(server: ScriptedModelServer, client: openai.OpenAI) -> None:
    answer = client.embeddings.create(model="embed", input=["a b", "c", "a b"])
    first, other, same = [item.embedding for item in answer.data]
    assert len(first) == 8
    assert math.hypot(*first) == pytest.approx(1)
    assert first == same != other
    assert (answer.model, answer.usage.prompt_tokens, answer.usage.total_tokens) == ("embed", 5, 5)


def test_embeddings_take_one_text_or_tokens(server: ScriptedModelServer, client: openai.OpenAI) -> None:
    inputs: list[Any] = ["a", [1, 2], [[1, 2], [3]]]
    answers = [client.embeddings.create(model="embed", input=value) for value in inputs]
    assert [len(answer.data) for answer in answers] == [1, 1, 2]
    assert answers[1].data[0].embedding == answers[2].data[0].embedding


def test_embeddings_leave_the_script_alone(server: ScriptedModelServer, client: openai.OpenAI) -> None:
    server.reply("for the chat")
    with server.hold():
        client.embeddings.create(model="main", input="a")
    assert ask(client) == "for the chat"


def test_a_text_has_the_embedding_that_a_test_gave_it(server: ScriptedModelServer, client: openai.OpenAI) -> None:
    server.embeddings["a"] = [0.5, -1]
    answer = client.embeddings.create(model="embed", input=["b", "a"], encoding_format="float")
    assert [len(item.embedding) for item in answer.data] == [8, 2]
    assert answer.data[1].embedding == [0.5, -1]


def test_what_names_the_embedding_model_is_for_its_requests(
    server: ScriptedModelServer, client: openai.OpenAI, pool: ThreadPoolExecutor
) -> None:
    server.fail(500, model="embed")
    server.garbage(b"{", content_type="application/json", model="embed")
    with pytest.raises(openai.InternalServerError):
        client.embeddings.create(model="embed", input="a")
    with pytest.raises(ValueError, match="property name"):
        client.embeddings.create(model="embed", input="a", encoding_format="float")
    with server.hold(model="embed"):
        late = pool.submit(client.embeddings.create, model="embed", input="a")
        server.wait_for_requests(3, model="embed")
        assert ask(client) == "ok"
        assert not late.done()
    assert len(late.result().data) == 1


def test_the_models_are_those_that_were_named(server: ScriptedModelServer, client: openai.OpenAI) -> None:
    server.defaults["cheap"] = "ok"
    ask(client, model="main")
    assert [model.id for model in client.models.list()] == ["cheap", "main"]


def test_any_other_path_is_not_found(server: ScriptedModelServer, client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="POST /v1/completions"):
        client.completions.create(model="main", prompt="hi")
    with pytest.raises(openai.NotFoundError, match="DELETE /v1/models/main"):
        client.models.delete("main")


def test_requests_are_recorded(server: ScriptedModelServer, client: openai.OpenAI) -> None:
    client.chat.completions.create(
        model="main",
        messages=[
            {"role": "system", "content": "Be kind."},
            {"role": "developer", "content": [{"type": "text", "text": "Be "}, {"type": "text", "text": "brief."}]},
            {"role": "user", "content": "one"},
            {"role": "assistant", "content": None},
            {"role": "user", "content": [{"type": "text", "text": "two"}]},
        ],
        temperature=0,
        extra_headers={"X-Trace": "t"},
    )
    ask(client, model="cheap")
    request, other = server.requests
    assert (request.path, request.model, len(request.messages)) == ("/v1/chat/completions", "main", 5)
    assert (request.system, request.last_user) == ("Be kind.\nBe brief.", "two")
    assert request.text == "Be kind.\nBe brief.\none\n\ntwo"
    assert (request.headers["x-trace"], request.headers["authorization"]) == ("t", "Bearer none")
    assert request.body["temperature"] == 0
    assert server.requests_for("cheap") == [other]


def test_a_request_without_messages_has_empty_texts() -> None:
    request = RecordedRequest("/v1/models", {}, {}, "GET")
    assert (request.model, request.messages, request.system, request.last_user, request.text) == ("", [], "", "", "")


@pytest.mark.parametrize("body", [b"{", b"[]", b"\xff"])
def test_a_body_that_is_no_json_object_is_recorded_as_empty(server: ScriptedModelServer, body: bytes) -> None:
    with pytest.raises(urllib.error.HTTPError, match="404") as caught:
        urllib.request.urlopen(f"{server.base_url}/files?x=1", data=body, timeout=10)  # noqa: S310
    caught.value.close()
    assert [(request.path, request.body) for request in server.requests] == [("/v1/files?x=1", {})]


def test_the_recorded_requests_are_a_copy(server: ScriptedModelServer, client: openai.OpenAI) -> None:
    server.requests.append(RecordedRequest("/", {}, {}))
    assert server.requests == []


def test_many_clients_may_ask_at_once(
    server: ScriptedModelServer, client: openai.OpenAI, pool: ThreadPoolExecutor
) -> None:
    for number in range(40):
        server.reply(str(number))
    answers = list(pool.map(lambda _: ask(client), range(40)))
    assert sorted(map(str, answers), key=int) == [str(number) for number in range(40)]
    assert len(server.requests) == 40


def test_reset_forgets_everything(server: ScriptedModelServer, client: openai.OpenAI) -> None:
    ask(client)
    server.default, server.defaults["main"], server.embeddings["a"] = "default", "main", [1.0]
    server.reply("scripted")
    server.reset()
    assert server.requests == []
    assert ask(client) == "ok"
    assert len(client.embeddings.create(model="embed", input="a").data[0].embedding) == 8


def test_a_client_that_went_away_is_no_news(capfd: pytest.CaptureFixture[str]) -> None:
    before = set(threading.enumerate())
    body = b'{"model": "main", "messages": []}'
    with ScriptedModelServer() as server, server.hold():
        server.reply("x" * 1_000_000)
        with socket.create_connection(("127.0.0.1", int(server.base_url.split(":")[2].split("/")[0]))) as gone:
            gone.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
            server.wait_for_requests(1)
    for thread in set(threading.enumerate()) - before:
        thread.join(10)
    server.close()
    assert capfd.readouterr() == ("", "")


def test_the_server_needs_neither_django_nor_the_gateway() -> None:
    script = (
        "import sys, memorygw.testing; print(*sorted(m for m in sys.modules if m.startswith(('django', 'memory'))))"
    )
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert done.stdout.split() == [
        "memorygw",
        "memorygw.testing",
        "memorygw.testing.answers",
        "memorygw.testing.server",
    ]


ASKS: dict[str, Any] = {"role": "assistant", "content": None, "tool_calls": [TOOL_CALL]}
TOLD: dict[str, Any] = {"role": "tool", "tool_call_id": "call_1", "content": "sunny"}
HI: dict[str, Any] = {"role": "user", "content": "Hi"}


@pytest.mark.parametrize(
    ("messages", "is_taken"),
    [
        ([HI], True),
        ([HI, ASKS, TOLD], True),
        ([HI, ASKS, TOLD, HI], True),
        ([{"role": "user", "content": " "}], False),
        ([HI, {"role": "assistant", "content": ""}, HI], False),
        ([HI, TOLD], False),
        ([HI, ASKS], False),
        ([HI, ASKS, HI], False),
        ([HI, ASKS, TOLD, TOLD], False),
    ],
)
def test_a_strict_server_takes_what_providers_take(messages: list[Any], is_taken: bool) -> None:
    with ScriptedModelServer() as server, openai.OpenAI(base_url=server.base_url, api_key="none") as client:
        client.chat.completions.create(model="main", messages=messages)
        server.strict = True
        with nullcontext() if is_taken else pytest.raises(openai.BadRequestError):
            client.chat.completions.create(model="main", messages=messages)
