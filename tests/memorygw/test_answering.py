"""One ask through the gateway, and what is left behind when it goes wrong."""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction
from django.utils import timezone
from pytest_django import Settings

from memorygw import gateway
from memorygw.conf import component
from memorygw.exceptions import (
    ContextTooLargeError,
    InvalidError,
    LeaseLostError,
    MemorygwError,
    ModelFailedError,
    ThreadBusyError,
    ThreadNotFoundError,
    UserRequiredError,
)
from memorygw.models import ModelCall, Persona, Tenant
from memorygw.testing import ScriptedModelServer
from tests.conftest import background, extractions, learn
from threads.models import Run, Thread, Turn
from threads.turns import Content, TurnDraft
from usermemory.models import ExtractionState
from usermemory.store import UserMemoryStore
from workingmemory.memory import Window, WorkingMemory


def contents() -> list[object]:
    return list(Turn.objects.order_by("thread_id", "seq").values_list("content", flat=True))


@pytest.mark.rows("T3", "T25", "U1", "U5", "U6", "U7", "U17", "U30", "U31", "U37")
def test_what_is_told_in_one_thread_is_known_in_the_next(
    tenant: Tenant, other_tenant: Tenant, model: ScriptedModelServer
) -> None:
    model.reply({"operations": [{"op": "SET", "key": "city", "value": "Turin"}]}, model="cheap")
    first = gateway.ask(tenant, "ada", "I live in Turin.")
    learn()
    assert "user: I live in Turin." in extractions(model)[0].text
    second = gateway.ask(tenant, "ada", "Where do I live?")
    assert second.thread_id != first.thread_id
    assert "city: Turin" in model.requests_for("main")[-1].system
    assert second.run.memories == [str(gateway.get_user_facts(tenant, "ada")[0].pk)]
    for stranger in ((tenant, "bob"), (other_tenant, "ada")):
        gateway.ask(*stranger, "Where do I live?")
        assert "Turin" not in model.requests_for("main")[-1].text


@pytest.mark.rows("T1", "T2", "T34", "T55")
def test_an_answer_tells_what_happened(tenant: Tenant, model: ScriptedModelServer) -> None:
    model.reply("Hi!", model="main", prompt_tokens=11, completion_tokens=2)
    answer = gateway.ask(tenant, "ada", "Hello", metadata={"page": 1})
    assert [(turn.seq, turn.role, turn.content) for turn in answer.turns] == [
        (1, "user", "Hello"),
        (2, "assistant", "Hi!"),
    ]
    assert answer.turns[0].metadata == {"page": 1}
    assert (answer.answer.model, answer.usage) == ("main", {"prompt_tokens": 11, "completion_tokens": 2})
    run = gateway.get_run(tenant, "ada", answer.run.pk)
    assert (run.status, run.prompt_tokens, run.completion_tokens, run.error) == ("completed", 11, 2, "")
    call = ModelCall.objects.get()
    assert (call.kind, call.outcome, call.prompt_tokens, call.run_id) == ("CHAT", "ok", 11, run.pk)


class OldestGroup(WorkingMemory):
    """Shows the model the first question and its answer, whatever was said since."""

    def load(self, *arguments: Any, **options: Any) -> Window:
        window = super().load(*arguments, **options)
        return replace(window, turns=window.turns[:2])


@pytest.mark.rows("T15")
def test_the_model_sees_the_turns_that_working_memory_gives(
    tenant: Tenant, model: ScriptedModelServer, settings: Settings
) -> None:
    settings.MEMORYGW_WORKING_MEMORY_STORE = f"{__name__}.OldestGroup"
    thread_id = None
    for n in range(1, 4):
        model.reply(f"a{n}", model="main")
        thread_id = gateway.ask(tenant, "ada", f"q{n}", thread_id=thread_id).thread_id
    assert [message["content"] for message in model.requests_for("main")[-1].messages] == ["q1", "a1", "q3"]
    assert contents() == ["q1", "a1", "q2", "a2", "q3", "a3"]


@pytest.mark.rows("T15")
def test_runs_are_kept_and_read_apart_from_turns(tenant: Tenant, model: ScriptedModelServer) -> None:
    answered = gateway.ask(tenant, "ada", "first")
    model.fail(500, model="main")
    with pytest.raises(ModelFailedError) as error:
        gateway.ask(tenant, "ada", "second", thread_id=answered.thread_id)
    turns = gateway.get_turns(tenant, "ada", answered.thread_id)
    assert [(turn.role, turn.content) for turn in turns] == [("user", "first"), ("assistant", "ok"), ("user", "second")]
    runs = [gateway.get_run(tenant, "ada", pk) for pk in (answered.run.pk, error.value.details["run_id"])]
    assert [(run.thread_id, run.status) for run in runs] == [
        (answered.thread_id, "completed"), (answered.thread_id, "failed"),
    ]  # fmt: skip
    assert model.requests_for("main")[-1].messages[-1] == {"role": "user", "content": "second"}
    Run.objects.all().delete()
    assert gateway.get_turns(tenant, "ada", answered.thread_id) == turns


