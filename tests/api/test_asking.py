"""Asking over REST."""

import pytest
from pytest_django import DjangoAssertNumQueries, Settings

from memorygw.models import Persona, Tenant
from memorygw.testing import ScriptedModelServer
from tests.conftest import Api
from threads.models import Thread, Turn


@pytest.mark.rows("T25", "T34", "W33", "R93")
def test_an_ask_answers_with_everything_that_is_new(api: Api, model: ScriptedModelServer) -> None:
    api("PUT", "/facts/city", {"value": "Turin"})
    model.reply("Hi!", model="main", prompt_tokens=9, completion_tokens=2)
    reply = api.ask("Hello", metadata={"page": 1}, unknown="ignored")
    assert reply.status == 200
    body = reply.body
    assert set(body) == {"thread_id", "run", "answer", "turns", "usage", "warnings"}
    assert body["turns"][1] == body["answer"]
    assert [turn["content"] for turn in body["turns"]] == ["Hello", "Hi!"]
    assert body["usage"] == {"prompt_tokens": 9, "completion_tokens": 2}
    run = api("GET", f"/runs/{body['run']['id']}").body
    assert run == body["run"]
    [fact] = api("POST", f"/threads/{body['thread_id']}/context", {}).body["facts"]
    assert (run["status"], run["memories"], run["pending"], run["error"]) == ("completed", [fact["id"]], [], None)
    assert api("GET", f"/runs/{body['run']['id']}", user="bob").error["code"] == "run_not_found"
    assert api("GET", "/runs/not-a-uuid").status == 404


def test_an_ask_costs_a_fixed_number_of_queries(
    api: Api, model: ScriptedModelServer, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    for length in (10, 5_000):
        thread_id = api.ask("Hello").body["thread_id"]
        thread = Thread.objects.get(pk=thread_id)
        more = [
            Turn(thread=thread, seq=seq, role=("assistant", "user")[seq % 2], content="x", token_count=1,
                 tokens_through=thread.token_count + seq - 2)
            for seq in range(3, length + 1)
        ]  # fmt: skip
        Turn.objects.bulk_create(more)
        Thread.objects.update(turn_count=length, token_count=thread.token_count + length - 2)
        # The key; the thread with its persona, whether memory is on, the facts, the notes, the window.
        with django_assert_num_queries(6):
            context = api("POST", f"/threads/{thread_id}/context", {"budget_tokens": 100})
        assert context.status == 200
        # The key, the lease, the five reads; the question in a transaction (here a savepoint and its release): the
        # counters moved, the turn, the run; the call's row; the answer in another: counters, turn, the run
        # closed, and for each of two learners its state read and written.
        with django_assert_num_queries(7 + 2 + 3 + 1 + 2 + 7):
            assert api.ask("Hello again", thread_id).status == 200


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "content"),
        ({"content": None}, "content"),
        ({"content": ""}, "content"),
        ({"content": "   "}, "content"),
        ({"content": []}, "content"),
        ({"content": {"type": "text", "text": "x"}}, "content"),
        ({"content": [{"type": "hologram"}]}, "content"),
        ({"content": [{"type": "text", "text": 5}]}, "content"),
        ({"content": "x", "metadata": "y"}, "metadata"),
        ({"content": "x", "persona": ""}, "persona"),
        ({"content": "x", "stream": "perhaps"}, "stream"),
        ({"content": "x", "tools": [{"type": "function"}]}, "tools"),
    ],
)
def test_a_question_that_cannot_be_asked_is_refused(
    api: Api, model: ScriptedModelServer, body: dict[str, object], field: str
) -> None:
    reply = api("POST", "/ask", body)
    assert (reply.status, reply.error["code"], list(reply.error["fields"])) == (400, "invalid", [field])
    assert (model.requests, Thread.objects.count()) == ([], 0)


@pytest.mark.rows("T77", "T86", "W45", "T115", "T120")
def test_conflicts_and_failures_have_their_codes(api: Api, model: ScriptedModelServer, settings: Settings) -> None:
    thread_id = api.ask("Hello").body["thread_id"]
    model.fail(500, model="main")
    failed = api.ask("Hello", thread_id)
    assert (failed.status, failed.error["code"]) == (502, "model_failed")
    assert failed.error["user_message"]
    assert failed.error["thread_id"] == thread_id
    assert api("GET", f"/runs/{failed.error['run_id']}").body["error"] == "http_500"
    assert api.ask("Again", thread_id).status == 200
    for status, code in (("AWAITING_HUMAN", "thread_awaiting_human"), ("CLOSED", "thread_closed")):
        Thread.objects.update(status=status)
        conflict = api.ask("Hello", thread_id)
        assert (conflict.status, conflict.error["code"], conflict.error["thread_ids"]) == (409, code, [thread_id])
    Thread.objects.update(status="OPEN")
    settings.MEMORYGW_CONTEXT_WINDOW, settings.MEMORYGW_OUTPUT_RESERVE = 1_000, 500
    large = api.ask("word " * 2_000, thread_id)
    assert (large.status, large.error["code"]) == (413, "context_too_large")
    assert large.error["user_message"]


def test_a_persona_brings_its_instructions_and_its_model(api: Api, model: ScriptedModelServer, tenant: Tenant) -> None:
    coach = Persona.objects.create(tenant=tenant, name="coach", instructions="Be brief.", model="large")
    thread = api("POST", "/threads", {"persona": str(coach.pk)}).body
    assert thread["persona"] == str(coach.pk)
    api.ask("Hello", thread["id"])
    assert model.requests_for("large")[0].system == "Be brief."
    api.ask("Hello", persona="coach")
    api.ask("Hello", persona="coach", model="other")
    assert [request.system for request in model.requests if request.model in ("large", "other")] == ["Be brief."] * 3
    assert api.ask("Hello", persona="nobody").error["code"] == "persona_not_found"
    coach.memory_injection_enabled = False
    coach.save()
    api("PUT", "/facts/city", {"value": "Turin"})
    api.ask("Hello", persona="coach")
    assert model.requests_for("large")[-1].system == "Be brief."


@pytest.mark.rows("R100")
def test_without_memory_the_prompt_is_unchanged(api: Api, model: ScriptedModelServer) -> None:
    api.ask("Hello")
    assert model.requests[0].messages == [{"role": "user", "content": "Hello"}]
