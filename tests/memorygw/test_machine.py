"""One thread of one user under whatever people, programs and workers may do to it, in any order, with crashes.

A state machine of hypothesis: every rule is one call of the gateway, of a worker or of the clock. A call may meet its
fate at any of its statements: its process dies there, or another call comes in between. What is left after an
undisturbed call is foretold; what any call leaves must satisfy `tests.memorygw.machine.truths`.

A failure prints a line with ``reproduce_failure``; put it above `new_machine` to see that example again.
"""

import sys
from collections.abc import Callable
from typing import Any, cast
from uuid import UUID, uuid4

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test
from pytest_django import Settings

from memorygw import gateway, sweep
from memorygw.exceptions import ThreadAwaitingHumanError
from memorygw.models import Tenant
from memorygw.testing import ScriptedModelServer
from tests.memorygw.machine.fates import Died, Fate, Process
from tests.memorygw.machine.ledger import ADA, Others
from tests.memorygw.machine.script import MAX_TOOL_STEPS, WAITING_TOOLS, Models, Script
from tests.memorygw.machine.strategies import (
    ON_A_RUN,
    ON_AN_APPEND,
    ON_MEMORY,
    approvals,
    batches,
    deaths,
    fates,
    helper_faults,
    picks,
    scripts,
    times,
)
from tests.memorygw.machine.truths import check_all
from tests.memorygw.machine.world import CLAIMS, LEASES, NO_KEY, RETRIES, TIMES, Outcome, World
from threads.models import Run
from threads.turns import TurnDraft
from usermemory.models import Fact, UserMemory

EXAMPLES, STEPS = 40, 25
LEARNERS = dict(zip(["facts", "notes", "title", "voice", "vectors"], sweep.LEARNERS, strict=True))
BATCH_TURNS, MOST_SWEEPS = 6, 10
REFUSALS = ("thread_busy", "thread_awaiting_human")
UNANSWERED = ("failed", "running")


