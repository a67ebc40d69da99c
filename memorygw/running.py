"""One run: tools and model in turn, until the answer is stored, the run waits for a person, or it failed.

However it ends, the lease is given back; what was stored by then stays and shows what happened (T4, T8).
"""

import time
from collections import deque
from collections.abc import Generator, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from typing import Any, Literal
from uuid import UUID

from django.db import transaction

from memorygw.conf import component, conf
from memorygw.context import ContextWarning, ModelLimits, follow
from memorygw.database import release_connection
from memorygw.exceptions import (
    ContextTooLargeError,
    LeaseLostError,
    ModelFailedError,
    RunCancelledError,
    RunNotFoundError,
    ThreadNotFoundError,
)
from memorygw.learning import queue_learning, teaches_facts
from memorygw.live import Answer, Event, Events, LiveRun, ToolEvent
from memorygw.llm.base import Completion, CompletionRequest, Message
from memorygw.llm.calls import call_model, stream_model
from memorygw.metrics import LEASE_LOST
from memorygw.models import ModelCall
from memorygw.preparing import ContextQuery, read_context
from threads.turns import TurnDraft, turn_tokens

NOT_APPROVED = "The user did not approve this call; it was not made."


def run_on(live: LiveRun) -> Answer:
    """Tools and model in turn, until the answer is stored or the run waits."""
    [last] = deque(run_events(live), maxlen=1)
    answer: Answer = last.value
    return answer


def run_events(live: LiveRun) -> Events:
    """The same, told as it happens; with ``live.streams`` the answer's text as the model says it.

    The last event has the `Answer`. Closing the iterator ends the run where it is, as any error does.
    """
    try:
        yield Event("run", live.run)
        yield from (Event("turn", turn) for turn in live.turns)
        answer = yield from _steps(live)
    except BaseException as error:
        _close(live, error)
        if isinstance(error, LeaseLostError):
            if _is_cancelled(live):
                raise RunCancelledError(run_id=live.run.id) from None
            LEASE_LOST.inc()
        raise
    if answer.answer is None:
        pending = live.run.pending
        yield from (Event("tool", ToolEvent(call["tool_call_id"], call["name"], "waiting")) for call in pending)
    else:
        yield Event("turn", answer.answer)
    yield Event("done", answer)


def _steps(live: LiveRun) -> Generator[Event, None, Answer]:
    last: dict[str, Any] = {}
    while True:
        if waiting := (yield from _run_tools(live)):
            return replace(_hand_over(live), **last) if live.chat else _pause(live, waiting)
        completion = yield from _complete(live)
        last = {"reply": completion.raw, "finish_reason": completion.finish_reason}
        if _is_empty(completion):
            return replace(_give_as_it_is(live), **last)
        draft = _said(live, completion)
        if not completion.tool_calls:
            return replace(_settle(live, draft), **last)
        yield Event("turn", _append(live, draft))
        live.text_so_far = ""
        live.run.tool_steps += 1
        live.open_calls = list(completion.tool_calls)


def _run_tools(live: LiveRun) -> Generator[Event, None, list[dict[str, Any]]]:
    """Results for the open calls, in their order; at the first that waits for a decision, all of those that do."""
    if live.open_calls is None:
        live.open_calls = component("THREAD_STORE").get_open_calls(live.run)
    if live.chat:
        # A client goes on in a request of its own, so what runs here must be done by then.
        live.open_calls.sort(key=lambda call: bool(live.tools.waits_for(call["function"]["name"])))
    while live.open_calls:
        call = live.open_calls[0]
        name = call["function"]["name"]
        if call["id"] not in live.decisions and live.tools.waits_for(name):
            return [pending for open_call in live.open_calls if (pending := _pending(live, open_call))]
        yield Event("tool", ToolEvent(call["id"], name, "started"))
        turn = _store_result(live, call)
        live.open_calls.pop(0)
        yield Event("tool", ToolEvent(call["id"], name, "finished"))
        yield Event("turn", turn)
    return []


def _pending(live: LiveRun, call: dict[str, Any]) -> dict[str, Any] | None:
    name, arguments = call["function"]["name"], call["function"]["arguments"]
    kind = live.tools.waits_for(name)
    return {"tool_call_id": call["id"], "name": name, "arguments": arguments, "kind": kind} if kind else None


def _store_result(live: LiveRun, call: dict[str, Any]) -> Any:
    """The result of one call as a turn.

    A decision is good for one call: models use their ids again. An atomic tool's effect and its result are one
    transaction, fenced like every late write: thread first.
    """
    decision = live.decisions.pop(call["id"], None)
    if decision and not decision.approved:
        refusal = f"{NOT_APPROVED} {decision.reason}".strip()
        return _append(live, _tool_turn(live, call, refusal if decision.content is None else decision.content))
    if live.tools.is_atomic(call["function"]["name"]):
        with transaction.atomic(durable=True):
            component("THREAD_STORE").fence(live.caller.tenant_id, live.thread.id, live.caller.user_id)
            return _append(live, _tool_turn(live, call, live.tools.run(call, live.caller)))
    # A host's tool may wait for another service.
    release_connection()
    return _append(live, _tool_turn(live, call, live.tools.run(call, live.caller)))


