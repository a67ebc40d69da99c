"""Threads over REST: shapes, errors, ownership."""

from datetime import timedelta
from uuid import uuid4

import pytest
from django.utils import timezone

from memorygw.models import Persona, Tenant
from memorygw.testing import ScriptedModelServer
from tests.conftest import Api, learn
from threads.models import Thread

THREAD_FIELDS = {"id", "user_id", "title", "status", "turn_count", "persona", "created_at", "updated_at"}
TURN_FIELDS = {
    "id", "seq", "role", "content", "tool_calls", "tool_call_id", "refusal", "model", "status", "token_count",
    "metadata", "created_at",
}  # fmt: skip
NOT_FOUND = {"code": "thread_not_found", "message": "There is no such thread.", "number": 5372567786151}


@pytest.mark.rows("T16", "T17", "T18", "T19", "T21", "T22", "T26", "T34", "T36")
def test_a_thread_is_made_and_read(api: Api) -> None:
    made = api("POST", "/threads", {"title": "Plans", "id": str(uuid4()), "status": "CLOSED"})
    assert made.status == 201
    assert set(made.body) == THREAD_FIELDS
    assert (made.body["user_id"], made.body["title"], made.body["status"], made.body["turn_count"]) == (
        "ada", "Plans", "OPEN", 0,
    )  # fmt: skip
    assert api("GET", f"/threads/{made.body['id']}").body == made.body
    assert api("POST", "/threads", {}).body["title"] == ""


@pytest.mark.rows("T5", "T66", "T69", "T73", "T74")
def test_a_title_is_the_users_and_nothing_else_is(api: Api) -> None:
    thread_id = api("POST", "/threads", {}).body["id"]
    renamed = api(
        "PATCH", f"/threads/{thread_id}", {"title": "New", "status": "CLOSED", "turn_count": 9, "summary": "x"}
    )
    assert (renamed.body["title"], renamed.body["status"], renamed.body["turn_count"]) == ("New", "OPEN", 0)
    assert api("PATCH", f"/threads/{thread_id}", {}).body["title"] == "New"
    assert api("PATCH", f"/threads/{thread_id}", {"title": "x" * 200}).status == 200
    refused = api("PATCH", f"/threads/{thread_id}", {"title": "x" * 201})
    assert (refused.status, list(refused.error["fields"])) == (400, ["title"])


@pytest.mark.rows("T6", "T13", "T26", "T27", "T28", "T29", "T30", "T64", "T65", "T75", "W46", "W66", "W67", "W73")
def test_foreign_deleted_and_unknown_threads_look_the_same_everywhere(
    api: Api, other_api: Api, model: ScriptedModelServer
) -> None:
    foreign = other_api("POST", "/threads", {}).body["id"]
    somebody_elses = api("POST", "/threads", {}, user="bob").body["id"]
    deleted = api("POST", "/threads", {}).body["id"]
    Thread.objects.filter(pk=deleted).update(deleted_at=timezone.now())
    calls = [
        ("GET", "", None), ("PATCH", "", {"title": "x"}), ("DELETE", "", None), ("GET", "/turns", None),
        ("POST", "/context", {}), ("GET", "/memory", None), ("DELETE", "/memory", None),
        ("POST", "/ask", {"content": "x"}),
    ]  # fmt: skip
    for thread_id in (str(uuid4()), foreign, somebody_elses, deleted, "not-a-uuid"):
        for method, path, body in calls:
            reply = api(method, f"/threads/{thread_id}{path}", body)
            assert (reply.status, reply.body) == (404, {"error": NOT_FOUND})
    assert model.requests == []
    assert Thread.objects.filter(title="").count() == 3


@pytest.mark.rows("T37", "T39", "T44", "T46", "T47", "T48", "T49", "T52")
def test_lists_are_pages(api: Api, other_api: Api) -> None:
    made = [api("POST", "/threads", {}).body["id"] for _ in range(21)]
    foreign = other_api("POST", "/threads", {}).body["id"]
    first = api("GET", "/threads").body
    assert ([thread["id"] for thread in first["items"]], first["has_more"]) == (made[:0:-1], True)
    rest = api("GET", f"/threads?ending_before={made[1]}").body
    assert ([thread["id"] for thread in rest["items"]], rest["has_more"]) == (made[:1], False)
    assert len(api("GET", "/threads?limit=200").body["items"]) == 21
    for limit in ("0", "-1", "201", "abc", "1.5", "", "٣", "+5", "1e1", "0x5", "9" * 400):
        assert api("GET", f"/threads?limit={limit}").status == 400
    assert api("GET", f"/threads?starting_after={made[0]}&ending_before={made[1]}").status == 400
    for cursor in (foreign, str(uuid4()), "garbage", ""):
        assert api("GET", f"/threads?ending_before={cursor}").status == 404


