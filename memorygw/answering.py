"""One ask, from the user's turn to the settled answer.

lease → context → user turn stored → model (no connection held) → answer stored, lease given back → late work queued.
A failure anywhere gives the lease back; what was stored by then stays and shows what happened (T4, T8).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from uuid import UUID

from django.db import transaction

import threads.tasks
import threads.titles
import usermemory.tasks
import workingmemory.tasks
from memorygw.claims import wake
from memorygw.conf import component, conf
from memorygw.context import Context, ContextWarning, Parts, assemble, facts_block, history_budget, system_prompt
from memorygw.exceptions import LeaseLostError, ModelFailedError, PersonaNotFoundError
from memorygw.llm.base import Completion, CompletionRequest
from memorygw.llm.calls import call_model
from memorygw.models import ModelCall, Persona
from threads.turns import Content, ThreadLike, TurnDraft, text_of, turn_tokens
from workingmemory.memory import Window


@dataclass(frozen=True, kw_only=True)
class Call:
    """What the caller of an ask says."""

    tenant_id: UUID
    user_id: str
    content: Content
    thread_id: UUID | None = None
    persona: str = ""
    model: str = ""
    metadata: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Append:
    """Turns to store on a thread, under a lease of the caller's or one taken for it."""

    tenant_id: UUID
    user_id: str
    thread_id: UUID
    turns: Sequence[TurnDraft]
    lease_token: UUID | None = None


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What an ask gives: the thread, the run, the answer and every turn that is new, and what it cost."""

    thread_id: UUID
    run: Any
    answer: Any
    turns: list[Any]
    usage: dict[str, int]
    warnings: list[ContextWarning]


@dataclass(frozen=True, kw_only=True)
class ContextQuery:
    """What a context is read for. ``budget_tokens`` replaces the history budget after everything has come off it."""

    tenant_id: UUID
    user_id: str
    persona: Persona | None
    model: str
    budget_tokens: int | None = None
    upcoming: TurnDraft | None = None


@dataclass(frozen=True, kw_only=True)
class _Prepared:
    """A call whose context is read; nothing is stored yet."""

    call: Call
    persona: Persona | None
    model: str
    thread: Any
    question: TurnDraft
    context: Context


@dataclass(frozen=True, kw_only=True)
class _Started:
    """A call whose user turn is stored."""

    thread: Any
    token: UUID
    question: Any
    run: Any


def ask(call: Call) -> Answer:
    """Answer one user turn. See `memorygw.gateway.ask` for the contract."""
    store = component("THREAD_STORE")
    token = store.acquire_lease(call.tenant_id, call.thread_id, user_id=call.user_id) if call.thread_id else None
    thread_id = call.thread_id
    try:
        prepared = _prepare(call)
        started = _store_question(prepared, token)
        thread_id, token = started.thread.id, started.token
        return _settle(prepared, started, _complete(prepared, started))
    except BaseException:
        if thread_id and token:
            store.release_lease(call.tenant_id, thread_id, token)
        raise


def append_turns(append: Append) -> list[Any]:
    """Store turns of a caller that runs its own model. See `memorygw.gateway.append_turns` for the contract."""
    store = component("THREAD_STORE")
    owner = {"user_id": append.user_id}
    token = append.lease_token or store.acquire_lease(append.tenant_id, append.thread_id, **owner)
    borrowed = append.lease_token is None
    try:
        with transaction.atomic(durable=True):
            thread = store.get_thread(append.tenant_id, append.thread_id, **owner)
            store.check_results(thread, append.turns)
            turns: list[Any] = store.append_turns(thread, append.turns, token=token, release=borrowed)
            if append.turns[-1].role == "assistant":
                _queue_learning(thread, thread.persona)
    except BaseException:
        if borrowed:
            store.release_lease(append.tenant_id, append.thread_id, token)
        raise
    return turns


def find_persona(tenant_id: UUID, name_or_id: str) -> Persona:
    personas = Persona.objects.filter(tenant_id=tenant_id)
    persona = personas.filter(name=name_or_id).first()
    if persona is None:
        try:
            persona = personas.filter(pk=UUID(name_or_id)).first()
        except ValueError:
            persona = None
    if persona is None:
        raise PersonaNotFoundError
    return persona


def read_context(thread: ThreadLike | None, query: ContextQuery) -> Context:
    """Everything one request carries, read in a fixed number of queries whatever the history's length: facts, notes,
    window, and the thread's own instructions where it has some. No model call, no write."""
    persona, model = query.persona, query.model
    instructions = _instructions(persona, thread)
    injects = conf.INJECTION_ENABLED and (persona is None or persona.memory_injection_enabled)
    facts = component("USER_MEMORY_STORE").get_facts(query.tenant_id, query.user_id) if injects else []
    block = facts_block(facts)
    prompt = system_prompt(model, instructions, block.text)
    exact = query.budget_tokens is not None
    budget = query.budget_tokens if query.budget_tokens is not None else history_budget(model, prompt, thread)
    window = Window((), budget, exact=exact)
    if thread is not None:
        memory = component("WORKING_MEMORY_STORE")
        window = memory.load(
            thread,
            strategy=memory.strategy(persona.working_memory if persona else ""),
            budget_tokens=budget,
            upcoming_tokens=turn_tokens(query.upcoming, model) if query.upcoming else None,
            exact=exact,
        )
    return assemble(
        Parts(
            model=model,
            instructions=instructions,
            block=block,
            prompt=prompt,
            window=window,
            upcoming=query.upcoming,
        )
    )


