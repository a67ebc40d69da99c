"""What callers may do with a conversation: ask, go on with a run that waits, ask again, append turns of their own.

An ask is: lease → context → user turn stored → the run (`memorygw.running`) → answer stored, lease given back → late
work queued. What does not fit, or is not allowed, stores nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

from django.db import transaction

from memorygw.conf import component
from memorygw.context import Context, ModelLimits
from memorygw.exceptions import (
    ContextTooLargeError,
    HistoryDiffersError,
    InvalidError,
    LeaseLostError,
    ModelFailedError,
    RunCancelledError,
    RunNotFoundError,
    RunNotWaitingError,
    ThreadNotFoundError,
)
from memorygw.ids import new_id
from memorygw.learning import queue_learning, teaches_facts
from memorygw.live import Answer, ClientChat, Decision, Events, LiveRun
from memorygw.models import Persona
from memorygw.preparing import ContextQuery, find_persona, model_of, offered_tools, read_context
from memorygw.running import last_said, place_of, result_of, result_room, run_events, run_on
from memorygw.tokens import count_tokens
from memorygw.tools import Tool, Toolbox, ToolCaller, spent
from threads.runs import RunDraft
from threads.turns import ROLES, Content, TurnDraft, turn_tokens


@dataclass(frozen=True, kw_only=True)
class Call:
    """What the caller of an ask says. ``tools`` are the caller's own, as schemas, ``own_tools`` those that run here;
    ``run_id`` is the id that its run gets.

    Of a client that keeps the conversation itself come ``chat`` and, instead of content, ``said``: the turns that the
    thread does not have yet, which may be none. ``history`` is what the thread must be at then. Without ``remembers``,
    memory is neither read nor written."""

    tenant_id: UUID
    user_id: str
    content: Content
    thread_id: UUID | None = None
    persona: str | Persona = ""
    model: str = ""
    metadata: dict[str, Any] = field(default_factory=dict)
    tools: Sequence[dict[str, Any]] = ()
    own_tools: Sequence[Tool] = ()
    run_id: UUID = field(default_factory=new_id)
    streams: bool = False
    chat: ClientChat | None = None
    said: Sequence[TurnDraft] | None = None
    history: UUID | None = None
    remembers: bool = True


@dataclass(frozen=True, kw_only=True)
class Continuation:
    """What becomes of a waiting run. ``persona`` and ``own_tools`` are those of its call, where they are not stored;
    ``first_turn_id`` the id of the first turn that it stores."""

    tenant_id: UUID
    user_id: str
    run_id: UUID
    decisions: Sequence[Decision]
    persona: Persona | None = None
    own_tools: Sequence[Tool] = ()
    first_turn_id: UUID | None = None


@dataclass(frozen=True, kw_only=True)
class Append:
    """Turns to store on a thread: under a lease of the caller's, or while nobody holds one."""

    tenant_id: UUID
    user_id: str
    thread_id: UUID
    turns: Sequence[TurnDraft]
    lease_token: UUID | None = None


def ask(call: Call) -> Answer:
    """Answer one user turn. See `memorygw.gateway.ask` for the contract."""
    return run_on(_begin(call))


def stream(call: Call) -> Events:
    """The same, told as it happens. See `memorygw.gateway.stream` for the contract."""
    return run_events(_begin(call))


def _begin(call: Call) -> LiveRun:
    """The run behind a call, under the lease of its thread."""
    store = component("THREAD_STORE")
    token = store.acquire_lease(call.tenant_id, call.thread_id, user_id=call.user_id) if call.thread_id else None
    try:
        return _start(call, token)
    except BaseException:
        if call.thread_id and token:
            store.release_lease(call.tenant_id, call.thread_id, token)
        raise


def continue_run(continuation: Continuation) -> Answer:
    """Go on with a waiting run. See `memorygw.gateway.continue_run` for the contract."""
    return run_on(_resumed(continuation))


def stream_continued(continuation: Continuation) -> Events:
    """The same, told as it happens."""
    live = _resumed(continuation)
    live.streams = True
    return run_events(live)


def _resumed(continuation: Continuation) -> LiveRun:
    """A waiting run that goes on, with what was decided on its calls."""
    store, tenant_id, user_id = component("THREAD_STORE"), continuation.tenant_id, continuation.user_id
    run = store.get_run(tenant_id, continuation.run_id, user_id=user_id)
    if run.status != "awaiting_human":
        raise RunNotWaitingError(run_id=run.id)
    _check_decisions(run, continuation.decisions)
    thread = store.get_thread(tenant_id, run.thread_id, user_id=user_id)
    live = _stored(thread, run, continuation.persona or run.persona, own_tools=continuation.own_tools)
    live.decisions = {decision.tool_call_id: decision for decision in continuation.decisions}
    live.next_turn_id = continuation.first_turn_id
    store.resume_run(thread, run)
    return live


