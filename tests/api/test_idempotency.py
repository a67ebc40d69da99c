"""A request that is sent again has the effect of one (K14)."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from memorygw import gateway, sweep
from memorygw.models import IdempotencyKey, Tenant
from memorygw.testing import ScriptedModelServer
from tests.conftest import Api, Reply, background
from threads.models import Run, Thread, Turn

KEY = {"Idempotency-Key": "a-key-of-mine"}
REMEMBER = {
    "id": "c1",
    "type": "function",
    "function": {"name": "remember_user_fact", "arguments": '{"key": "drink", "value": "tea"}'},
}
YES = {"decisions": [{"tool_call_id": "c1", "approved": True}]}


def send(api: Api, path: str, body: Any, **options: Any) -> Reply:
    return api("POST", path, body, headers=KEY, **options)


def turns(content: str = "Hi") -> dict[str, Any]:
    return {"turns": [{"role": "user", "content": content}, {"role": "assistant", "content": "Hello"}]}


def test_a_thread_is_made_once(api: Api) -> None:
    first, second = (send(api, "/threads", {"title": "Trip"}) for _ in range(2))
    assert (first.status, second.status) == (201, 201)
    assert first.body == second.body
    assert Thread.objects.count() == 1


def test_turns_are_stored_once_and_shown_again(api: Api) -> None:
    thread_id = send(api, "/threads", {}).body["id"]
    first = send(api, f"/threads/{thread_id}/turns", turns())
    api("POST", f"/threads/{thread_id}/turns", turns("later"))
    second = send(api, f"/threads/{thread_id}/turns", turns())
    assert second.body == first.body
    assert Turn.objects.count() == 4


def test_an_ask_is_answered_once(api: Api, model: ScriptedModelServer) -> None:
    first, second = (send(api, "/ask", {"content": "Hello", "metadata": {"a": 1, "b": 2}}) for _ in range(2))
    reordered = send(api, "/ask", {"metadata": {"b": 2, "a": 1}, "content": "Hello"})
    assert first.status == 200
    assert first.body == second.body == reordered.body
    assert len(model.requests_for("main")) == 1
    assert Turn.objects.count() == 2


def test_a_pause_and_what_came_after_it_are_shown_again(api: Api, model: ScriptedModelServer) -> None:
    model.reply(None, model="main", tool_calls=[REMEMBER])
    paused = send(api, "/ask", {"content": "I drink tea."})
    assert send(api, "/ask", {"content": "I drink tea."}).body == paused.body
    path = f"/runs/{paused.body['run']['id']}/continue"
    first, second = (send(api, path, YES) for _ in range(2))
    assert first.body["answer"]["content"] == "ok"
    assert first.body == second.body
    assert len(model.requests_for("main")) == 2
    whole = send(api, "/ask", {"content": "I drink tea."}).body
    assert [turn["role"] for turn in whole["turns"]] == ["user", "assistant", "tool", "assistant"]


def test_another_body_is_refused(api: Api) -> None:
    send(api, "/threads", {"title": "Trip"})
    reply = send(api, "/threads", {"title": "Journey"})
    assert (reply.status, reply.error["code"]) == (409, "idempotency_key_reused")
    assert Thread.objects.count() == 1


def test_a_key_is_one_users_on_one_path(api: Api, other_api: Api) -> None:
    made = [send(api, "/threads", {}), send(api, "/threads", {}, user="eve"), send(other_api, "/threads", {})]
    assert len({reply.body["id"] for reply in made}) == 3
    ids = [send(api, f"/threads/{made[0].body['id']}/turns", turns()).body["items"][0]["id"]]
    other = api("POST", "/threads", {}).body["id"]
    ids.append(send(api, f"/threads/{other}/turns", turns()).body["items"][0]["id"])
    assert ids[0] != ids[1]


@pytest.mark.parametrize("key", ["", " ", "a key", "ключ", "x" * 256])
def test_a_key_that_is_none_is_refused(api: Api, key: str) -> None:
    reply = api("POST", "/threads", {}, headers={"Idempotency-Key": key})
    assert (reply.status, list(reply.error["fields"])) == (400, ["Idempotency-Key"])
    assert Thread.objects.count() == 0


def test_a_refused_request_does_not_use_its_key_up(api: Api, model: ScriptedModelServer, tenant: Tenant) -> None:
    thread_id = gateway.create_thread(tenant, "ada").pk
    lease = gateway.acquire_lease(tenant, "ada", thread_id)
    path = f"/threads/{thread_id}/ask"
    assert send(api, path, {"content": "Hello"}).error["code"] == "thread_busy"
    assert send(api, path, {"content": " "}).status == 400
    gateway.release_lease(tenant, "ada", thread_id, lease.token)
    assert send(api, path, {"content": "Something else"}).status == 200


def test_after_a_failed_model_the_same_turn_is_answered(api: Api, model: ScriptedModelServer) -> None:
    model.fail(500, model="main")
    failed = send(api, "/ask", {"content": "Hello"})
    assert failed.status == 502
    answered = send(api, "/ask", {"content": "Hello"})
    assert answered.status == 200
    assert answered.body["run"]["id"] == failed.error["run_id"]
    assert [turn["content"] for turn in answered.body["turns"]] == ["Hello", "ok"]
    assert Turn.objects.count() == 2
    assert send(api, "/ask", {"content": "Hello"}).body == answered.body


def test_a_continued_run_whose_model_failed_goes_on_from_its_results(api: Api, model: ScriptedModelServer) -> None:
    model.reply(None, model="main", tool_calls=[REMEMBER])
    path = f"/runs/{send(api, '/ask', {'content': 'I drink tea.'}).body['run']['id']}/continue"
    model.fail(500, model="main")
    assert send(api, path, YES).status == 502
    done = send(api, path, YES)
    assert [turn["content"] for turn in done.body["turns"]] == ["Remembered.", "ok"]
    assert [turn.role for turn in Turn.objects.order_by("seq")] == ["user", "assistant", "tool", "assistant"]


def test_a_process_that_died_after_the_effect_did_not_lose_it(api: Api, model: ScriptedModelServer) -> None:
    replies = {path: send(api, path, body) for path, body in (("/threads", {}), ("/ask", {"content": "Hello"}))}
    IdempotencyKey.objects.update(done=False, claim_expires_at=timezone.now() + timedelta(minutes=5))
    assert send(api, "/threads", {}).body == replies["/threads"].body
    assert send(api, "/ask", {"content": "Hello"}).body == replies["/ask"].body
    assert Thread.objects.count() == 2


def test_a_process_that_died_before_the_effect_is_followed_by_the_next_request(api: Api) -> None:
    first = send(api, "/threads", {})
    Thread.objects.all().delete()
    soon, past = timezone.now() + timedelta(minutes=5), timezone.now() - timedelta(seconds=1)
    IdempotencyKey.objects.update(done=False, claim_expires_at=soon)
    assert send(api, "/threads", {}).error["code"] == "request_running"
    IdempotencyKey.objects.update(claim_expires_at=past)
    assert send(api, "/threads", {}).body["id"] == first.body["id"]


def test_what_was_deleted_since_is_not_made_again(api: Api, model: ScriptedModelServer) -> None:
    thread_id = send(api, "/threads", {}).body["id"]
    send(api, f"/threads/{thread_id}/turns", turns())
    send(api, f"/threads/{thread_id}/ask", {"content": "Hello"})
    api("DELETE", f"/threads/{thread_id}")
    assert send(api, "/threads", {}).status == 404
    assert send(api, f"/threads/{thread_id}/turns", turns()).status == 404
    assert send(api, f"/threads/{thread_id}/ask", {"content": "Hello"}).status == 404
    assert Thread.objects.count() == 0


@pytest.mark.django_db(transaction=True)
def test_twenty_at_once_have_one_effect(api: Api, model: ScriptedModelServer) -> None:
    with ThreadPoolExecutor(20) as pool, model.hold(model="main"):
        sent = [background(pool, send, api, "/ask", {"content": "Hello"}) for _ in range(20)]
        model.wait_for_requests(1, model="main")
        refused = [reply.result() for reply in sent if _is_done(reply)]
        assert {reply.status for reply in refused} == {409}
    replies = [reply.result() for reply in sent]
    answers = [reply.body["answer"]["id"] for reply in replies if reply.status == 200]
    assert set(answers) == {str(Turn.objects.get(role="assistant").pk)}
    assert {reply.error["code"] for reply in replies if reply.status != 200} <= {"request_running", "thread_busy"}
    assert len(model.requests_for("main")) == 1


def _is_done(reply: Any) -> bool:
    try:
        reply.result(timeout=1)
    except TimeoutError:
        return False
    return True


def test_keys_hold_no_text_and_go_with_their_user(api: Api, model: ScriptedModelServer) -> None:
    send(api, "/ask", {"content": "MARKER is my secret"})
    send(api, "/ask", {"content": "Hello"}, user="eve")
    row = IdempotencyKey.objects.values().get(user_id="ada")
    stored = " ".join(str(value) for value in row.values())
    assert "MARKER" not in stored
    assert KEY["Idempotency-Key"] not in stored
    assert Run.objects.filter(pk=row["id"]).exists()
    api("POST", "/users/ada/forget", {"mode": "delete"})
    assert list(IdempotencyKey.objects.values_list("user_id", flat=True)) == ["eve"]


def test_keys_are_kept_for_a_day(api: Api) -> None:
    send(api, "/threads", {})
    sweep.sweep()
    assert IdempotencyKey.objects.count() == 1
    IdempotencyKey.objects.update(created_at=timezone.now() - timedelta(hours=25))
    sweep.sweep()
    assert IdempotencyKey.objects.count() == 0


def test_leases_and_tokens_heed_no_key(api: Api) -> None:
    first, second = (send(api, "/user-tokens", {"user_id": "ada", "expires_in_seconds": n}) for n in (60, 90))
    assert (first.status, second.status) == (201, 201)
    assert IdempotencyKey.objects.count() == 0


@pytest.mark.django_db(transaction=True)
def test_a_continued_run_that_was_cancelled_meanwhile_says_so_again(api: Api, model: ScriptedModelServer) -> None:
    model.reply(None, model="main", tool_calls=[REMEMBER])
    run_id = send(api, "/ask", {"content": "I drink tea."}).body["run"]["id"]
    with ThreadPoolExecutor(1) as pool:
        with model.hold(model="main"):
            late = background(pool, send, api, f"/runs/{run_id}/continue", YES)
            model.wait_for_requests(2, model="main")
            assert api("POST", f"/runs/{run_id}/cancel").body["status"] == "cancelled"
        assert late.result().error["code"] == "run_cancelled"
    assert send(api, f"/runs/{run_id}/continue", YES).error["code"] == "run_cancelled"
    assert [turn.role for turn in Turn.objects.order_by("seq")] == ["user", "assistant", "tool"]


@pytest.mark.django_db(transaction=True)
def test_a_first_request_that_outlived_its_claim_keeps_its_row(api: Api, model: ScriptedModelServer) -> None:
    path = f"/threads/{api('POST', '/threads', {}).body['id']}/ask"
    with ThreadPoolExecutor(1) as pool:
        with model.hold(model="main"):
            slow = background(pool, send, api, path, {"content": "Hello"})
            model.wait_for_requests(1, model="main")
            IdempotencyKey.objects.update(claim_expires_at=timezone.now() - timedelta(seconds=1))
            assert send(api, path, {"content": "Hello"}).error["code"] == "thread_busy"
        first = slow.result()
    assert first.status == 200
    assert send(api, path, {"content": "Hello"}).body == first.body