@pytest.mark.rows("T8", "T86")
@pytest.mark.parametrize(
    ("fault", "reason"),
    [("500", "http_500"), ("400", "http_400"), ("html", "malformed"), ("junk", "malformed"), ("gone", "unreachable"),
     ("null", "empty"), ("blank", "empty")],
)  # fmt: skip
def test_a_model_that_fails_leaves_the_question_and_a_free_thread(
    tenant: Tenant, model: ScriptedModelServer, fault: str, reason: str
) -> None:
    match fault:
        case "500" | "400":
            model.fail(int(fault), model="main")
        case "html":
            model.garbage(b"<html>Bad gateway</html>", model="main")
        case "junk":
            model.garbage(b'{"choices": ', content_type="application/json", model="main")
        case "gone":
            model.disconnect(model="main")
        case "null" | "blank":
            model.reply(None if fault == "null" else " \n", model="main")
    with pytest.raises(ModelFailedError) as error:
        gateway.ask(tenant, "ada", "Hello")
    assert error.value.reason == reason
    assert contents() == ["Hello"]
    [run] = Run.objects.all()
    assert (run.status, run.error) == ("failed", reason)
    assert ModelCall.objects.get().outcome in (reason, "ok")
    again = gateway.ask(tenant, "ada", "Hello again", thread_id=run.thread_id)
    assert again.answer.seq == 3
    assert [message["content"] for message in model.requests_for("main")[-1].messages] == ["Hello", "Hello again"]


def test_a_slow_model_is_given_up_after_the_timeout(
    tenant: Tenant, model: ScriptedModelServer, settings: Settings
) -> None:
    settings.MEMORYGW_LLM_TIMEOUT_SECONDS = 0.2
    with model.hold(), pytest.raises(ModelFailedError) as error:
        gateway.ask(tenant, "ada", "Hello")
    assert error.value.reason == "timeout"


def test_retries_are_bounded(tenant: Tenant, model: ScriptedModelServer, settings: Settings) -> None:
    settings.MEMORYGW_LLM_RETRIES = 2
    model.fail(503, model="main", times=2, headers={"Retry-After": "0.01"})
    assert gateway.ask(tenant, "ada", "Hello").answer.content == "ok"
    model.fail(503, model="main", times=3, headers={"Retry-After": "0.01"})
    with pytest.raises(ModelFailedError):
        gateway.ask(tenant, "ada", "Hello")
    assert len(model.requests) == 6


@pytest.mark.parametrize(
    ("refused", "message"),
    [
        ("temperature", "Unsupported value: 'temperature' does not support 0 with this model."),
        ("response_format", "Unknown parameter"),
        ("max_completion_tokens", "max_completion_tokens: extra fields not permitted"),
    ],
)
def test_a_parameter_that_the_server_refuses_is_left_out_and_remembered(
    tenant: Tenant, model: ScriptedModelServer, refused: str, message: str
) -> None:
    model.fail(400, model="cheap", error={"message": message})
    for _ in range(2):
        gateway.ask(tenant, "ada", "Hello")
        learn()
    bodies = [request.body for request in extractions(model)]
    assert [refused in body for body in bodies] == [True, False, False]
    assert ("max_tokens" in bodies[-1]) == (refused == "max_completion_tokens")


@pytest.mark.rows("W45")
def test_a_message_too_large_for_the_model_is_refused_and_not_stored(
    tenant: Tenant, model: ScriptedModelServer, settings: Settings
) -> None:
    thread_id = gateway.ask(tenant, "ada", "Hello").thread_id
    settings.MEMORYGW_CONTEXT_WINDOW, settings.MEMORYGW_OUTPUT_RESERVE = 1_000, 200
    for target in (thread_id, None):
        with pytest.raises(ContextTooLargeError):
            gateway.ask(tenant, "ada", "word " * 6_000, thread_id=target)
    assert contents() == ["Hello", "ok"]
    assert (Thread.objects.count(), len(model.requests)) == (1, 1)
    assert gateway.ask(tenant, "ada", "hi", thread_id=thread_id).answer.content == "ok"