class ThreadMachine(RuleBasedStateMachine):
    """The rules. ``bystanders`` are the rows of everybody else, which nothing here may touch."""

    def __init__(self, tenant: Tenant, models: Models, bystanders: list[Any]) -> None:
        super().__init__()
        self.models, self.bystanders = models, bystanders
        self.models.begin()
        self.world = World(tenant, models)
        self.ledger = self.world.ledger
        self.others = Others(tenant.pk, self.world.thread_id)

    # --- how a rule goes

    def attempt(self, fate: Fate | None, work: Callable[[], Outcome | None]) -> tuple[Outcome, bool]:
        """Do ``work`` in a process of its own; how it ended, and whether it was disturbed."""
        process = Process(fate, lambda what: self.world.meanwhile[what]())
        try:
            with process.running():
                outcome = work() or Outcome()
        except Died:
            outcome = Outcome("died")
            if fate and fate.expires:
                self.world.pass_time(*TIMES)
        if process.met:
            self.ledger.read_holder(died=process.dead)
        assert outcome.run_status != "running"
        return outcome, process.met

    def attempt_run(self, fate: Fate | None, work: Callable[[], Outcome], expected: str) -> None:
        """A call that holds the thread while a run is under way."""
        outcome, disturbed = self.attempt(fate, work)
        if disturbed:
            return
        assert outcome.code == expected
        if expected not in REFUSALS:
            self.ledger.freed(outcome.run_id if expected == "waits" else None)

    def wait_until_free(self) -> None:
        """Let the lease of whoever holds the thread run out."""
        if self.ledger.live:
            self.world.pass_time(LEASES)
            self.ledger.live = False

    def a_run(self, pick: int, *statuses: str) -> Run | None:
        """A late one of the thread's runs, of these statuses as long as there are any."""
        runs = self.ledger.snapshot().runs
        chosen = [run for run in runs if run.status in statuses] or runs
        return chosen[-1 - pick % len(chosen)] if chosen else None

    # --- runs

    @rule(fails=st.booleans(), approvals=approvals, fate=fates(20, ON_A_RUN))
    def talk(self, fails: bool, approvals: list[bool], fate: Fate | None) -> None:
        self.go_on(Script(fails=fails), approvals, fate)

    @rule(script=scripts, approvals=approvals, fate=fates(30, ON_A_RUN))
    def talk_with_tools(self, script: Script, approvals: list[bool], fate: Fate | None) -> None:
        self.go_on(script, approvals, fate)

    def go_on(self, script: Script, approvals: list[bool], fate: Fate | None) -> None:
        """Ask, once the thread is free; where a run waits, decide."""
        self.models.begin()
        if self.ledger.waiting:
            run = Run.objects.get(status="awaiting_human", thread_id=self.world.thread_id)
            expected = script.outcome(run.tool_steps)
            self.attempt_run(fate, lambda: self.world.continue_run(run, approvals, script), expected)
        else:
            self.wait_until_free()
            self.attempt_run(fate, lambda: self.world.ask(script), script.outcome(0))

    @precondition(lambda self: self.ledger.refusal)
    @rule()
    def call_in_vain(self) -> None:
        """The thread is held, or waits."""
        refusal, turn_count = self.ledger.refusal, self.world.turn_count
        assert self.world.ask(Script()).code == refusal
        assert self.world.append(["user"]).code == refusal
        assert self.world.take_lease().code == refusal
        assert self.world.turn_count == turn_count

    @rule(pick=picks, script=scripts, fate=fates(20, ON_A_RUN))
    def answer_again(self, pick: int, script: Script, fate: Fate | None) -> None:
        self.models.begin()
        run = self.a_run(pick, *UNANSWERED)
        if run is None:
            return
        if run.status in UNANSWERED:
            self.wait_until_free()
            expected = self.answered_again(run, script)
            self.attempt_run(fate, lambda: self.world.answer_again(run, script), expected)
        else:
            expected = {"completed": "answered", "cancelled": "run_cancelled"}.get(run.status, "waits")
            assert self.world.answer_again(run, script).code == expected

    def answered_again(self, run: Run, script: Script) -> str:
        """What comes of a run that failed, or whose process died."""
        if self.ledger.refusal:
            return self.ledger.refusal
        later = [turn for turn in self.ledger.snapshot().turns if turn.seq > run.first_seq]
        if any(not turn.tool_calls and not turn.tool_call_id for turn in later):
            return "lease_lost" if run.error == "lease_lost" else "model_failed"
        # The latest tool step goes on where it was left.
        open_calls: dict[str, str] = {}
        for turn in later:
            if turn.tool_calls:
                open_calls = {call["id"]: call["function"]["name"] for call in turn.tool_calls}
            open_calls.pop(turn.tool_call_id or "", None)
        return "waits" if WAITING_TOOLS & set(open_calls.values()) else script.outcome(run.tool_steps)

    @rule(pick=picks, fate=fates(6, ON_A_RUN))
    def cancel(self, pick: int, fate: Fate | None) -> None:
        run = self.a_run(pick, "awaiting_human", "running")
        if run is None:
            return
        outcome, disturbed = self.attempt(fate, lambda: self.world.cancel(run))
        if disturbed:
            return
        assert outcome.code == ("run_over" if run.status in ("completed", "failed") else "")
        if run.status == "awaiting_human" or (run.status == "running" and run.lease_token == self.ledger.holder):
            self.ledger.freed()

    # --- a host that runs its own model

    @rule(batch=batches, pick=st.none() | picks, fate=fates(8, ON_AN_APPEND))
    def append_turns(self, batch: list[str], pick: int | None, fate: Fate | None) -> None:
        """Under a lease that may have run out, that another call may have taken over, or may take over meanwhile."""
        if pick is None or not self.ledger.leases:
            self.wait_until_free()
            self.append(batch, None, fate)
        else:
            self.append(batch, self.ledger.leases[-1 - pick % len(self.ledger.leases)], fate)

    def append(self, batch: list[str], token: UUID | None, fate: Fate | None) -> None:
        drafts = self.world.drafts(batch)
        problem = self.ledger.results_problem(drafts)
        refusal = "" if token else self.ledger.refusal
        is_lost = token not in (None, self.ledger.holder)
        outcome, disturbed = self.attempt(fate, lambda: self.world.append_drafts(drafts, token))
        if disturbed:
            return
        assert outcome.code == (problem or refusal or ("lease_lost" if is_lost else ""))

    @rule(pick=picks, how=st.sampled_from(["take", "give back", "write late"]))
    def use_leases(self, pick: int, how: str) -> None:
        leases = self.ledger.leases
        if how == "take" or not leases:
            self.wait_until_free()
            refusal = self.ledger.refusal
            assert self.world.take_lease().code == refusal
        elif how == "give back":
            token = leases[-1 - pick % len(leases)]
            self.world.release(token)
            if token == self.ledger.holder:
                self.ledger.freed()
        elif not self.ledger.waiting:
            self.write_after_another_call_took_over(leases[-1])

    def write_after_another_call_took_over(self, token: UUID) -> None:
        self.world.take_over()
        assert self.ledger.holder != token
        assert self.world.append(["user"], [token]).code == "lease_lost"

    # --- memory

    @rule(how=st.sampled_from(["clear", "reset", "new", "set", "remove"]), pick=picks, fate=deaths(8))
    def edit_memory(self, how: str, pick: int, fate: Fate | None) -> None:
        key, turn_count = self.world.a_key(pick), self.world.turn_count
        if how == "clear":
            self.attempt(fate, self.world.clear_facts)
            self.ledger.notice_clearing(turn_count)
        elif how == "reset":
            before = self.ledger.snapshot().notes.updated_at
            self.attempt(fate, self.world.reset_notes)
            self.ledger.notice_reset(turn_count, before)
        elif how == "new" or key == NO_KEY:
            self.world.set_new_fact()
        elif how == "set":
            self.world.set_fact(key)
        else:
            self.world.remove_fact(key)

    # --- workers and the clock

    @rule(what=times)
    def pass_time(self, what: list[str]) -> None:
        self.world.pass_time(*what)
        self.ledger.live &= LEASES not in what

    @rule(
        how=st.sampled_from(["sweep", "facts", "notes", "title"]),
        fault=helper_faults,
        prepared=st.booleans(),
        fate=fates(25, ON_MEMORY),
    )
    def work_late(self, how: str, fault: str, prepared: bool, fate: Fate | None) -> None:
        """A sweep, or a message about the thread, which may be the second one; prepared, there is something to do."""
        self.models.begin(fault)
        if prepared:
            self.world.pass_time(CLAIMS, RETRIES)
            if not self.ledger.waiting:
                self.wait_until_free()
                self.append(["user", "assistant"], None, None)
        if how in LEARNERS:
            self.attempt(fate, lambda: LEARNERS[how].task(str(self.world.thread_id)))
            return
        _, disturbed = self.attempt(fate, self.world.sweep_once)
        if not disturbed:
            self.ledger.read_holder(died=False)
            self.nobody_is_left_behind()

    def nobody_is_left_behind(self) -> None:
        """After a sweep nothing is due, and a run that is not over waits or is under way under a live lease."""
        assert not list(sweep.due())
        runs = [run for run in self.ledger.snapshot().runs if run.status == "running"]
        assert all(self.ledger.live and run.lease_token == self.ledger.holder for run in runs)

    # --- always, and in the end

    @invariant()
    def everything_holds(self) -> None:
        check_all(self.ledger, self.models.server)
        assert self.models.largest_batch <= BATCH_TURNS
        assert self.others.rows() == self.bystanders

    def teardown(self) -> None:
        try:
            if sys.exception() is None:
                self.everything_settles()
        finally:
            self.world.delete()

    def everything_settles(self) -> None:
        """Once everything has run out and the sweeps are through, nothing is due or held, and the thread can go on."""
        self.models.begin()
        self.world.pass_time(*TIMES)
        self.ledger.live = False
        passes = (self.world.run_out_and_sweep for _ in range(MOST_SWEEPS))
        while self.world.is_busy():
            next(passes)()
        self.ledger.read_holder(died=False)
        self.everything_holds()
        rows = self.ledger.snapshot()
        assert not any(run.status == "running" for run in rows.runs)
        for state in (rows.extraction, rows.notes, rows.title):
            assert (state.due_at, state.claim_token) == (None, None)
        if rows.waiting:
            with pytest.raises(ThreadAwaitingHumanError):
                gateway.ask(self.world.tenant, ADA, "Hello?", thread_id=self.world.thread_id)
            run = Run.objects.get(pk=rows.waiting[0])
            assert self.world.continue_run(run, [True, False], Script()).code == "answered"
        else:
            assert self.world.ask(Script()).code == "answered"
        self.ledger.freed()
        self.everything_holds()


