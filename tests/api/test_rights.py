"""Forgetting a person over REST; what it does is tested in tests/erasure."""

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from memorygw.models import ModelCall
from memorygw.testing import RecordedRequest, ScriptedModelServer
from tests.conftest import Api, learn
from threads.models import Run, Thread, Turn
from usermemory.models import ExtractionState, Fact, UserMemory
from workingmemory.models import WorkingMemoryState

MARKER = "MARKER-9F3A"
COUNTED = ("threads", "turns", "runs", "facts", "voice_sessions")


@pytest.fixture
def ada_and_others(api: Api, other_api: Api, model: ScriptedModelServer) -> Api:
    """The same for ada, for bob, and for another tenant's ada: threads, turns, notes and facts, all with the marker."""
    model.defaults["cheap"] = lambda request: (
        {"operations": [{"op": "SET", "key": "secret", "value": MARKER}]}
        if '"operations"' in request.text
        else {"summary": MARKER, "facts": [MARKER]}
    )
    for caller, user in ((api, "ada"), (api, "bob"), (other_api, "ada")):
        thread_id = caller("POST", "/threads", {"title": MARKER}, user=user).body["id"]
        for _ in range(3):
            assert caller("POST", f"/threads/{thread_id}/ask", {"content": MARKER}, user=user).status == 200
        caller("POST", "/threads", {}, user=user)
    learn()
    assert WorkingMemoryState.objects.filter(summary=MARKER).count() == 3
    assert Fact.objects.filter(value=MARKER).count() == 3
    return api


@pytest.mark.rows("T99", "T112", "T113", "T114", "U11", "U69", "U70", "U71", "U73")
def test_nothing_is_left_of_a_forgotten_person_and_everything_of_everybody_else(
    ada_and_others: Api, other_api: Api
) -> None:
    api = ada_and_others
    deleted = Thread.objects.create(tenant_id=Thread.objects.filter(user_id="bob")[0].tenant_id, user_id="ada")
    Thread.objects.filter(pk=deleted.pk).update(deleted_at=timezone.now())
    calls = ModelCall.objects.count()
    first = api("POST", "/users/ada/forget", {"mode": "delete"})
    assert first.status == 200
    assert {name: first.body["counts"][name] for name in COUNTED} == dict(zip(COUNTED, (3, 6, 3, 1, 0), strict=True))
    assert first.body["requested_by"].startswith("key ")
    assert [residual["what"] for residual in first.body["residuals"]] == [
        "backups",
        "the database's log and free pages",
    ]
    assert (first.body["mode"], first.body["status"], first.body["verified"]) == ("delete", "done", True)
    second = api("POST", "/users/ada/forget", {"mode": "delete"})
    assert set(second.body["counts"].values()) == {0}
    assert second.body["id"] != first.body["id"]

    tenant = Thread.objects.filter(user_id="bob")[0].tenant_id
    assert not Thread.objects.filter(tenant_id=tenant, user_id="ada").exists()
    assert not Fact.objects.filter(tenant_id=tenant, owner_id="ada").exists()
    assert not UserMemory.objects.filter(tenant_id=tenant, user_id="ada").exists()
    assert (Turn.objects.count(), Run.objects.count()) == (12, 6)
    assert (ExtractionState.objects.count(), WorkingMemoryState.objects.count()) == (2, 2)
    assert ModelCall.objects.count() == calls
    for caller, user in ((api, "bob"), (other_api, "ada")):
        assert len(caller("GET", "/threads", user=user).body["items"]) == 2
        assert caller.facts(user) == {"secret": MARKER}


def test_a_busy_thread_stops_everything(ada_and_others: Api) -> None:
    api = ada_and_others
    busy = Thread.objects.filter(user_id="ada").order_by("pk")[0]
    Thread.objects.filter(pk=busy.pk).update(lease_expires_at=timezone.now() + timedelta(minutes=1))
    refused = api("POST", "/users/ada/forget", {"mode": "delete"})
    assert (refused.status, refused.error["code"], refused.error["thread_ids"]) == (409, "thread_busy", [str(busy.pk)])
    assert api.facts() == {"secret": MARKER}
    assert len(api("GET", "/threads").body["items"]) == 2
    assert api("PUT", "/facts/lang", {"value": "de"}).status == 200


@pytest.mark.parametrize("body", [{}, {"mode": "shred"}, {"mode": "delete", "dry_run": "perhaps"}])
def test_what_is_not_understood_is_refused_and_erases_nothing(ada_and_others: Api, body: dict[str, object]) -> None:
    assert ada_and_others("POST", "/users/ada/forget", body).status == 400
    assert ada_and_others.facts() == {"secret": MARKER}


@pytest.mark.parametrize("mode", ["delete", "anonymize"])
def test_a_dry_run_says_what_goes_and_nothing_does(ada_and_others: Api, mode: str) -> None:
    dry = ada_and_others("POST", "/users/ada/forget", {"mode": mode, "dry_run": True})
    assert (dry.body["mode"], dry.body["status"]) == (mode, "dry_run")
    assert ada_and_others.facts() == {"secret": MARKER}
    assert ada_and_others("POST", "/users/ada/forget", {"mode": mode}).body["counts"] == dry.body["counts"]


def test_force_takes_the_thread_from_the_call_that_runs(ada_and_others: Api) -> None:
    busy = Thread.objects.filter(user_id="ada").order_by("pk")[0]
    Thread.objects.filter(pk=busy.pk).update(lease_expires_at=timezone.now() + timedelta(minutes=1))
    assert ada_and_others("POST", "/users/ada/forget", {"mode": "delete", "force": True}).body["verified"] is True


# --- memory off


def test_with_memory_off_nothing_is_read_and_nothing_written(
    ada_and_others: Api, model: ScriptedModelServer, service_api: Api
) -> None:
    api = ada_and_others
    assert api("GET", "/me/memory").body == {"enabled": True}
    assert api("PUT", "/users/ada/memory", {"enabled": False}).body == {"enabled": False}
    assert service_api("GET", "/me/memory").body == {"enabled": False}
    asked = api.ask("I live in Rome.")
    assert MARKER not in model.requests_for("main")[-1].system
    assert "tools" not in model.requests_for("main")[-1].body
    assert [turn.learnable for turn in Turn.objects.filter(thread_id=asked.body["thread_id"])] == [False, False]
    context = api("POST", f"/threads/{asked.body['thread_id']}/context", {}).body
    assert MARKER not in str(context["system"])
    told = api("POST", "/tools/memory_recall", {"arguments": {"query": "secret"}}).body["content"]
    assert told == "Error: memory is switched off for this user."
    voice = api("POST", "/voice/sessions", {"instructions": "Be kind."}).body["instructions"]
    assert voice == "Be kind."
    calls = len(model.requests_for("cheap"))
    learn()
    assert len(model.requests_for("cheap")) == calls
    assert api.facts() == {"secret": MARKER}, "It is theirs to see."
    assert api("PUT", "/me/memory", {"enabled": True}).body == {"enabled": True}
    api.ask("Hello again")
    assert MARKER in model.requests_for("main")[-1].system


@pytest.mark.django_db(transaction=True)
def test_what_a_model_is_reading_when_memory_goes_off_is_not_written(api: Api, model: ScriptedModelServer) -> None:
    api.ask("I live in Rome.")

    def learned(request: RecordedRequest) -> Any:
        api("PUT", "/me/memory", {"enabled": False})
        return {"operations": [{"op": "SET", "key": "home", "value": "Rome"}]}

    model.defaults["cheap"] = learned
    learn()
    assert api.facts() == {}
