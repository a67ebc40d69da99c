"""O16: facts that contradict what is known, and facts that repeat it. Rule K8."""

import pytest

from memorygw.testing import ScriptedModelServer
from tests.cases.steps import drop, extract, fact, put
from tests.conftest import Api


@pytest.mark.rows("U8", "U90", "U91", "U92", "U93", "U95", "U97")
def test_operations_apply_in_their_order_and_repeating_changes_nothing(api: Api, model: ScriptedModelServer) -> None:
    api("PUT", "/facts/diet", {"value": "loves beef"})
    api("PUT", "/facts/team", {"value": "Reds"})

    extract(api, model, drop("diet"), put("diet", "vegetarian since May"))
    assert api.facts() == {"diet": "vegetarian since May", "team": "Reds"}

    extract(api, model, put("diet", "vegan"), drop("diet"))
    assert api.facts() == {"team": "Reds"}

    before = fact(api, "team")
    extract(api, model, put("team", "Reds"))
    assert api.facts() == {"team": "Reds"}
    assert fact(api, "team") == before

    extract(api, model, put("team", "Blues"), put("team", "Greens"))
    assert api.facts() == {"team": "Greens"}

    extract(api, model, put("diet", "vegan"), drop("team"))
    assert api.facts() == {"diet": "vegan"}
