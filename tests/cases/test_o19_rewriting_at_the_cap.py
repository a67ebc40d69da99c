"""O19: rewriting facts when there is room for no more. Rule K9."""

import pytest
from pytest_django import Settings

from memorygw.testing import ScriptedModelServer
from tests.cases.steps import extract, fact, put
from tests.conftest import Api


@pytest.fixture(autouse=True)
def small(settings: Settings) -> None:
    settings.MEMORYGW_MAX_FACTS, settings.MEMORYGW_MAX_FACT_CHARS = 3, 20


def by_hand(api: Api, key: str, value: str) -> int:
    return api("PUT", "/facts", {"key": key, "value": value}).status


@pytest.mark.rows("U12", "U13", "U14", "U15", "U16", "U48", "U49", "U50", "U51", "U52", "U92", "U93", "U98", "U100")
def test_a_full_memory_can_be_rewritten_and_loses_what_changed_longest_ago(
    api: Api, model: ScriptedModelServer
) -> None:
    for key in "abc":
        assert by_hand(api, key, "1") == 200

    assert by_hand(api, "b", "2") == 200
    assert api.facts() == {"a": "1", "b": "2", "c": "1"}

    extract(api, model, put("d", "1"))
    assert api.facts() == {"b": "2", "c": "1", "d": "1"}

    assert by_hand(api, "b", "é" * 20) == 200
    assert by_hand(api, "b", "x" * 21) == 400
    assert api.facts() == {"b": "é" * 20, "c": "1", "d": "1"}

    extract(api, model, put("b", "x" * 21))
    assert api.facts() == {"b": "x" * 20, "c": "1", "d": "1"}
    before = fact(api, "b")
    extract(api, model, put("b", "x" * 25))
    assert fact(api, "b") == before
    assert set(api.facts()) == {"b", "c", "d"}

    extract(api, model, *(put(key, "1") for key in "pqrst"))
    assert api.facts() == {"r": "1", "s": "1", "t": "1"}

    assert by_hand(api, "k" * 21, "1") == 400
    assert api.facts() == {"r": "1", "s": "1", "t": "1"}

    assert by_hand(api, "u", f"  {'😀' * 20}  ") == 200
    assert api.facts() == {"s": "1", "t": "1", "u": "😀" * 20}

    assert by_hand(api, "s", "2") == by_hand(api, "v", "1") == 200
    assert api.facts() == {"s": "2", "u": "😀" * 20, "v": "1"}