@pytest.mark.rows("T9", "T14", "T57", "T62")
def test_a_history_is_one_answer(api: Api, model: ScriptedModelServer) -> None:
    thread_id = api.ask("  Hello \n").body["thread_id"]
    api.ask([{"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": "data:,x"}}], thread_id)
    turns = api("GET", f"/threads/{thread_id}/turns").body["items"]
    assert [(turn["seq"], turn["role"]) for turn in turns] == [
        (1, "user"), (2, "assistant"), (3, "user"), (4, "assistant"),
    ]  # fmt: skip
    assert set(turns[0]) == TURN_FIELDS
    assert turns[0]["content"] == "  Hello \n"
    assert turns[2]["content"][1] == {"type": "image_url", "image_url": {"url": "data:,x"}}
    assert api("GET", f"/threads/{thread_id}").body["turn_count"] == 4


@pytest.mark.rows("T94", "T95", "T97", "T98", "T99", "T101", "T102")
def test_threads_are_deleted_one_by_one_or_together(api: Api, model: ScriptedModelServer) -> None:
    first, second, third = (api.ask("Hello").body for _ in range(3))
    theirs = api("POST", "/threads", {}, user="bob").body["id"]
    assert api("DELETE", f"/threads/{first['thread_id']}").status == 204
    assert api("DELETE", f"/threads/{first['thread_id']}").status == 404
    assert api("GET", f"/runs/{first['run']['id']}").status == 404
    mixed = [second["thread_id"], theirs, str(uuid4()), "not-a-uuid"]
    assert api("POST", "/threads/delete", {"ids": mixed}).body == {"threads": 1, "turns": 2}
    assert api("POST", "/threads/delete", {"ids": []}).body == {"threads": 0, "turns": 0}
    Thread.objects.filter(pk=third["thread_id"]).update(lease_expires_at=timezone.now() + timedelta(hours=1))
    busy = api("POST", "/threads/delete", {"ids": "all"})
    assert (busy.status, busy.error["code"], busy.error["thread_ids"]) == (409, "thread_busy", [third["thread_id"]])
    Thread.objects.update(lease_expires_at=None)
    assert api("POST", "/threads/delete", {"ids": "all"}).body == {"threads": 1, "turns": 2}
    for wrong in ({}, {"ids": "some"}, {"ids": None}, {"ids": [1]}, {"ids": {"a": 1}}):
        assert api("POST", "/threads/delete", wrong).status == 400
    assert api("GET", f"/threads/{theirs}", user="bob").status == 200


@pytest.mark.rows("W60", "W61", "W65", "W72")
def test_a_threads_memory_is_shown_and_reset(api: Api, model: ScriptedModelServer) -> None:
    model.reply({"operations": []}, model="cheap")
    model.reply({"summary": "Tea.", "facts": ["oolong"]}, model="cheap")
    thread_id = api.ask("Tea?").body["thread_id"]
    empty = api("GET", f"/threads/{thread_id}/memory").body
    assert empty == {"summary": "", "facts": [], "turn_count": 0, "updated_at": None}
    for _ in range(2):
        api.ask("Oolong!", thread_id)
    learn()
    memory = api("GET", f"/threads/{thread_id}/memory").body
    assert (memory["summary"], memory["facts"], memory["turn_count"]) == ("Tea.", ["oolong"], 6)
    assert memory["updated_at"]
    assert api("DELETE", f"/threads/{thread_id}/memory").status == 204
    assert api("GET", f"/threads/{thread_id}/memory").body["summary"] == ""


@pytest.mark.rows("W36", "U6", "U23")
def test_a_context_is_what_the_next_request_carries(api: Api, model: ScriptedModelServer, tenant: Tenant) -> None:
    Persona.objects.create(tenant=tenant, name="coach", instructions="Be brief.\n{memory}\nAnswer in rhyme.")
    api("PUT", "/facts/city", {"value": "Turin"})
    thread_id = api.ask("Hello").body["thread_id"]
    calls = len(model.requests)
    context = api("POST", f"/threads/{thread_id}/context", {"persona": "coach"}).body
    assert context["system"].startswith("Be brief.\n<user_memory>\n")
    assert context["system"].endswith("</user_memory>\nAnswer in rhyme.")
    assert context["messages"] == [
        {"role": "user", "content": "Hello", "seq": 1}, {"role": "assistant", "content": "ok", "seq": 2},
    ]  # fmt: skip
    assert [(fact["key"], fact["value"]) for fact in context["facts"]] == [("city", "Turin")]
    assert (context["warnings"], context["over_budget"], context["notes"]) == ([], False, "")
    assert context["usage"]["prompt_tokens"] > 20
    assert len(model.requests) == calls
    tight = api("POST", f"/threads/{thread_id}/context", {"budget_tokens": 0}).body
    assert (len(tight["messages"]), tight["over_budget"]) == (2, True)
    assert api("POST", f"/threads/{thread_id}/context", {"persona": "nobody"}).error["code"] == "persona_not_found"
    for wrong in ({"budget_tokens": -1}, {"budget_tokens": "many"}, {"budget_tokens": 10**30}, {"model": 3.5}):
        reply = api("POST", f"/threads/{thread_id}/context", wrong)
        assert reply.status == (200 if "model" in wrong else 400)
