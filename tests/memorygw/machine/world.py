"""What people, programs and workers do to the thread; each method is one call, told to the ledger by its effect."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.utils import timezone

from memorygw import gateway, sweep
from memorygw.exceptions import MemorygwError
from memorygw.gateway import Decision
from memorygw.models import ModelCall, Tenant
from tests.memorygw.machine.ledger import ADA, Ledger
from tests.memorygw.machine.script import CLIENT_TOOL, Models, Script, call
from threads.models import Run, Thread
from threads.turns import TurnDraft
from usermemory.models import Fact, UserMemory

LEASES, CLAIMS, RETRIES = "leases", "claims", "retries"
NO_KEY = "nothing"
TIMES = (LEASES, CLAIMS, RETRIES)


@dataclass(frozen=True)
class Outcome:
    """How a call ended: "answered", "waits", the code of its error, "died", or nothing to say; and its run."""

    code: str = ""
    run_id: UUID | None = None
    run_status: str = ""


class World:
    """One thread of one user, new for every example."""

    def __init__(self, tenant: Tenant, models: Models) -> None:
        self.tenant, self.models = tenant, models
        self.thread_id: UUID = gateway.create_thread(tenant, ADA).pk
        self.ledger = Ledger(tenant.pk, self.thread_id)
        self.sent: tuple[Sequence[TurnDraft], UUID | None] = ((), None)
        self.meanwhile: dict[str, Callable[[], object]] = {
            "the lease runs out": lambda: self.pass_time(LEASES),
            "taken over": self.take_over,
            "taken over and given back": self.take_over_and_write,
            "taken over by an ask": self.take_over_and_ask,
            "appended under the lease": lambda: self.append(["user"], self.ledger.leases[-1:]),
            "asked": lambda: self.ask(Script(), model="other"),
            "results sent again": self.send_results_again,
            "cancelled": lambda: self.with_latest_run(self.cancel),
            "decided": lambda: self.with_latest_run(lambda run: self.continue_run(run, [True], Script())),
            "answered again": self.take_over_and_answer_again,
            "everything runs out and is swept": self.run_out_and_sweep,
            "swept": self.sweep_once,
            "facts cleared": self.clear,
            "notes reset": self.reset,
            "fact set": self.set_new_fact,
        }

    def delete(self) -> None:
        Thread.objects.filter(pk=self.thread_id).delete()
        Fact.objects.filter(tenant=self.tenant, owner_id=ADA).delete()
        UserMemory.objects.filter(tenant=self.tenant, user_id=ADA).delete()
        ModelCall.objects.filter(thread_id=self.thread_id).delete()

    def number(self) -> int:
        return next(self.ledger.numbers)

    # --- runs

    def ask(self, script: Script, *, model: str = "main") -> Outcome:
        self.models.play(script, self.a_key, model)
        question = f"word{self.number()}"
        place: dict[str, Any] = {"thread_id": self.thread_id, "tools": [CLIENT_TOOL], "model": model}
        outcome = self._answer(lambda: gateway.ask(self.tenant, ADA, question, **place))
        (self.ledger.said if outcome.run_id else self.ledger.unsaid).add(question)
        return outcome

    def continue_run(self, run: Run, approvals: Sequence[bool], script: Script) -> Outcome:
        """Decide every call that is pending, in turn as ``approvals`` say."""
        self.models.play(script, self.a_key)
        decisions = [_decision(pending, approvals[index % len(approvals)]) for index, pending in enumerate(run.pending)]
        return self._answer(lambda: gateway.continue_run(self.tenant, ADA, run.pk, decisions))

    def answer_again(self, run: Run, script: Script) -> Outcome:
        self.models.play(script, self.a_key)
        return self._answer(lambda: gateway.answer_again(self.tenant, ADA, run.pk))

    def _answer(self, work: Callable[[], gateway.Answer]) -> Outcome:
        try:
            answer = work()
        except MemorygwError as error:
            return Outcome(error.code, error.details.get("run_id") if error.code in _OF_A_RUN else None)
        if answer.answer:
            self.ledger.said.add(answer.answer.content)
        return Outcome("answered" if answer.answer else "waits", answer.run.pk, answer.run.status)

    def cancel(self, run: Run) -> Outcome:
        return _outcome(lambda: gateway.cancel_run(self.tenant, ADA, run.pk))

    def with_latest_run(self, work: Callable[[Run], object]) -> None:
        if runs := self.ledger.snapshot().runs:
            work(runs[-1])

    # --- a host that runs its own model

    def append(self, kinds: Sequence[str], tokens: Sequence[UUID] = ()) -> Outcome:
        """Append turns, under the first of the tokens if there is one."""
        drafts = self.drafts(kinds)
        outcome = self.append_drafts(drafts, tokens[0] if tokens else None)
        (self.ledger.unsaid if outcome.code else self.ledger.said).update(texts(drafts))
        return outcome

    def append_drafts(self, drafts: Sequence[TurnDraft], token: UUID | None) -> Outcome:
        self.sent = drafts, token
        if drafts[-1].role == "assistant":
            self.ledger.closing.add(str(drafts[-1].content))
        place = (self.tenant, ADA, self.thread_id)
        return _outcome(lambda: gateway.append_turns(*place, drafts, lease_token=token))

    def send_results_again(self) -> None:
        """A host sends its last results a second time, under the same lease."""
        drafts, token = self.sent
        if results := [draft for draft in drafts if draft.role == "tool"]:
            self.append_drafts(results, token)

    def drafts(self, kinds: Sequence[str]) -> list[TurnDraft]:
        return [_draft(kind, self.number()) for kind in kinds]

    def take_lease(self) -> Outcome:
        def take() -> None:
            self.ledger.held(gateway.acquire_lease(self.tenant, ADA, self.thread_id).token)

        return _outcome(take)

    def release(self, token: UUID) -> None:
        gateway.release_lease(self.tenant, ADA, self.thread_id, token)

    def take_over(self) -> None:
        """Another call comes when the lease of the one that holds the thread has run out."""
        self.pass_time(LEASES)
        self.take_lease()

    def take_over_and_ask(self) -> None:
        self.pass_time(LEASES)
        self.ask(Script(), model="other")

    def take_over_and_answer_again(self) -> None:
        self.pass_time(LEASES)
        self.with_latest_run(lambda run: self.answer_again(run, Script()))

    def take_over_and_write(self) -> None:
        self.pass_time(LEASES)
        if not self.take_lease().code:
            self.append(["user"], self.ledger.leases[-1:])
            self.release(self.ledger.leases[-1])

    # --- memory

    def clear(self) -> None:
        turn_count = self.turn_count
        self.clear_facts()
        self.ledger.notice_clearing(turn_count)

    def clear_facts(self) -> None:
        gateway.clear_user_facts(self.tenant, ADA)

    def reset(self) -> None:
        turn_count, before = self.turn_count, self.ledger.snapshot().notes.updated_at
        self.reset_notes()
        self.ledger.notice_reset(turn_count, before)

    def reset_notes(self) -> None:
        gateway.reset_thread_memory(self.tenant, ADA, self.thread_id)

    def set_new_fact(self) -> None:
        self.set_fact(f"hand{self.number()}")

    def set_fact(self, key: str) -> None:
        value = f"by hand {self.number()}"
        gateway.upsert_user_fact(self.tenant, ADA, key, value)
        self.ledger.edits[key] = value

    def remove_fact(self, key: str) -> None:
        gateway.remove_user_fact(self.tenant, ADA, key)
        self.ledger.gone.add(key)

    def a_key(self, pick: int = 0) -> str:
        """The key of a fact, or one that nothing has."""
        keys = sorted(fact.key for fact in gateway.get_user_facts(self.tenant, ADA))
        return keys[pick % len(keys)] if keys else NO_KEY

    @property
    def turn_count(self) -> int:
        return Thread.objects.get(pk=self.thread_id).turn_count

    # --- workers and the clock

    def sweep_once(self) -> None:
        """One pass in this process: every wake-up is lost, so this is what finds the work."""
        sweep.recover_stuck_runs()
        sweep.work_off()

    def pass_time(self, *what: str) -> None:
        """Let leases, claims or retry times run out, by their rows."""
        past = timezone.now() - timedelta(seconds=1)
        if LEASES in what:
            Thread.objects.filter(pk=self.thread_id, lease_token__isnull=False).update(lease_expires_at=past)
        for learner in sweep.LEARNERS:
            states = learner.states.objects.filter(pk=self.thread_id)
            if CLAIMS in what:
                states.filter(claim_token__isnull=False).update(claim_expires_at=past)
            if RETRIES in what:
                states.filter(due_at__isnull=False).update(due_at=past)

    def is_busy(self) -> bool:
        """Whether anything is due, now or later, or claimed, or a run seems to be under way."""
        rows = self.ledger.snapshot()
        states = (rows.extraction, rows.notes, rows.title)
        is_under_way = any(run.status == "running" for run in rows.runs)
        return is_under_way or any(state.due_at or state.claim_token for state in states)

    def run_out_and_sweep(self) -> None:
        self.pass_time(*TIMES)
        self.sweep_once()


_OF_A_RUN = ("model_failed", "lease_lost", "context_too_large", "run_cancelled")
"""Codes of errors that name the run in which they happened; others name one that was there before."""


def _outcome(work: Callable[[], object]) -> Outcome:
    try:
        work()
    except MemorygwError as error:
        return Outcome(error.code)
    return Outcome()


def _decision(pending: dict[str, Any], approves: bool) -> Decision:
    call_id = pending["tool_call_id"]
    if pending["kind"] == "client" and approves:
        return Decision(tool_call_id=call_id, content="noon")
    return Decision(tool_call_id=call_id, approved=approves)


def _draft(kind: str, number: int) -> TurnDraft:
    match kind:
        case "user":
            return TurnDraft(role="user", content=f"word{number}")
        case "aside":
            return TurnDraft(role="user", content=f"word{number}", learnable=False)
        case "assistant":
            return TurnDraft(role="assistant", content=f"said{number}")
        case "call":
            calls = [call("look_up", "h0", {})]
            return TurnDraft(role="assistant", content=f"calling{number}", tool_calls=calls)
        case "instructions":
            return TurnDraft(role="system", content=f"rule{number}")
    # The result of a call of the host's, or of one that a run left open.
    call_id = {"result": "h0", "late result": "c0"}[kind]
    return TurnDraft(role="tool", content=f"found{number}", tool_call_id=call_id)


def texts(drafts: Sequence[TurnDraft]) -> list[str]:
    return [str(draft.content) for draft in drafts if draft.role != "tool"]