def _tool_turn(live: LiveRun, call: dict[str, Any], text: str) -> TurnDraft:
    is_theirs = live.tools.waits_for(call["function"]["name"]) == "client"
    turn = TurnDraft(role="tool", content=text, tool_call_id=call["id"], hidden=not is_theirs)
    too_long = turn_tokens(turn, live.run.model) > result_room(live.run.model)
    return replace(turn, content="Error: the result is too long for the model.") if too_long else turn


def result_room(model: str) -> int:
    """Tokens that the results of one tool step may have: half of what the model takes."""
    return ModelLimits.of(model).prompt_tokens // 2


def _append(live: LiveRun, draft: TurnDraft, *, lease: Literal["renew", "release"] = "renew") -> Any:
    run = live.run
    draft = replace(draft, id=live.next_turn_id, learnable=live.remembers, teaches_facts=teaches_facts(live.persona))
    live.next_turn_id = None
    [turn] = component("THREAD_STORE").append_turns(
        live.thread, [draft], token=run.lease_token, model=run.model, lease=lease
    )
    run.last_seq = turn.seq
    live.turns.append(turn)
    live.unsent.append(turn)
    return turn


def _complete(live: LiveRun) -> Generator[Event, None, Completion]:
    """The model's answer, or its next calls; once the tool steps are used up it has to answer in words."""
    run = live.run
    _read_on(live)
    assert live.context is not None  # noqa: S101  it was read just now
    last_step = run.tool_steps >= conf.MAX_TOOL_STEPS
    request = CompletionRequest(
        kind=ModelCall.Kind.CHAT,
        model=run.model,
        messages=live.context.request_messages(),
        tools=live.tools.schemas,
        tool_choice="none" if last_step and live.tools.schemas else None,
        needs_tools=bool(live.tools.client),
        extra=_parameters(live, last_step=last_step),
    )
    place = {"tenant_id": live.caller.tenant_id, "thread_id": live.thread.id, "run_id": run.id}
    completion = (yield from _spoken(live, request, place)) if live.streams else call_model(request, **place)
    run.prompt_tokens += completion.prompt_tokens
    run.completion_tokens += completion.completion_tokens
    if last_step and completion.tool_calls:
        completion = replace(completion, tool_calls=())
        if _is_empty(completion):
            raise ModelFailedError("too_many_tool_steps")
    if _is_empty(completion) and not live.chat:
        raise ModelFailedError("empty")
    return completion


def _is_empty(completion: Completion) -> bool:
    return not (completion.tool_calls or (completion.content or "").strip() or completion.refusal)


def _parameters(live: LiveRun, *, last_step: bool) -> dict[str, Any]:
    """The client's own, but that it cannot have tools called for ever."""
    given = live.chat.parameters if live.chat else {}
    return {name: value for name, value in given.items() if not (last_step and name == "tool_choice")}


def _spoken(live: LiveRun, request: CompletionRequest, place: dict[str, UUID]) -> Generator[Event, None, Completion]:
    """The model's answer, passed on as it comes."""
    completion, renewed = None, time.monotonic()
    with closing(stream_model(request, **place)) as items:
        for item in items:
            if isinstance(item, Completion):
                completion = item
            elif item is None:
                yield Event("silence", None)
            else:
                live.text_so_far += item.text
                if live.chat and live.chat.passes_chunks:
                    yield Event("chunk", item.chunk)
                elif item.text:
                    yield Event("delta", item.text)
            if time.monotonic() - renewed > conf.LEASE_SECONDS / 3:
                _renew_lease(live)
                renewed = time.monotonic()
    if completion is None:
        raise ModelFailedError("malformed")
    return completion


def _renew_lease(live: LiveRun) -> None:
    """A long answer must not outlive its lease. `LeaseLostError` when it is another's."""
    run = live.run
    held = component("THREAD_STORE").renew_lease(live.caller.tenant_id, live.thread.id, run.lease_token)
    release_connection()
    if not held:
        raise LeaseLostError


def _read_on(live: LiveRun) -> None:
    """Bring the context up to what is stored. Facts and notes are read once per call (U30): later steps only follow."""
    if live.context is None:
        query = ContextQuery(
            tenant_id=live.caller.tenant_id,
            user_id=live.caller.user_id,
            persona=live.persona,
            model=live.run.model,
            tools=live.tools,
            instructions=live.chat.instructions if live.chat else "",
            remembers=live.remembers,
        )
        live.context = read_context(live.thread, query)
    elif live.unsent:
        live.context = follow(live.context, live.unsent)
    live.unsent = []
    used = [str(fact.id) for fact in live.context.facts]
    live.run.memories = list(dict.fromkeys([*live.run.memories, *used]))
    live.run.warnings = {warning.code: warning.count for warning in live.context.warnings}


