"""O11 and O12: operations wrapped in other text, and operations of the wrong shape. Rules K6, K8, K18."""

import json
import logging

import pytest

from memorygw.testing import ScriptedModelServer
from tests.conftest import Api, extractions, learn
from usermemory.models import ExtractionState

FENCED = """Here is what I noted:
```json
{"operations":[{"op":"SET","key":"city","value":"Milan"}]}
```
Tell me if you want changes."""
BRACES = 'From the talk {about lunch} I get: {"operations":[{"op":"SET","key":"lunch","value":"ramen"}]}'
THINKING = """<think>Draft: {"operations":[{"op":"SET","key":"team","value":"Rome"}]} no, they said Turin</think>
{"operations":[{"op":"SET","key":"team","value":"Turin"}]}"""
BARE = '[{"op":"SET","key":"shift","value":"nights"}]'
FENCE_IN_VALUE = '{"operations":[{"op":"SET","key":"doc_style","value":"wrap samples in ```json fences``` please"}]}'


@pytest.mark.rows("U8", "U85", "U88", "U90", "U96", "U103", "U105", "U106")
@pytest.mark.parametrize(
    ("reply", "facts"),
    [
        (FENCED, {"city": "Milan"}),
        (BRACES, {"lunch": "ramen"}),
        (THINKING, {"team": "Turin"}),
        (BARE, {"shift": "nights"}),
        (FENCE_IN_VALUE, {"doc_style": "wrap samples in ```json fences``` please"}),
        ('{"operations":[]}', {}),
    ],
)
def test_operations_are_found_in_whatever_the_model_says(
    api: Api, model: ScriptedModelServer, reply: str, facts: dict[str, str]
) -> None:
    model.reply(reply, model="cheap")
    api.ask("Hello")
    learn()
    assert api.facts() == facts
    assert len(extractions(model)) == 1
    state = ExtractionState.objects.get()
    assert (state.covered, state.last_error, state.due_at) == (2, "", None)


@pytest.mark.rows("U103", "U105", "U106", "W57")
@pytest.mark.parametrize(
    ("reply", "error", "number"),
    [
        ("I'm sorry, I can't help with that.", "reply_malformed", "5372598726369"),
        (500, "http_500", "5372598726156"),
    ],
)
def test_a_failed_extraction_is_reported_changes_nothing_and_is_tried_again(
    api: Api, model: ScriptedModelServer, caplog: pytest.LogCaptureFixture, reply: str | int, error: str, number: str
) -> None:
    api("PUT", "/facts/lang", {"value": "de"})
    if isinstance(reply, int):
        model.fail(reply, model="cheap")
    else:
        model.reply(reply, model="cheap")
    thread_id = api.ask("I live in Turin.").body["thread_id"]
    with caplog.at_level(logging.WARNING, logger="usermemory"):
        learn()
    assert number in caplog.text
    assert "Turin" not in caplog.text
    assert api.facts() == {"lang": "de"}
    state = ExtractionState.objects.get()
    assert (state.covered, state.attempts, state.last_error) == (0, 1, error)
    assert state.due_at is not None

    model.reply(BARE, model="cheap")
    assert api.ask("More", thread_id).status == 200
    learn()
    assert api.facts() == {"lang": "de", "shift": "nights"}
    assert "I live in Turin." in extractions(model)[-1].text


def test_one_bad_operation_costs_only_itself(
    api: Api, model: ScriptedModelServer, caplog: pytest.LogCaptureFixture
) -> None:
    operations = [
        {"op": "SET", "key": "age", "value": 34},
        {"op": "SET", "key": "spouse", "value": None},
        {"op": "SET", "key": "home", "value": {"a": 1}},
        {"op": "SET", "key": "tags", "value": ["x"]},
        {"op": "set", "key": "Drink", "value": "tea", "confidence": 0.9},
        {"op": "MERGE", "key": "x", "value": "y"},
        "SET city=Rome",
        {"op": "SET", "value": "orphan"},
        {"op": "SET", "key": "", "value": "blank key"},
        {"op": "SET", "key": "empty", "value": ""},
        {"op": "SET", "key": "pet", "value": "  a cat \n"},
    ]
    model.reply(json.dumps({"operations": operations}), model="cheap")
    api.ask("Hello")
    with caplog.at_level(logging.INFO, logger="usermemory"):
        learn()
    assert api.facts() == {"age": "34", "Drink": "tea", "pet": "a cat"}
    assert len(extractions(model)) == 1
    assert "3 applied, 8 skipped" in caplog.text
    assert "Rome" not in caplog.text