def answer_again(
    tenant_id: UUID,
    user_id: str,
    run_id: UUID,
    *,
    first_turn_id: UUID | None = None,
    chat: ClientChat | None = None,
) -> Answer:
    """What a run came to, once more. See `memorygw.gateway.answer_again` for the contract."""
    store = component("THREAD_STORE")
    run = store.get_run(tenant_id, run_id, user_id=user_id)
    thread = store.get_thread(tenant_id, run.thread_id, user_id=user_id)
    first_seq = run.first_seq
    if first_turn_id:
        turn = store.find_turn(thread, first_turn_id)
        if turn is None:
            raise RunNotFoundError
        first_seq = turn.seq
    if run.status == "cancelled":
        raise RunCancelledError(**place_of(run))
    if run.status in ("failed", "running"):
        return run_on(_reopened(thread, run, first_seq, chat))
    turns = store.get_turns_between(tenant_id, thread.id, first_seq - 1, run.last_seq)
    return result_of(run, turns, last_said(turns) if run.status == "completed" else None)


def append_turns(append: Append) -> list[Any]:
    """Store turns of a caller that runs its own model. See `memorygw.gateway.append_turns` for the contract."""
    store, remembers = component("THREAD_STORE"), _remembers(append.tenant_id, append.user_id, None)
    with transaction.atomic(durable=True):
        # Callers without a lease queue up here: what is this short need not refuse anybody.
        thread = store.fence(append.tenant_id, append.thread_id, append.user_id)
        if thread is None:
            raise ThreadNotFoundError
        store.check_results(thread, append.turns)
        teaches = teaches_facts(thread.persona)
        drafts = [replace(turn, learnable=turn.learnable and remembers, teaches_facts=teaches) for turn in append.turns]
        turns: list[Any] = store.append_turns(thread, drafts, token=append.lease_token)
        if append.turns[-1].role == "assistant":
            queue_learning(thread, thread.persona)
    return turns


def pop_turn(tenant_id: UUID, user_id: str, thread_id: UUID) -> Any:
    """Take the newest turn away. See `memorygw.gateway.pop_turn` for the contract."""
    store = component("THREAD_STORE")
    with transaction.atomic(durable=True):
        thread = store.fence(tenant_id, thread_id, user_id)
        if thread is None:
            raise ThreadNotFoundError
        turn = store.pop_turn(thread)
        if turn:
            component("USER_MEMORY_STORE").rewind(thread)
            component("WORKING_MEMORY_STORE").rewind(thread)
    return turn


def _start(call: Call, token: UUID | None) -> LiveRun:
    """Context first, so that what does not fit stores nothing; then the thread with its lease (made now when the ask
    named none), what was said and the run, in one transaction."""
    store, memory = component("THREAD_STORE"), component("USER_MEMORY_STORE")
    call = replace(call, remembers=_remembers(call.tenant_id, call.user_id, call.chat))
    thread = store.get_thread(call.tenant_id, call.thread_id, user_id=call.user_id) if call.thread_id else None
    if call.history and thread and thread.history != call.history:
        raise HistoryDiffersError(thread_ids=[thread.id])
    persona = find_persona(call.tenant_id, call.persona) if call.persona else thread and thread.persona
    model = model_of(persona, call.model)
    tools = _tools(call, persona, model)
    said = _said(call, persona)
    context = _context(call, thread, persona, tools, said)
    draft = _run_draft(call, persona, context)
    with transaction.atomic(durable=True):
        if thread is None:
            memory.admit(call.tenant_id, call.user_id)
            thread = store.create_thread(call.tenant_id, call.user_id, persona_id=draft.persona_id, leased=True)
            token = thread.lease_token
        if call.said is not None and not said:
            if not store.renew_lease(call.tenant_id, thread.id, token):
                raise LeaseLostError
            _ask_anew(thread, remembers=call.remembers)
        store.check_results(thread, said)
        turns = store.append_turns(thread, said, token=token, model=model) if said else []
        run = store.start_run(thread, draft, token=token)
    return LiveRun(
        caller=ToolCaller(call.tenant_id, call.user_id, thread.id, draft.persona_id),
        thread=thread,
        run=run,
        persona=persona,
        tools=tools,
        context=replace(context, turns=[*context.turns, *turns]) if context else None,
        turns=list(turns),
        open_calls=[],
        streams=call.streams,
        chat=call.chat,
        remembers=call.remembers,
    )


def _remembers(tenant_id: UUID, user_id: str, chat: ClientChat | None) -> bool:
    """Whether memory is on: for the person, and for the request of a client. `ErasureRunningError`."""
    is_on: bool = component("USER_MEMORY_STORE").remembers(tenant_id, user_id)
    return is_on and (chat is None or chat.remembers)


def _ask_anew(thread: Any, *, remembers: bool) -> None:
    """The question is stored already; what was half an answer to it goes."""
    store = component("THREAD_STORE")
    store.drop_interrupted(thread)
    if not remembers:
        store.forbid_learning(thread)


def _tools(call: Call, persona: Persona | None, model: str) -> Toolbox:
    return offered_tools(
        persona,
        model,
        call.user_id,
        client=call.tools,
        own=call.own_tools,
        remembers=call.remembers,
        unattended=call.chat is not None,
    )


