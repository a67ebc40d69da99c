"""O23: user ids as they come. Rule K12."""

from urllib.parse import quote

import pytest
from pytest_django import Settings

from memorygw import gateway
from memorygw.testing import ScriptedModelServer
from tests.conftest import Api
from usermemory.models import UserMemory

IDS = [
    "user/13",
    "a+b@example.com",
    "a b@example.com",
    "A+B@example.com",
    "Ünal Ö",
    "42",
    "0042",
    "..",
    "a%2Fb",
    "x" * 255,
]
BAD = ["", " ", "x" * 256, "a\nb", "a\x00b"]


def test_ten_ids_are_ten_users_each_as_given(api: Api) -> None:
    for user in IDS:
        assert api("PUT", "/facts/tag", {"value": user}, user=user).status == (200 if len(user) <= 200 else 400)
        thread = api("POST", "/threads", {}, user=user).body
        assert thread["user_id"] == user
        assert [item["id"] for item in api("GET", "/threads", user=user).body["items"]] == [thread["id"]]
    assert {user: api.facts(user).get("tag") for user in IDS[:9]} == {user: user for user in IDS[:9]}


def test_the_longest_id_may_also_be_a_value_where_values_may_be_that_long(api: Api, settings: Settings) -> None:
    settings.MEMORYGW_MAX_FACT_CHARS = 255
    for user in IDS:
        assert api("PUT", "/facts/tag", {"value": user}, user=user).body["value"] == user
    assert UserMemory.objects.count() == 10


@pytest.mark.parametrize("user", IDS)
def test_every_id_can_stand_in_a_path_or_has_a_twin_in_the_query(api: Api, user: str) -> None:
    api("POST", "/threads", {}, user=user)
    twin = api("POST", "/users/forget", {"mode": "delete"}, user=user)
    assert (twin.status, twin.body["counts"]["threads"]) == (200, 1)
    if user != "..":
        api("POST", "/threads", {}, user=user)
        api.user = None
        named = api("POST", f"/users/{quote(user, safe='')}/forget", {"mode": "delete"})
        assert (named.status, named.body["counts"]["threads"]) == (200, 1)


@pytest.mark.parametrize("user", BAD)
def test_what_is_no_id_is_refused(api: Api, user: str) -> None:
    assert api("PUT", "/facts/tag", {"value": "x"}, user=user).status == 400
    assert api("POST", "/ask", {"content": "x"}, user=user).status == 400


def test_an_integer_is_the_user_of_its_decimal_text(api: Api, model: ScriptedModelServer) -> None:
    answer = gateway.ask("acme", 42, "Hello")
    gateway.upsert_user_fact("acme", 42, "tag", "integer")
    assert api.facts("42") == {"tag": "integer"}
    assert api("GET", f"/threads/{answer.thread_id}", user="42").body["user_id"] == "42"
    assert api.facts("0042") == {}


def test_a_thread_id_of_another_form_is_not_found(api: Api) -> None:
    assert api("GET", "/threads/not-a-uuid").status == 404
