"""O24: pages of threads, and turns of a thread, that were all made at the same time. Rule K13."""

from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest

from tests.conftest import Api
from threads.models import Thread

CREATED = datetime(2025, 3, 1, tzinfo=UTC)


@pytest.fixture
def made(api: Api) -> set[str]:
    """The ids of 25 threads of one user and one creation time."""
    ids = {api("POST", "/threads", {}).body["id"] for _ in range(25)}
    Thread.objects.update(created_at=CREATED)
    return ids


def page(api: Api, query: str) -> tuple[list[str], bool]:
    body = api("GET", f"/threads?{query}").body
    return [thread["id"] for thread in body["items"]], body["has_more"]


@pytest.mark.rows("T40", "T41", "T42", "T43", "T44")
def test_every_thread_is_on_one_page_and_the_way_back_is_the_same(api: Api, made: set[str]) -> None:
    first, more = page(api, "limit=10")
    assert (len(first), more) == (10, True)
    second, more = page(api, f"limit=10&ending_before={first[-1]}")
    assert (len(second), more) == (10, True)
    third, more = page(api, f"limit=10&ending_before={second[-1]}")
    assert (len(third), more) == (5, False)
    assert sorted(first + second + third) == sorted(made)
    assert page(api, f"limit=10&starting_after={third[0]}") == (second, True)
    assert page(api, f"limit=10&starting_after={second[0]}") == (first, False)


@pytest.mark.rows("T45", "T46", "T47", "T48")
def test_a_cursor_or_limit_that_is_none_never_gives_a_page(api: Api, made: set[str]) -> None:
    cursor, other = page(api, "limit=10")[0][-2:]
    assert api("DELETE", f"/threads/{cursor}").status == 204
    theirs = api("POST", "/threads", {}, user="bob").body["id"]
    Thread.objects.update(created_at=CREATED)
    for name in ("ending_before", "starting_after"):
        for dead in (cursor, theirs, str(uuid4())):
            assert api("GET", f"/threads?limit=10&{name}={dead}").status == 404
        assert api("GET", f"/threads?limit=10&{name}=garbage").status in (400, 404)
    assert api("GET", f"/threads?ending_before={other}&starting_after={other}").status == 400
    for limit in ("0", "-1", "201", "abc", "1.5"):
        assert api("GET", f"/threads?limit={limit}").status == 400
    everything, more = page(api, "limit=200")
    assert (sorted(everything), more) == (sorted(made - {cursor}), False)


@pytest.mark.rows("T14")
def test_turns_of_one_time_keep_the_order_in_which_they_came(api: Api) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
    run: list[dict[str, Any]] = [
        {"role": "user", "content": "Rain in Oslo?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": "wet", "tool_call_id": "c1"},
        {"role": "assistant", "content": "Yes."},
    ]
    thread_id = api("POST", "/threads", {}).body["id"]
    same_time = [{**turn, "created_at": CREATED.isoformat()} for turn in run]
    assert api("POST", f"/threads/{thread_id}/turns", {"turns": same_time}).status == 201
    turns = api("GET", f"/threads/{thread_id}/turns").body["items"]
    assert [turn["role"] for turn in turns] == ["user", "assistant", "tool", "assistant"]
    assert {datetime.fromisoformat(turn["created_at"]) for turn in turns} == {CREATED}


@pytest.mark.rows("T62", "T63")
def test_a_long_history_is_one_answer_in_order(api: Api) -> None:
    thread_id = api("POST", "/threads", {}).body["id"]
    history = [
        {"role": "assistant" if n % 2 else "user", "content": f"n={n}", "created_at": CREATED.isoformat()}
        for n in range(250)
    ]
    for start in range(0, 250, 50):
        batch = {"turns": history[start : start + 50]}
        assert api("POST", f"/threads/{thread_id}/turns", batch).status == 201
    turns = api("GET", f"/threads/{thread_id}/turns").body["items"]
    assert [turn["content"] for turn in turns] == [f"n={n}" for n in range(250)]
    assert api("GET", f"/threads/{thread_id}").body["turn_count"] == 250
