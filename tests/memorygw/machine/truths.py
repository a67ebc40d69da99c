"""The invariants: what holds between any two calls, whatever befell those before."""

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from memorygw import gateway
from memorygw.claims import MAX_ATTEMPTS, LateWork
from memorygw.conf import conf
from memorygw.context import Context
from memorygw.testing import ScriptedModelServer
from tests.memorygw.machine.ledger import ADA, Ledger, Snapshot
from threads.models import Turn

INSTRUCTIONS = ("system", "developer")
OVER = ("completed", "failed", "cancelled")
SMALL_BUDGET_TOKENS = 12


def check_all(ledger: Ledger, server: ScriptedModelServer) -> None:
    rows = ledger.snapshot()
    check_turns(ledger, rows)
    check_calls(rows)
    check_holder(ledger, rows)
    check_runs(rows)
    check_states(ledger, rows)
    check_facts(ledger, rows)
    check_notes(ledger, rows)
    check_contexts(ledger, rows)
    for request in server.requests:
        if request.model != "cheap":
            check_messages([message for message in request.messages if message["role"] != "system"])


# --- the thread


def check_turns(ledger: Ledger, rows: Snapshot) -> None:
    """Numbered without a gap, counted, never changed, never lost; what was refused is not among them."""
    turns, thread = rows.turns, rows.thread
    assert [turn.seq for turn in turns] == list(range(1, len(turns) + 1))
    counted = [0 if turn.role in INSTRUCTIONS else turn.token_count for turn in turns]
    assert [turn.tokens_through for turn in turns] == list(accumulate(counted))
    assert (thread.turn_count, thread.token_count) == (len(turns), sum(counted))
    instructions = [turn.seq for turn in turns if turn.role in INSTRUCTIONS]
    assert thread.instructions_seq == (instructions[-1] if instructions else None)
    digests = [digest(turn) for turn in turns]
    assert digests[: len(ledger.stored)] == ledger.stored
    ledger.stored = digests
    texts = [turn.content for turn in turns if turn.role != "tool"]
    assert not ledger.unsaid.intersection(texts)
    assert all(texts.count(text) == 1 for text in ledger.said)


def digest(turn: Turn) -> tuple[str, ...]:
    return tuple(repr(getattr(turn, column.attname)) for column in Turn._meta.concrete_fields)


def check_calls(rows: Snapshot) -> None:
    """Every result answers a call of the thread that was still open, so no call has two."""
    assert all(call for _, call in rows.results())


def check_holder(ledger: Ledger, rows: Snapshot) -> None:
    """Status, lease and run agree, and say what the ledger says."""
    assert len(rows.waiting) <= 1
    assert rows.thread.status == ("AWAITING_HUMAN" if rows.waiting else "OPEN")
    assert not (rows.waiting and rows.thread.lease_token)
    assert rows.thread.lease_token == ledger.holder
    assert rows.has_live_lease == ledger.live
    assert (rows.waiting[0] if rows.waiting else None) == ledger.waiting


def check_runs(rows: Snapshot) -> None:
    """One run to a question, one completed run to an answer; calls are pending where a run waits, and nowhere else."""
    firsts = [run.first_seq for run in rows.runs]
    assert len(set(firsts)) == len(firsts)
    assert all(rows.turns[seq - 1].role == "user" for seq in firsts)
    ends = sorted(run.last_seq for run in rows.runs if run.status == "completed")
    assert ends == [turn.seq for turn in rows.turns if str(turn.content).startswith("reply")]
    calls = [turn.tool_calls for turn in rows.turns if turn.tool_calls]
    for run in rows.runs:
        # A run that goes on keeps in mind what it waited for: until it has got further it may wait again.
        assert run.status in (("awaiting_human", "running") if run.pending else ("running", *OVER))
        pending = [call["tool_call_id"] for call in run.pending] if run.status == "awaiting_human" else []
        assert [call["id"] for call in calls[-1] if call["id"] in pending] == pending if pending else True


# --- what is learned


