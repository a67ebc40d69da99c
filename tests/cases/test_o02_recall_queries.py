"""O02: any text is a legal query, and spelling does not hide a fact. Rules K19, K11."""

from urllib.parse import quote

import pytest

from tests.conftest import Api


@pytest.fixture(autouse=True)
def known(api: Api) -> None:
    api.user = "r-1"
    api("PUT", "/facts/bot_policy", {"value": "the bot's password policy rotates monthly"})
    api("PUT", "/facts/drink", {"value": "caf\u00e9 au lait"})


def found(api: Api, query: str) -> list[dict[str, object]]:
    reply = api("GET", f"/memories/search?query={quote(query)}")
    assert reply.status == 200
    return list(reply.body["data"])


@pytest.mark.parametrize(
    ("query", "first"),
    [("What's your password policy?", "bot_policy"), ("cafe\u0301", "drink"), ("CAF\u00c9", "drink")],
)
def test_the_fact_that_is_meant_comes_first(api: Api, query: str, first: str) -> None:
    assert found(api, query)[0]["key"] == first


def test_no_character_is_an_operator(api: Api) -> None:
    assert found(api, '"rotates" OR &|!():* \\')[0]["key"] == "bot_policy"
    assert found(api, "%") == found(api, "_") == []
    assert found(api, "policy " * 5_000)[0]["key"] == "bot_policy"
    assert api("GET", "/memories/search?query=").status == 400
    assert api("GET", "/memories?query=%25").body == {"data": []}


@pytest.mark.parametrize(
    ("stored", "query"),
    [
        ("İstanbul", "istanbul"),
        ("İstanbul", "ISTANBUL"),
        ("🐱 and 🐶", "🐱"),
        ("ﾈｺ ＡＢＣ", "ネコ"),
        ("te\u200ba", "tea"),
    ],
)
def test_other_ways_to_write_it_find_it(api: Api, stored: str, query: str) -> None:
    api("PUT", "/facts", {"key": "note", "value": stored})
    for path in ("/memories", "/memories/search"):
        assert [found["value"] for found in api("GET", f"{path}?query={quote(query)}").body["data"]] == [stored]
