"""Turns and leases over REST, for callers that run their own model."""

from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.utils import timezone

from memorygw.testing import ScriptedModelServer
from tests.conftest import Api, extractions, learn
from threads.models import Thread, Turn
from usermemory.models import ExtractionState


@pytest.fixture
def thread_id(api: Api) -> str:
    return str(api("POST", "/threads", {}).body["id"])


def append(api: Api, thread_id: str, *turns: dict[str, Any], **more: Any) -> Any:
    return api("POST", f"/threads/{thread_id}/turns", {"turns": list(turns), **more})


def user(text: str = "Hello") -> dict[str, Any]:
    return {"role": "user", "content": text}


def assistant(text: str = "Hi") -> dict[str, Any]:
    return {"role": "assistant", "content": text}


@pytest.mark.rows("T55", "T56", "T57")
def test_turns_are_stored_all_or_none_and_come_back(api: Api, thread_id: str) -> None:
    said = "2023-05-24T23:30:00-07:00"
    first = append(api, thread_id, {**user("  Hello \n"), "created_at": said, "metadata": {"page": 1}}, assistant())
    assert first.status == 201
    assert [(turn["seq"], turn["content"], turn["metadata"]) for turn in first.body["items"]] == [
        (1, "  Hello \n", {"page": 1}),
        (2, "Hi", {}),
    ]
    assert first.body["items"][0]["created_at"] == "2023-05-25T06:30:00Z"
    assert api("GET", f"/threads/{thread_id}/turns").body == first.body
    refused = append(api, thread_id, user(), user(" "), user())
    assert (refused.status, list(refused.error["fields"])) == (400, ["turns[1].content"])
    assert api("GET", f"/threads/{thread_id}").body["turn_count"] == 2


@pytest.mark.parametrize(
    ("turns", "field"),
    [
        ([], "turns"),
        ([user()] * 101, "turns"),
        ("x", "turns"),
        ([{"role": "bot", "content": "x"}], "turns[0].role"),
        ([{"content": "x"}], "turns[0].role"),
        ([user(), "x"], "turns[1].non_field_errors"),
        ([{**user(), "created_at": "yesterday"}], "turns[0].created_at"),
        ([{**user(), "created_at": "0001-01-01T00:00:00+14:00"}], "turns[0].created_at"),
        ([{**user(), "metadata": []}], "turns[0].metadata"),
        ([{"role": "tool", "content": "x", "tool_call_id": "zzz"}], "turns[0].tool_call_id"),
        ([{"role": "user", "content": [{"type": "hologram"}]}], "turns[0].content"),
    ],
)
def test_impossible_turns_are_refused_by_their_place(api: Api, thread_id: str, turns: Any, field: str) -> None:
    reply = api("POST", f"/threads/{thread_id}/turns", {"turns": turns})
    assert (reply.status, list(reply.error["fields"])) == (400, [field])
    assert Turn.objects.count() == 0


@pytest.mark.rows("U109")
def test_a_batch_that_ends_in_an_answer_is_learned_from(api: Api, thread_id: str, model: ScriptedModelServer) -> None:
    append(api, thread_id, user("I live in Turin."))
    learn()
    assert not ExtractionState.objects.exists()
    append(api, thread_id, assistant("Nice."))
    learn()
    assert "user: I live in Turin." in extractions(model)[0].text


@pytest.mark.rows("T7", "T76", "T77", "T78", "T79", "T84", "T85")
def test_a_lease_keeps_others_out_until_it_is_given_back(api: Api, thread_id: str, model: ScriptedModelServer) -> None:
    lease = api("POST", f"/threads/{thread_id}/lease", {"seconds": 60})
    assert lease.status == 201
    token = lease.body["token"]
    assert lease.body["expires_at"] > timezone.now().isoformat()
    for refused in (
        api("POST", f"/threads/{thread_id}/lease", {}),
        append(api, thread_id, user()),
        append(api, thread_id, user(), lease_token=str(uuid4())),
        api.ask("Hello", thread_id),
        api("DELETE", f"/threads/{thread_id}"),
    ):
        assert (refused.status, refused.error["code"]) in [(409, "thread_busy"), (409, "lease_lost")]
    assert append(api, thread_id, user(), lease_token=token).status == 201
    assert append(api, thread_id, assistant(), lease_token=token).status == 201
    assert api("POST", f"/threads/{thread_id}/lease/release", {"token": str(uuid4())}).status == 204
    assert append(api, thread_id, user()).status == 409
    assert api("POST", f"/threads/{thread_id}/lease/release", {"token": token}).status == 204
    assert append(api, thread_id, user()).status == 201
    assert api("GET", f"/threads/{thread_id}").body["turn_count"] == 3


@pytest.mark.rows("T82")
def test_a_token_writes_after_its_time_until_another_took_the_thread(api: Api, thread_id: str) -> None:
    late = api("POST", f"/threads/{thread_id}/lease", {}).body["token"]
    Thread.objects.update(lease_expires_at=timezone.now() - timedelta(seconds=1))
    assert append(api, thread_id, user(), lease_token=late).status == 201
    api("POST", f"/threads/{thread_id}/lease", {})
    lost = append(api, thread_id, user(), lease_token=late)
    assert (lost.status, lost.error["code"]) == (409, "lease_lost")
    assert Turn.objects.count() == 1


@pytest.mark.rows("T13", "T59")
def test_leases_and_turns_of_somebody_elses_thread_are_not_found(api: Api, other_api: Api, thread_id: str) -> None:
    for caller, acting in ((api, "bob"), (other_api, "ada")):
        for path, body in (
            ("turns", {"turns": [user()]}),
            ("lease", {}),
            ("lease/release", {"token": str(uuid4())}),
        ):
            reply = caller("POST", f"/threads/{thread_id}/{path}", body, user=acting)
            assert (reply.status, reply.error["code"]) == (404, "thread_not_found")


@pytest.mark.parametrize("body", [{"seconds": 0}, {"seconds": -1}, {"seconds": "long"}, {"seconds": 10**9}])
def test_a_lease_has_a_length_that_makes_sense(api: Api, thread_id: str, body: dict[str, Any]) -> None:
    assert api("POST", f"/threads/{thread_id}/lease", body).status == 400


@pytest.mark.parametrize("status", ["AWAITING_HUMAN", "CLOSED"])
def test_a_thread_that_is_not_open_takes_no_turns(api: Api, thread_id: str, status: str) -> None:
    Thread.objects.update(status=status)
    assert append(api, thread_id, user()).error["code"] == f"thread_{status.lower()}"