def _instructions(persona: Persona | None, thread: ThreadLike | None) -> str:
    """The persona's, then the thread's latest system or developer turn: one system message for any provider (K21)."""
    turn = component("THREAD_STORE").get_instructions(thread) if thread else None
    parts = (persona.instructions if persona else "", text_of(turn.content) if turn else "")
    return "\n\n".join(part for part in parts if part)


def _prepare(call: Call) -> _Prepared:
    thread = None
    if call.thread_id:
        thread = component("THREAD_STORE").get_thread(call.tenant_id, call.thread_id, user_id=call.user_id)
    persona = find_persona(call.tenant_id, call.persona) if call.persona else thread and thread.persona
    model = call.model or (persona and persona.model) or conf.MODEL
    question = TurnDraft(role="user", content=call.content, metadata=call.metadata)
    query = ContextQuery(
        tenant_id=call.tenant_id, user_id=call.user_id, persona=persona, model=model, upcoming=question
    )
    return _Prepared(
        call=call,
        persona=persona,
        model=model,
        thread=thread,
        question=question,
        context=read_context(thread, query),
    )


@transaction.atomic(durable=True)
def _store_question(prepared: _Prepared, token: UUID | None) -> _Started:
    """The thread with its lease (made now when the ask named none), the user turn and the run, in one transaction."""
    store, call, thread = component("THREAD_STORE"), prepared.call, prepared.thread
    if thread is None:
        persona_id = prepared.persona.pk if prepared.persona else None
        thread = store.create_thread(call.tenant_id, call.user_id, persona_id=persona_id, leased=True)
        token = thread.lease_token
    assert token is not None  # noqa: S101  a lease was taken, or came with the new thread
    [question] = store.append_turns(thread, [prepared.question], token=token, model=prepared.model)
    run = store.start_run(thread.id, memories=[fact.id for fact in prepared.context.facts])
    return _Started(thread=thread, token=token, question=question, run=run)


def _complete(prepared: _Prepared, started: _Started) -> Completion:
    """The model's answer; when there is none the run is closed as failed."""
    request = CompletionRequest(
        kind=ModelCall.Kind.CHAT, model=prepared.model, messages=prepared.context.request_messages()
    )
    try:
        completion = call_model(
            request, tenant_id=prepared.call.tenant_id, thread_id=started.thread.id, run_id=started.run.id
        )
        if not (completion.content or "").strip() and not completion.refusal:
            raise ModelFailedError("empty")
    except BaseException as error:
        reason = error.reason if isinstance(error, ModelFailedError) else "interrupted"
        component("THREAD_STORE").finish_run(started.run, "failed", error=reason)
        if isinstance(error, ModelFailedError):
            # The user turn stays: say where, so that the caller can ask again there.
            error.details = {"thread_id": started.thread.id, "run_id": started.run.id}
        raise
    return completion


def _settle(prepared: _Prepared, started: _Started, completion: Completion) -> Answer:
    """Store the answer, give the lease back and mark what is to be learned, in one transaction."""
    store, thread = component("THREAD_STORE"), started.thread
    draft = TurnDraft(role="assistant", content=completion.content, refusal=completion.refusal, model=completion.model)
    usage = (completion.prompt_tokens, completion.completion_tokens)
    try:
        with transaction.atomic(durable=True):
            [answer] = store.append_turns(thread, [draft], token=started.token, model=prepared.model, release=True)
            store.finish_run(started.run, "completed", usage=usage)
            _queue_learning(thread, prepared.persona)
    except BaseException as error:
        reason = error.code if isinstance(error, LeaseLostError) else "interrupted"
        store.finish_run(started.run, "failed", error=reason)
        raise
    return Answer(
        thread_id=thread.id,
        run=started.run,
        answer=answer,
        turns=[started.question, answer],
        usage={"prompt_tokens": usage[0], "completion_tokens": usage[1]},
        warnings=list(prepared.context.warnings),
    )


def _queue_learning(thread: ThreadLike, persona: Persona | None) -> None:
    """Mark what is due in the answer's transaction, and wake a worker when it is committed."""
    memory = component("WORKING_MEMORY_STORE")
    strategy = memory.strategy(persona.working_memory if persona else "")
    due = [
        (usermemory.tasks.extract_facts, component("USER_MEMORY_STORE").note_answer(thread)),
        (workingmemory.tasks.update_notes, memory.note_answer(thread, strategy=strategy)),
        (threads.tasks.write_title, threads.titles.note_answer(thread)),
    ]
    for task, state_id in due:
        if state_id:
            transaction.on_commit(partial(wake, task, state_id), robust=True)
