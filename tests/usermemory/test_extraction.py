"""Rule K6: what a model's reply is taken to mean."""

import json

import pytest

from usermemory.extraction import Operation, parse


def read(reply: str) -> list[tuple[str, str, str]] | None:
    proposal = parse(reply)
    return None if proposal is None else [(item.op, item.key, item.value) for item in proposal.operations]


def test_an_empty_list_is_an_answer_and_no_list_is_a_failure() -> None:
    assert read('{"operations": []}') == []
    assert read("[]") == []
    assert read("I'm sorry, I can't help with that.") is None
    assert read('{"facts": ["x"]}') is None
    assert read("see [1] and [2]") is None


def test_the_last_valid_list_counts() -> None:
    reply = (
        'First {"operations": [{"op": "SET", "key": "a", "value": "1"}]} then [{"op": "DELETE", "key": "a"}] as in [1]'
    )
    assert read(reply) == [("DELETE", "a", "")]


def test_a_list_is_found_inside_other_objects() -> None:
    assert read('{"result": {"operations": [{"op": "SET", "key": "a", "value": "b"}]}}') == [("SET", "a", "b")]
    assert read('{"data": [{"op": "set", "key": "a", "value": "b"}]}') == [("SET", "a", "b")]


def test_a_reply_cut_in_the_middle_is_a_failure() -> None:
    whole = json.dumps(
        {"operations": [{"op": "SET", "key": "a", "value": "b"}, {"op": "SET", "key": "c", "value": "d"}]}
    )
    assert all(read(whole[:end]) is None for end in range(len(whole) - 1))


@pytest.mark.rows("U99")
def test_a_bad_item_is_skipped_alone_with_a_reason() -> None:
    items = [
        {"op": "SET", "key": "age", "value": 34},
        {"op": "SET", "key": "vegan", "value": True},
        {"op": "SET", "key": "none", "value": None},
        {"op": "SET", "key": "object", "value": {"a": 1}},
        {"op": "MERGE", "key": "x", "value": "y"},
        "SET city=Rome",
        {"op": "SET", "value": "orphan"},
        {"op": "SET", "key": "  ", "value": "blank key"},
        {"op": "SET", "key": "empty", "value": ""},
        {"op": "set", "key": " Drink ", "value": " tea \n"},
    ]
    proposal = parse(json.dumps({"operations": items}))
    assert proposal is not None
    assert [(item.key, item.value) for item in proposal.operations] == [
        ("age", "34"),
        ("vegan", "true"),
        ("Drink", "tea"),
    ]
    assert sorted(proposal.skipped) == sorted(
        ["no_value", "no_value", "unknown_operation", "not_an_object", "no_key", "no_key", "no_value"]
    )


@pytest.mark.parametrize(("given", "read"), [(0.4, 0.4), ("0.4", 0.4), (7, 1.0), (-1, 0.0), ("NaN", 0.8), (None, 0.8)])
def test_confidence_is_a_number_from_0_to_1(given: object, read: float) -> None:
    proposal = parse(json.dumps([{"op": "SET", "key": "a", "value": "b", "confidence": given}]))
    assert proposal is not None
    assert proposal.operations == [Operation("SET", "a", "b", read)]


@pytest.mark.parametrize(
    ("given", "read"),
    [
        (" I like\ntea ", "I like\ntea"),
        ("a\x00b\ud800", "ab\ufffd"),
        (34, "34"),
        ("", ""),
        (" \n", ""),
        (None, ""),
        (True, ""),
        (["I like tea"], ""),
        ({"quote": "I like tea"}, ""),
    ],
)
@pytest.mark.parametrize("op", ["SET", "DELETE"])
def test_evidence_is_text_or_none(op: str, given: object, read: str) -> None:
    proposal = parse(json.dumps([{"op": op, "key": "a", "value": "b", "evidence": given}]))
    assert proposal is not None
    assert [(item.op, item.evidence, item.source_seq) for item in proposal.operations] == [(op, read, None)]
    assert proposal.skipped == []


def test_text_that_no_database_takes_is_cleaned() -> None:
    assert read('[{"op": "SET", "key": "a\\u0000", "value": "b\\ud800"}]') == [("SET", "a", "b\ufffd")]
