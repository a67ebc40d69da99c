import pytest

from memorygw.replies import json_values


@pytest.mark.parametrize(
    ("reply", "values"),
    [
        ('Sure:\n```json\n{"a": "x"}\n```\nDone.', [{"a": "x"}]),
        ('From {this} and {that}: ["x"]', [["x"]]),
        ('<think>{"a": 1}</think>{"a": 2}', [{"a": "2"}]),
        ('{"a": 1}</think>{"a": 2}', [{"a": "2"}]),
        ('{"a": 1}<think>{"a": 2}', [{"a": "1"}]),
        ('<THINKING>{"a": 1}</thinking > []', [[]]),
        ('{"a": "wrap ```json {} ``` <think> and </think>"}', [{"a": "wrap ```json {} ``` <think> and </think>"}]),
        ('{"a": "two\nlines"}', [{"a": "two\nlines"}]),
        ('{"a": NaN, "b": 1.50, "c": true}', [{"a": None, "b": "1.50", "c": True}]),
        ("no JSON { at all", []),
        ("", []),
    ],
)
def test_json_is_found_whatever_stands_around_it(reply: str, values: list[object]) -> None:
    assert json_values(reply) == values


@pytest.mark.parametrize("reply", ["[" * 90_000, '{"a":' * 19_000, '{"' * 45_000, "<think>" * 14_000, "[]" * 100_000])
def test_a_hostile_reply_raises_nothing(reply: str) -> None:
    assert json_values(reply) == []


def test_an_endless_number_is_read_as_its_text() -> None:
    assert json_values(f"[{'9' * 10_000}]") == [["9" * 10_000]]
