"""O25: a retry is no new event. The half about a client that drops its connection is in tests/e2e/test_retries.py."""

from typing import Any

from tests.conftest import Api

KEY = {"Idempotency-Key": "K-7d1"}
TABLE_FOR_TWO = {"turns": [{"role": "user", "content": "book a table for two", "metadata": {}}]}
REORDERED = {"turns": [{"metadata": {}, "content": "book a table for two", "role": "user"}]}
TABLE_FOR_THREE = {"turns": [{"role": "user", "content": "book a table for three", "metadata": {}}]}


def new_thread(api: Api) -> str:
    return str(api("POST", "/threads", {}).body["id"])


def append(api: Api, thread_id: str, body: Any, headers: dict[str, str] | None = KEY) -> tuple[int, str | None]:
    reply = api("POST", f"/threads/{thread_id}/turns", body, headers=headers)
    return reply.status, reply.body["items"][0]["id"] if reply.status == 201 else None


def count(api: Api, thread_id: str) -> int:
    return len(api("GET", f"/threads/{thread_id}/turns").body["items"])


def test_an_append_that_is_sent_again_stores_nothing_again(api: Api, other_api: Api) -> None:
    thread_id = new_thread(api)
    first = append(api, thread_id, TABLE_FOR_TWO)
    assert first[0] == 201
    assert append(api, thread_id, TABLE_FOR_TWO) == first
    assert append(api, thread_id, REORDERED) == first
    assert append(api, thread_id, TABLE_FOR_THREE) == (409, None)
    assert count(api, thread_id) == 1

    elsewhere = append(api, new_thread(api), TABLE_FOR_TWO)
    anothers = append(other_api, new_thread(other_api), TABLE_FOR_TWO)
    assert (elsewhere[0], anothers[0]) == (201, 201)
    assert len({first[1], elsewhere[1], anothers[1]}) == 3


def test_without_a_key_the_same_turn_twice_is_two_turns(api: Api) -> None:
    thread_id = new_thread(api)
    ids = {append(api, thread_id, TABLE_FOR_TWO, headers=None)[1] for _ in range(2)}
    assert len(ids) == count(api, thread_id) == 2