def check_states(ledger: Ledger, rows: Snapshot) -> None:
    """No marker is ahead of the last answer, and what is due by the beats is marked as due, or failed too often."""
    answered = ledger.answered(rows)
    every = conf.EXTRACT_EVERY_TURNS
    for state in (rows.extraction, rows.notes, rows.title):
        assert state.covered <= state.answered <= len(rows.turns)
    assert rows.extraction.answered == answered
    assert rows.notes.answered == max(answered, ledger.reset_through)
    covered = rows.extraction.covered
    is_due = answered // every > covered // every if covered else answered > 0
    check_due(rows.extraction, is_due=is_due)
    grown = rows.notes.answered - rows.notes.covered
    check_due(rows.notes, is_due=grown >= conf.UPDATE_EVERY_TURNS)


def check_due(state: LateWork, *, is_due: bool) -> None:
    assert bool(state.claim_token) == bool(state.claim_expires_at)
    assert bool(state.due_at) == is_due or state.attempts >= MAX_ATTEMPTS


def check_facts(ledger: Ledger, rows: Snapshot) -> None:
    """The facts are those that follow from the marker and the turns, but for what the cap takes; each learned once."""
    facts, expected = rows.facts, ledger.expected_facts(rows)
    assert rows.fact_count == len(facts)
    assert facts.keys() <= expected.keys() - ledger.dropped
    # What a step added, beside what it removed by name, is all that can have pushed facts out.
    peak = len((expected.keys() - ledger.dropped) | (ledger.known - expected.keys()))
    missing = expected.keys() - ledger.dropped - facts.keys()
    assert len(facts) <= conf.MAX_FACTS
    assert len(missing) <= max(0, peak - conf.MAX_FACTS)
    ledger.dropped |= missing
    ledger.known = set(facts)
    for key, value in facts.items():
        assert value == (expected[key] or ledger.values.setdefault(key, value))


def check_notes(ledger: Ledger, rows: Snapshot) -> None:
    """The notes have been told every word up to their marker once, and nothing from before a reset."""
    assert rows.notes.facts == ledger.words(rows, ledger.reset_through, rows.notes.covered)


# --- what a request would carry


def check_contexts(ledger: Ledger, rows: Snapshot) -> None:
    parts = (len(rows.turns), rows.notes.covered, len(rows.notes.facts))
    if parts == ledger.carried:
        return
    ledger.carried = parts
    roomy = gateway.get_context(ledger.tenant_id, ADA, ledger.thread_id)
    check_context(roomy, rows)
    tight = gateway.get_context(ledger.tenant_id, ADA, ledger.thread_id, budget_tokens=SMALL_BUDGET_TOKENS)
    check_context(tight, rows)
    if rows.user_seqs:
        # Nothing is lost between notes and window.
        before = [seq for seq in rows.user_seqs if seq <= rows.notes.covered + 1]
        assert roomy.turns[0].seq <= (before[-1] if before else rows.user_seqs[0])


def check_context(context: Context, rows: Snapshot) -> None:
    """It opens on a user turn and goes on without a hole to the end, so that it holds the newest user group."""
    check_messages(context.messages)
    seqs = [turn.seq for turn in context.turns]
    if not rows.user_seqs:
        assert seqs == []
        return
    assert seqs[0] in rows.user_seqs
    spoken = [turn for turn in rows.turns[seqs[0] - 1 :] if turn.role not in INSTRUCTIONS]
    assert seqs == [seq for index in range(len(spoken)) for seq in sendable(spoken, index)]


def sendable(turns: Sequence[Turn], index: int) -> list[int]:
    """The number of this turn, followed by its results if it calls tools; none when a provider would refuse it."""
    turn = turns[index]
    if turn.role == "tool":
        return []
    wanted, results = {call["id"] for call in turn.tool_calls or ()}, []
    for later in turns[index + 1 :]:
        if later.role != "tool":
            break
        if later.tool_call_id in wanted:
            wanted.remove(later.tool_call_id)
            results.append(later.seq)
    if not wanted:
        return [turn.seq, *results]
    return [turn.seq] if turn.content else []


def check_messages(messages: Sequence[dict[str, Any]]) -> None:
    """As providers demand: a user message first, and right behind a call the results of exactly its calls."""
    assert not messages or messages[0]["role"] == "user"
    open_calls: set[str] = set()
    for message in messages:
        if message["role"] == "tool":
            open_calls.remove(message["tool_call_id"])
        else:
            assert not open_calls
            open_calls = {call["id"] for call in message.get("tool_calls") or ()}
    assert not open_calls
