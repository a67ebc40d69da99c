"""The small talks, held with the model that is configured, and with none in reach."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.test import override_settings

from memorygw import gateway, sweep
from memorygw.exceptions import ModelFailedError
from memorygw.models import Tenant
from tests.evals.judging import RUNS, TALKS, Fact, Result, Run, Talk
from threads.turns import TurnDraft
from usermemory.models import ExtractionState


def evaluate(tenant: Tenant) -> list[Result]:
    """Every talk so many times, each with a user of its own."""
    return [Result(talk, [_hold(tenant, talk, f"{talk.id} {n}") for n in range(1, RUNS + 1)]) for talk in TALKS]


def _hold(tenant: Tenant, talk: Talk, user: str) -> Run:
    """The talk, answered by the main model, and what the helper model made of it."""
    thread_id = _begin(tenant, talk, user)
    try:
        gateway.ask(tenant, user, talk.user, thread_id=thread_id)
    except ModelFailedError as error:
        return Run([], f"no answer, {error.reason}")
    _learn()
    state = ExtractionState.objects.get(pk=thread_id)
    problem = "" if state.covered == state.answered else f"nothing learned, {state.last_error or 'not tried'}"
    return Run(_facts(tenant, user), problem)


@dataclass(frozen=True)
class Unreached:
    """What came of the talks while no model could be reached."""

    talks: int
    facts: int
    waiting: int

    @property
    def complaints(self) -> list[str]:
        said = [f"model off: {self.facts} facts were learned without a model"] if self.facts else []
        lost = self.talks - self.waiting
        return said + ([f"model off: {lost} of {self.talks} talks do not wait for another attempt"] if lost else [])


def evaluate_without_model(tenant: Tenant) -> Unreached:
    """Every talk once, answered by somebody else: what is learned of them, and how many are to be tried again."""
    threads = {f"{talk.id} without model": _answered_elsewhere(tenant, talk) for talk in TALKS}
    with _unreachable():
        _learn()
    waiting = ExtractionState.objects.filter(pk__in=threads.values(), covered=0, attempts=1, due_at__isnull=False)
    facts = sum(len(_facts(tenant, user)) for user in threads)
    return Unreached(len(threads), facts, waiting.exclude(last_error="").count())


def _answered_elsewhere(tenant: Tenant, talk: Talk) -> UUID:
    user = f"{talk.id} without model"
    thread_id = _begin(tenant, talk, user)
    turns = [TurnDraft(role="user", content=talk.user), TurnDraft(role="assistant", content="All right.")]
    gateway.append_turns(tenant, user, thread_id, turns)
    return thread_id


@contextmanager
def _unreachable() -> Iterator[None]:
    """Whatever model is configured, nothing listens where it is looked for."""
    nowhere: dict[str, Any] = {
        "MEMORYGW_LLM_CLIENT": "memorygw.llm.openai.OpenAIClient",
        "MEMORYGW_LLM_OPTIONS": {},
        "MEMORYGW_LLM_BASE_URL": "http://127.0.0.1:9/v1",
        "MEMORYGW_LLM_RETRIES": 0,
    }
    with override_settings(**nowhere):
        yield


def _begin(tenant: Tenant, talk: Talk, user: str) -> UUID:
    """A new thread, with what the assistant said before."""
    thread_id: UUID = gateway.create_thread(tenant, user).id
    if talk.assistant_before:
        said = TurnDraft(role="assistant", content=talk.assistant_before)
        gateway.append_turns(tenant, user, thread_id, [said])
    return thread_id


def _learn() -> None:
    while sweep.work_off():
        pass


def _facts(tenant: Tenant, user: str) -> list[Fact]:
    return [Fact(fact.key, fact.value) for fact in gateway.get_user_facts(tenant, user)]
