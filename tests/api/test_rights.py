"""Forgetting a person, the first, plain version."""

from datetime import timedelta

import pytest
from django.utils import timezone

from memorygw.conf import component
from memorygw.models import ModelCall
from memorygw.testing import ScriptedModelServer
from tests.conftest import Api, learn
from threads.models import Run, Thread, Turn
from usermemory.models import ExtractionState, Fact, UserMemory
from workingmemory.models import WorkingMemoryState

MARKER = "MARKER-9F3A"


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
    assert set(first.body) == {"id", "mode", "status", "counts", "verified"}
    assert first.body["counts"] == {"threads": 3, "turns": 6, "runs": 3, "facts": 1, "voice_sessions": 0}
    assert (first.body["mode"], first.body["status"], first.body["verified"]) == ("delete", "done", True)
    second = api("POST", "/users/ada/forget", {"mode": "delete"})
    assert second.body["counts"] == {"threads": 0, "turns": 0, "runs": 0, "facts": 0, "voice_sessions": 0}
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


def test_an_erasure_that_died_halfway_is_finished_by_the_next(ada_and_others: Api) -> None:
    api = ada_and_others
    tenant = Thread.objects.filter(user_id="bob")[0].tenant_id
    component("USER_MEMORY_STORE").begin_erasure(tenant, "ada")
    assert api("PUT", "/facts/lang", {"value": "de"}).error["code"] == "erasure_running"
    assert api("POST", "/users/ada/forget", {"mode": "delete"}).body["verified"] is True
    assert api("PUT", "/facts/lang", {"value": "de"}).status == 200
    assert api.facts() == {"lang": "de"}


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"mode": "shred"},
        {"mode": "anonymize"},
        {"mode": "delete", "dry_run": True},
        {"mode": "delete", "force": True},
    ],
)
def test_what_cannot_be_done_yet_is_refused_and_erases_nothing(ada_and_others: Api, body: dict[str, object]) -> None:
    assert ada_and_others("POST", "/users/ada/forget", body).status == 400
    assert ada_and_others.facts() == {"secret": MARKER}