@pytest.mark.rows("W14")
def test_a_message_above_the_history_budget_goes_out_alone(
    tenant: Tenant, model: ScriptedModelServer, settings: Settings
) -> None:
    settings.MEMORYGW_WORKING_MEMORY = "SLIDING_WINDOW"
    settings.MEMORYGW_CHAT_HISTORY_RATIO = 0.01
    settings.MEMORYGW_CONTEXT_WINDOW = 20_000
    thread_id = gateway.ask(tenant, "ada", "Hello").thread_id
    gateway.ask(tenant, "ada", "word " * 6_000, thread_id=thread_id)
    assert [message["content"] for message in model.requests_for("main")[-1].messages] == ["word " * 6_000]


# --- one request after the other


@pytest.fixture
def coached(tenant: Tenant) -> Any:
    """A thread of ada with instructions around its memory, and a fact in it."""
    Persona.objects.create(tenant=tenant, name="coach", instructions="Be brief.\n{memory}\nAnswer in rhyme.")
    gateway.upsert_user_fact(tenant, "ada", "city", "Turin")
    return gateway.create_thread(tenant, "ada", persona="coach").pk


@pytest.mark.parametrize(
    ("strategy", "continued"),
    # The buffer's notes are new at the 4th and the 7th question, and from the 7th on each question moves its window.
    [("SUMMARY_BUFFER", [2, 3, 5, 6]), ("SLIDING_WINDOW", [2, 3, 4, 5, 6, 7, 8])],
)
def test_a_request_begins_with_the_whole_one_before_it_while_memory_and_window_stay(
    tenant: Tenant,
    model: ScriptedModelServer,
    settings: Settings,
    coached: Any,
    strategy: str,
    continued: list[int],
) -> None:
    settings.MEMORYGW_WORKING_MEMORY = strategy
    for n in range(1, 9):
        model.reply(f"answer {n}", model="main")
        content: Content = f"question {n}"
        if n % 2:
            content = [{"type": "text", "text": content}, {"type": "image_url", "image_url": {"url": "data:,x"}}]
        gateway.ask(tenant, "ada", content, thread_id=coached)
        learn()
    requests = [request.messages for request in model.requests_for("main")]
    assert requests[0][0]["content"].startswith("Be brief.\n<user_memory>\n")
    same = []
    for n in range(2, 9):
        earlier, later = requests[n - 2 : n]
        if earlier[:2] == later[:2]:
            assert later[:-1] == [*earlier, {"role": "assistant", "content": f"answer {n - 1}"}]
            same.append(n)
    assert same == continued


@pytest.mark.parametrize("strategy", ["SUMMARY_BUFFER", "SLIDING_WINDOW"])
def test_a_request_begins_with_the_one_before_it_when_tools_were_used_in_between(
    tenant: Tenant, model: ScriptedModelServer, settings: Settings, coached: Any, strategy: str
) -> None:
    settings.MEMORYGW_WORKING_MEMORY = strategy
    for n in range(1, 4):
        gateway.ask(tenant, "ada", f"question {n}", thread_id=coached)
        call = {"id": f"call-{n}", "type": "function", "function": {"name": "look_up", "arguments": "{}"}}
        appended = [
            TurnDraft(role="user", content="Look it up."),
            TurnDraft(role="assistant", content=None, tool_calls=[call]),
            TurnDraft(role="tool", content="found", tool_call_id=call["id"]),  # type: ignore[arg-type]
            TurnDraft(role="assistant", content="There it is."),
            # Nobody has answered this one.
            TurnDraft(role="assistant", content=None, tool_calls=[call | {"id": f"open-{n}"}]),
        ]
        gateway.append_turns(tenant, "ada", coached, appended[: 4 + n % 2])
    first, second, third = (request.messages for request in model.requests_for("main"))
    for earlier, later in ((first, second), (second, third)):
        assert later[: len(earlier) + 1] == [*earlier, {"role": "assistant", "content": "ok"}]
        roles = [message["role"] for message in later[len(earlier) + 1 :]]
        assert roles == ["user", "assistant", "tool", "assistant", "user"]


def test_an_ask_inside_a_transaction_is_refused(transactional_db: None, model: ScriptedModelServer) -> None:
    with transaction.atomic(), pytest.raises(RuntimeError, match="durable"):
        gateway.ask("default", "ada", "Hello")
    assert (Thread.objects.count(), len(model.requests)) == (0, 0)


