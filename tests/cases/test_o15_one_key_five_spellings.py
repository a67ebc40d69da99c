"""O15: one key in five spellings, two of them with another accent. Rule K8."""

from datetime import datetime

import pytest

from memorygw.testing import ScriptedModelServer
from tests.cases.steps import extract, fact, put
from tests.conftest import Api

COMPOSED = "caf\u00e9 order"
DECOMPOSED = "cafe\u0301 order"


@pytest.mark.rows("U39", "U40", "U41", "U42", "U43", "U44", "U91", "U92", "U93", "U98")
def test_spellings_of_one_key_are_one_fact_shown_as_last_written(api: Api, model: ScriptedModelServer) -> None:
    extract(api, model, put("Favorite Color", "teal"))
    extract(api, model, put(" favorite   color ", "green"))
    color_source = extract(api, model, put("FAVORITE COLOR", "navy"))
    extract(api, model, put(COMPOSED, "latte"))
    order_source = extract(api, model, put(DECOMPOSED, "mocha"))
    assert api.facts() == {"FAVORITE COLOR": "navy", DECOMPOSED: "mocha"}
    learned = fact(api, "FAVORITE COLOR")
    assert (learned["source_thread_id"], learned["origin"]) == (color_source, "auto")
    assert fact(api, DECOMPOSED)["source_thread_id"] == order_source

    assert api("PUT", "/facts/favorite%20color", {"value": "navy"}).status == 200
    assert api.facts() == {"favorite color": "navy", DECOMPOSED: "mocha"}
    by_hand = fact(api, "favorite color")
    assert (by_hand["source_thread_id"], by_hand["origin"]) == (None, "manual")
    assert datetime.fromisoformat(by_hand["updated_at"]) > datetime.fromisoformat(learned["updated_at"])

    before = api("GET", "/facts").body
    extract(api, model, put("favorite color", " navy "))
    assert api("GET", "/facts").body == before