def _said(call: Call, persona: Persona | None) -> list[TurnDraft]:
    said = [TurnDraft(role="user", content=call.content, metadata=call.metadata)] if call.said is None else call.said
    teaches = teaches_facts(persona)
    return [replace(turn, learnable=turn.learnable and call.remembers, teaches_facts=teaches) for turn in said]


def _context(
    call: Call, thread: Any, persona: Persona | None, tools: Toolbox, said: Sequence[TurnDraft]
) -> Context | None:
    """The request with the user turn about to be stored. None where there are other turns, or none: then it is read
    from what is stored."""
    if len(said) != 1 or said[0].role != "user":
        _refuse_too_large(said, model_of(persona, call.model))
        return None
    query = ContextQuery(
        tenant_id=call.tenant_id,
        user_id=call.user_id,
        persona=persona,
        model=model_of(persona, call.model),
        tools=tools,
        instructions=call.chat.instructions if call.chat else "",
        remembers=call.remembers,
        upcoming=said[0],
    )
    return read_context(thread, query)


def _refuse_too_large(said: Sequence[TurnDraft], model: str) -> None:
    """Refuse what would not fit whatever is trimmed: results of tools, and the newest question with all behind it."""
    newest = max((index for index, turn in enumerate(said) if turn.role == "user"), default=0)
    tokens = {role: sum(turn_tokens(turn, model) for turn in said[newest:] if turn.role == role) for role in ROLES}
    if tokens["tool"] > result_room(model) or sum(tokens.values()) > ModelLimits.of(model).prompt_tokens:
        raise ContextTooLargeError


def _run_draft(call: Call, persona: Persona | None, context: Context | None) -> RunDraft:
    return RunDraft(
        id=call.run_id,
        persona_id=persona.pk if persona else None,
        model=model_of(persona, call.model),
        tools=call.tools,
        memories=[fact.id for fact in context.facts] if context else [],
        warnings={warning.code: warning.count for warning in context.warnings} if context else {},
    )


def _stored(
    thread: Any,
    run: Any,
    persona: Persona | None,
    *,
    own_tools: Sequence[Tool] = (),
    chat: ClientChat | None = None,
) -> LiveRun:
    """A run that goes on from what is stored: its calls without a result first, then a context read anew."""
    used_up = spent(component("THREAD_STORE").get_results(run))
    remembers = _remembers(thread.tenant_id, thread.user_id, chat)
    tools = offered_tools(
        persona,
        run.model,
        thread.user_id,
        client=run.tools,
        own=own_tools,
        remembers=remembers,
        unattended=chat is not None,
    )
    caller = ToolCaller(thread.tenant_id, thread.user_id, thread.id, run.persona_id, counts=used_up)
    return LiveRun(caller=caller, thread=thread, run=run, persona=persona, tools=tools, chat=chat, remembers=remembers)


def _reopened(thread: Any, run: Any, first_seq: int, chat: ClientChat | None) -> LiveRun:
    """A failed run, or one whose process died, under a new lease, with its turns from ``first_seq`` on.

    When the conversation has gone on without it, its failure stands.
    """
    store, failure = component("THREAD_STORE"), run.error
    token = store.acquire_lease(thread.tenant_id, thread.id, user_id=thread.user_id)
    try:
        thread = store.get_thread(thread.tenant_id, thread.id)
        live = _stored(thread, run, run.persona, chat=chat)
        live.turns = store.get_turns_between(thread.tenant_id, thread.id, first_seq - 1, thread.turn_count)
        if store.reopen_run(thread, run, token=token):
            _ask_anew(thread, remembers=live.remembers)
            live.turns = [turn for turn in live.turns if turn.status != "interrupted"]
        else:
            error = LeaseLostError() if failure == LeaseLostError.code else ModelFailedError(failure)
            error.details = place_of(run)
            raise error
    except BaseException:
        store.release_lease(thread.tenant_id, thread.id, token)
        raise
    return live


def _check_decisions(run: Any, decisions: Sequence[Decision]) -> None:
    """Every call that is waited for is decided once, in the way that its kind wants, and no other call is.

    `ContextTooLargeError` when the results are more than the model could take.
    """
    kinds = {call["tool_call_id"]: call["kind"] for call in run.pending}
    problems: dict[str, list[str]] = {}
    for index, decision in enumerate(decisions):
        kind = kinds.pop(decision.tool_call_id, None)
        if kind is None:
            problems[f"decisions[{index}].tool_call_id"] = ["The run waits for no such call, or it is decided twice."]
        elif problem := decision.problem(kind):
            problems[f"decisions[{index}]"] = [problem]
    if kinds and not problems:
        problems["decisions"] = [f"{len(kinds)} more of the calls that the run waits for must be decided."]
    if problems:
        raise InvalidError(fields=problems)
    results = (decision.content for decision in decisions if decision.content)
    if sum(count_tokens(result, run.model) for result in results) > result_room(run.model):
        raise ContextTooLargeError