@pytest.fixture
def models(model: ScriptedModelServer, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Models:
    """Short beats and small batches, so that a few turns reach them; every wake-up is lost."""
    settings.MEMORYGW_EXTRACT_EVERY_TURNS = 4
    settings.MEMORYGW_UPDATE_EVERY_TURNS = 4
    settings.MEMORYGW_RECENT_TURNS = 3
    settings.MEMORYGW_MAX_FACTS = 8
    settings.MEMORYGW_MAX_TOOL_STEPS = MAX_TOOL_STEPS
    settings.MEMORYGW_FORGET_APPROVAL = False
    settings.MEMORYGW_TITLES_ENABLED = True
    settings.MEMORYGW_TOOLS = ["tests.memorygw.machine.script.HOST_TOOL"]
    monkeypatch.setattr("usermemory.learning.BATCH_TURNS", BATCH_TURNS)
    monkeypatch.setattr("workingmemory.memory.BATCH_TURNS", BATCH_TURNS)
    monkeypatch.setattr("memorygw.learning.wake", lambda task, pk: None)
    return Models(model)


@pytest.fixture
def bystanders(transactional_db: None, tenant: Tenant, other_tenant: Tenant, models: Models) -> list[Any]:
    """Rows of another thread of the user, of another user, and of the same user id in another tenant."""
    models.begin()
    for owner in ((tenant, ADA), (tenant, "eve"), (other_tenant, ADA)):
        answer = gateway.ask(*owner, "word0")
        turns = [TurnDraft(role="user", content="word0"), TurnDraft(role="assistant", content="Yes?")]
        gateway.append_turns(*owner, answer.thread_id, turns)
        while sweep.work_off():
            pass
    for rows in (Fact.objects.filter(owner_id=ADA), UserMemory.objects.filter(user_id=ADA)):
        rows.filter(tenant=tenant).delete()
    return Others(tenant.pk, uuid4()).rows()


def test_whatever_happens_to_a_thread_it_stays_whole(tenant: Tenant, models: Models, bystanders: list[Any]) -> None:
    def new_machine() -> ThreadMachine:
        return ThreadMachine(tenant, models, bystanders)

    run_state_machine_as_test(
        cast(type[ThreadMachine], new_machine),
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=STEPS,
            deadline=None,
            print_blob=True,
            phases=(Phase.reuse, Phase.generate, Phase.shrink),
            suppress_health_check=list(HealthCheck),
        ),
    )
