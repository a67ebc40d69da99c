"""O18: operations on facts that do not exist. Rules K6, K8."""

import logging

import pytest

from memorygw.testing import ScriptedModelServer
from tests.cases.steps import drop, extract, put
from tests.conftest import Api, extractions
from usermemory.models import ExtractionState


@pytest.mark.rows("U91", "U96")
def test_what_refers_to_nothing_is_skipped_with_a_reason_and_the_rest_applies(
    api: Api, model: ScriptedModelServer, caplog: pytest.LogCaptureFixture
) -> None:
    api("PUT", "/facts/city", {"value": "Turin"})
    by_id = {"op": "UPDATE", "id": "17", "value": "x"}
    with caplog.at_level(logging.INFO, logger="usermemory"):
        extract(api, model, drop("spouse"), by_id, put("city", "Genoa"), drop("*"), drop("cit%"))
    assert api.facts() == {"city": "Genoa"}
    assert "1 applied, 4 skipped" in caplog.text
    assert (caplog.text.count("unknown_key"), caplog.text.count("unknown_operation")) == (3, 1)
    assert len(extractions(model)) == 1
    state = ExtractionState.objects.get()
    assert (state.covered, state.last_error, state.due_at) == (2, "", None)
