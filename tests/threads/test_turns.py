"""Turns as they may be stored, and as a provider gets them (K3, K21)."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from threads.turns import TurnDraft, to_messages, turn_problem, turn_tokens


def call(*ids: str) -> list[dict[str, Any]]:
    return [{"id": i, "type": "function", "function": {"name": "look_up", "arguments": "{}"}} for i in ids]


@dataclass
class SomeTurn:
    role: str
    content: Any = None
    tool_calls: Any = None
    tool_call_id: str | None = None
    refusal: str | None = None
    extras: Any = None
    seq: int = 0
    token_count: int = 1
    created_at: datetime = datetime(2026, 1, 1, tzinfo=UTC)


ids = st.sampled_from(["a", "b", "c"])
some_turns = st.lists(
    st.one_of(
        st.builds(SomeTurn, st.just("user"), st.just("hello")),
        st.builds(SomeTurn, st.just("assistant"), st.sampled_from(["text", None]), st.just(None)),
        st.builds(
            SomeTurn,
            st.just("assistant"),
            st.sampled_from(["text", None]),
            st.lists(ids, min_size=1, max_size=3, unique=True).map(lambda chosen: call(*chosen)),
        ),
        st.builds(lambda i: SomeTurn("tool", "result", tool_call_id=i), ids),
    ),
    max_size=25,
)


@given(some_turns)
def test_every_call_that_goes_out_has_its_results_right_behind_it_and_no_result_comes_alone(
    turns: list[SomeTurn],
) -> None:
    messages = [message for _, message in to_messages(turns)]
    waiting: set[str] = set()
    for message in messages:
        if message["role"] == "tool":
            assert message["tool_call_id"] in waiting
            waiting.remove(message["tool_call_id"])
        else:
            assert not waiting
            waiting = {made["id"] for made in message.get("tool_calls", ())}
    assert not waiting
    # Nothing that was said is lost.
    said = [turn.content for turn in turns if turn.role != "tool" and turn.content]
    assert [message["content"] for message in messages if message["role"] != "tool" and message["content"]] == said


@pytest.mark.rows("W32")
def test_parallel_calls_go_out_together_or_not_at_all() -> None:
    question, both, first, second = (
        SomeTurn("user", "Check both"),
        SomeTurn("assistant", None, call("k1", "k2")),
        SomeTurn("tool", "one", tool_call_id="k1"),
        SomeTurn("tool", "", tool_call_id="k2"),
    )
    assert [turn for turn, _ in to_messages([question, both, first, second])] == [question, both, first, second]
    assert [turn for turn, _ in to_messages([question, both, first])] == [question]
    spoken = SomeTurn("assistant", "Let me see.", call("k1", "k2"))
    assert [message for _, message in to_messages([question, spoken, first])] == [
        {"role": "user", "content": "Check both"},
        {"role": "assistant", "content": "Let me see."},
    ]


def test_a_refusal_is_sent_on() -> None:
    [(_, message)] = to_messages([SomeTurn("assistant", None, refusal="No.")])
    assert message == {"role": "assistant", "content": None, "refusal": "No."}


@pytest.mark.parametrize(
    ("draft", "field"),
    [
        (TurnDraft(role="user", content="hello"), None),
        (TurnDraft(role="user", content=[{"type": "image_url", "image_url": {"url": "data:,x"}}]), None),
        (TurnDraft(role="user", content=[{"type": "text", "text": " "}]), "content"),
        (TurnDraft(role="user", content=""), "content"),
        (TurnDraft(role="user", content=None), "content"),
        (TurnDraft(role="user", content="x", tool_calls=call("a")), "tool_calls"),
        (TurnDraft(role="assistant", content=None, tool_calls=call("a", "b")), None),
        (TurnDraft(role="assistant", content=None), "content"),
        (TurnDraft(role="assistant", content=""), "content"),
        (TurnDraft(role="assistant", content="", tool_calls=[]), "content"),
        (TurnDraft(role="assistant", content=None, refusal="No."), None),
        (TurnDraft(role="assistant", content=None, tool_calls=call("a", "a")), "tool_calls"),
        (TurnDraft(role="assistant", content="x", tool_calls=[{"id": "a"}]), "tool_calls"),
        (TurnDraft(role="assistant", content="x", tool_calls=["a"]), "tool_calls"),  # type: ignore[list-item]
        (TurnDraft(role="assistant", content="x", tool_calls=[{"id": "a", "function": {"name": "f"}}]), "tool_calls"),
        (TurnDraft(role="tool", content="", tool_call_id="a"), None),
        (TurnDraft(role="tool", content=None, tool_call_id="a"), "content"),
        (TurnDraft(role="tool", content="x"), "tool_call_id"),
        (TurnDraft(role="assistant", content="x", tool_call_id="a"), "tool_call_id"),
        (TurnDraft(role="system", content="Be brief."), None),
        (TurnDraft(role="developer", content=" "), "content"),
    ],
)
def test_a_turn_that_a_provider_would_refuse_for_ever_is_not_stored(draft: TurnDraft, field: str | None) -> None:
    problem = turn_problem(draft)
    assert (problem and problem[0]) == field


def test_a_picture_counts_flat_and_calls_count_as_text() -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 200_000}}
    text = {"type": "text", "text": "What breed is it?"}
    plain = turn_tokens(TurnDraft(role="user", content=[text]), "gpt-4o")
    assert plain < turn_tokens(TurnDraft(role="user", content=[text, picture]), "gpt-4o") < 5_000
    assert turn_tokens(TurnDraft(role="assistant", content=None), "gpt-4o") == 0
    assert turn_tokens(TurnDraft(role="assistant", content=None, tool_calls=call("a")), "gpt-4o") > 5