# --- how a run ends


def _settle(live: LiveRun, draft: TurnDraft) -> Answer:
    """Store the answer, give the lease back and mark what is to be learned, in one transaction."""
    with transaction.atomic(durable=True):
        answer = _append(live, draft, lease="release")
        if not component("THREAD_STORE").finish_run(live.run, "completed"):
            raise LeaseLostError
        queue_learning(live.thread, live.persona)
    return result_of(live.run, live.turns, answer)


def _pause(live: LiveRun, waiting: list[dict[str, Any]]) -> Answer:
    component("THREAD_STORE").pause_run(live.thread, live.run, waiting)
    return result_of(live.run, live.turns, None)


def _hand_over(live: LiveRun) -> Answer:
    """End a run with calls that are the client's to make: their results come with its next request."""
    caller, store = live.caller, component("THREAD_STORE")
    with transaction.atomic(durable=True):
        store.fence(caller.tenant_id, live.thread.id, caller.user_id)
        if not store.finish_run(live.run, "completed"):
            raise LeaseLostError
        store.release_lease(caller.tenant_id, live.thread.id, live.run.lease_token)
        queue_learning(live.thread, live.persona)
    return result_of(live.run, live.turns, last_said(live.turns))


def _give_as_it_is(live: LiveRun) -> Answer:
    """End a run whose answer has no words: cut off, filtered, or a sound. A client knows what to make of it; there is
    nothing in it to store, so the question stays open."""
    _close(live, ModelFailedError("empty"))
    return result_of(live.run, live.turns, None)


def last_said(turns: Sequence[Any]) -> Any:
    """The assistant's last of some turns: results of tools that run here may stand behind it."""
    return next(turn for turn in reversed(turns) if turn.role == "assistant")


def _said(live: LiveRun, completion: Completion) -> TurnDraft:
    """The model's turn. A client does not see it when it only calls tools that run here."""
    calls = list(completion.tool_calls)
    theirs = [call for call in calls if live.tools.waits_for(call["function"]["name"]) == "client"]
    live.said += completion.content or ""
    hidden = bool(calls) and not theirs
    return TurnDraft(
        role="assistant",
        content=completion.content or None if calls else completion.content,
        refusal=completion.refusal,
        tool_calls=calls or None,
        model=completion.model,
        client_view=None if hidden else _client_view(live, completion, theirs),
        hidden=hidden,
    )


def _client_view(live: LiveRun, completion: Completion, theirs: list[dict[str, Any]]) -> Message | None:
    """The text of all steps as one, and no call of a tool that runs here; None where the turn says just that."""
    said, live.said = live.said, ""
    if said == (completion.content or "") and theirs == list(completion.tool_calls):
        return None
    return {"role": "assistant", "content": said or None, "refusal": completion.refusal, "tool_calls": theirs}


def _close(live: LiveRun, error: BaseException) -> None:
    """Close a run that ends without an answer; what it stored stays, and an error of ours says where.

    What was said by then is kept as an interrupted turn (K17); a call that was half said is not.
    """
    store, run = component("THREAD_STORE"), live.run
    if live.text_so_far.strip():
        view = {"role": "assistant", "content": live.said + live.text_so_far} if live.said else None
        said = TurnDraft(role="assistant", content=live.text_so_far, model=run.model, status="interrupted")
        with suppress(LeaseLostError, ThreadNotFoundError):
            _append(live, replace(said, client_view=view))
    code = error.reason if isinstance(error, ModelFailedError) else getattr(error, "code", "interrupted")
    try:
        store.finish_run(run, "failed", error=code)
    finally:
        store.release_lease(live.caller.tenant_id, live.thread.id, run.lease_token)
    if isinstance(error, ModelFailedError | LeaseLostError | ContextTooLargeError):
        error.details = place_of(run)


def place_of(run: Any) -> dict[str, Any]:
    """Where the user's turn is, so that the caller of a failed ask can ask again there."""
    return {"thread_id": run.thread_id, "run_id": run.id}


def _is_cancelled(live: LiveRun) -> bool:
    caller = live.caller
    try:
        run = component("THREAD_STORE").get_run(caller.tenant_id, live.run.id, user_id=caller.user_id)
    except RunNotFoundError:
        return False
    return bool(run.status == "cancelled")


def result_of(run: Any, turns: Sequence[Any], answer: Any) -> Answer:
    return Answer(
        thread_id=run.thread_id,
        run=run,
        answer=answer,
        turns=turns,
        usage={"prompt_tokens": run.prompt_tokens, "completion_tokens": run.completion_tokens},
        warnings=[ContextWarning(code, count) for code, count in run.warnings.items()],
    )