@pytest.mark.rows("T7", "T78", "T80")
def test_of_ten_asks_on_one_thread_at_once_one_is_answered(transactional_db: None, model: ScriptedModelServer) -> None:
    thread_id = gateway.create_thread("default", "ada").pk

    def ask(n: int) -> str:
        try:
            return str(gateway.ask("default", "ada", f"n={n}", thread_id=thread_id).answer.content)
        except MemorygwError as error:
            return error.code

    with ThreadPoolExecutor(10) as pool:
        with model.hold():
            running = [background(pool, ask, n) for n in range(10)]
            model.wait_for_requests(1)
            done = threading.Event()
            while sum(future.done() for future in running) < 9:
                done.wait(0.01)
        outcomes = sorted(future.result() for future in running)
    assert outcomes == ["ok"] + ["thread_busy"] * 9
    assert Turn.objects.count() == 2


@pytest.mark.rows("T82", "T85")
def test_an_answer_that_comes_after_another_call_took_over_is_not_stored(
    transactional_db: None, model: ScriptedModelServer
) -> None:
    thread_id = gateway.ask("default", "ada", "first").thread_id
    with ThreadPoolExecutor(1) as pool:
        with model.hold():
            late = background(pool, gateway.ask, "default", "ada", "slow", thread_id=thread_id)
            model.wait_for_requests(2)
            Thread.objects.update(lease_expires_at=timezone.now() - timedelta(seconds=1))
            taken = component("THREAD_STORE").acquire_lease(
                Tenant.objects.get(name="default").pk, thread_id, user_id="ada"
            )
        with pytest.raises(LeaseLostError):
            late.result()
    assert contents() == ["first", "ok", "slow"]
    assert Thread.objects.get().lease_token == taken
    assert sorted(Run.objects.values_list("status", "error")) == [("completed", ""), ("failed", "lease_lost")]
    with pytest.raises(ThreadBusyError):
        gateway.ask("default", "ada", "third", thread_id=thread_id)


def test_impossible_calls_are_refused_before_anything_is_stored(tenant: Tenant, model: ScriptedModelServer) -> None:
    for content in ("", " \n", [], [{"type": "hologram"}], {"type": "text"}, [{"type": "text"}], 3):
        with pytest.raises(InvalidError):
            gateway.ask(tenant, "ada", content)  # type: ignore[arg-type]
    with pytest.raises(InvalidError) as error:
        gateway.ask(tenant, "ada", "x", metadata={"a": ["\x00"]})
    assert error.value.fields == {"metadata.a[0]": ["Contains U+0000 or a lone surrogate."]}
    for user in ("", " ", "*", "x" * 256, "a\nb"):
        with pytest.raises(UserRequiredError):
            gateway.ask(tenant, user, "Hello")
    with pytest.raises(ThreadNotFoundError):
        gateway.ask(tenant, "ada", "Hello", thread_id="not-a-uuid")
    assert (Thread.objects.count(), len(model.requests)) == (0, 0)


@pytest.mark.rows("U80", "U106", "U108")
def test_a_failed_ask_earns_no_learning(tenant: Tenant, model: ScriptedModelServer) -> None:
    model.fail(500, model="main")
    with pytest.raises(ModelFailedError):
        gateway.ask(tenant, "ada", "Hello")
    learn()
    assert extractions(model) == []
    assert not ExtractionState.objects.exists()


@pytest.mark.rows("U106")
def test_text_of_a_model_is_cleaned_before_it_is_stored(tenant: Tenant, model: ScriptedModelServer) -> None:
    model.reply("a\x00b\ud83d", model="main")
    assert gateway.ask(tenant, "ada", "Hello").answer.content == "ab\ufffd"


def test_a_client_that_breaks_leaves_a_failed_run_and_a_free_thread(tenant: Tenant, settings: Settings) -> None:
    settings.MEMORYGW_LLM_CLIENT = "tests.memorygw.test_answering.BrokenClient"
    thread_id = gateway.create_thread(tenant, "ada").pk
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            gateway.ask(tenant, "ada", "Hello", thread_id=thread_id)
    assert list(Run.objects.values_list("status", "error")) == [("failed", "interrupted")] * 2


class BrokenClient:
    def complete(self, request: object) -> object:
        raise ZeroDivisionError


class ForgetfulStore(UserMemoryStore):
    def note_answer(self, thread: object, persona: object) -> None:
        raise ZeroDivisionError


def test_an_answer_that_cannot_be_settled_closes_its_run(
    tenant: Tenant, model: ScriptedModelServer, settings: Settings
) -> None:
    settings.MEMORYGW_USER_MEMORY_STORE = "tests.memorygw.test_answering.ForgetfulStore"
    thread_id = gateway.create_thread(tenant, "ada").pk
    with pytest.raises(ZeroDivisionError):
        gateway.ask(tenant, "ada", "Hello", thread_id=thread_id)
    assert contents() == ["Hello"]
    assert list(Run.objects.values_list("status", "error")) == [("failed", "interrupted")]
    assert Thread.objects.get().lease_token is None
