"""Chat for clients that keep the conversation themselves and send all of it each time: OpenAI's way.

The conversation is found by what the client has seen of it, and only what is new of it is stored (K14).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from memorygw import answering
from memorygw.conf import component
from memorygw.exceptions import HistoryDiffersError, InvalidError
from memorygw.gateway.arguments import (
    TenantLike,
    UserLike,
    external_user_id,
    refuse_unstorable,
    tenant_id,
    thread_uuid,
)
from memorygw.live import Answer, ClientChat, Event
from memorygw.tools import schemas_problem
from threads.history import begin, follow
from threads.turns import INSTRUCTION_ROLES, ROLES, TurnDraft, seen_messages, text_of, turn_problem


@dataclass(frozen=True, kw_only=True)
class Chat:
    """One request of such a client. ``parameters`` go to the model as they are; ``fork``: where the named thread has
    another history, a new one is made."""

    messages: Sequence[Mapping[str, Any]]
    model: str = ""
    tools: Sequence[dict[str, Any]] = ()
    parameters: Mapping[str, Any]
    thread_id: UUID | str | None = None
    fork: bool = False
    remembers: bool = True
    streams: bool = False


@dataclass(frozen=True)
class _Place:
    """Where a conversation goes on, and with which turns; or where its answer is already."""

    thread: Any = None
    new: Sequence[TurnDraft] = ()
    answered_from: Any = None


def chat(tenant: TenantLike, user_id: UserLike, request: Chat) -> Iterator[Event] | Answer:
    """Answer the newest messages of a conversation: the events of the run, or the `Answer` that was given before.

    Raises `InvalidError`, `HistoryDiffersError` for a named thread with another history, and what `ask` raises.
    """
    tenant_pk, user = tenant_id(tenant), external_user_id(user_id)
    instructions, turns = _read(request.messages)
    if problem := schemas_problem(request.tools):
        raise InvalidError(fields={"tools": [problem]})
    refuse_unstorable("tools", list(request.tools))
    place = _place(tenant_pk, user, request, turns)
    if place.answered_from is not None:
        return _answer_behind(place)
    thread = place.thread
    call = answering.Call(
        tenant_id=tenant_pk,
        user_id=user,
        content=None,
        thread_id=thread.id if thread else None,
        model=request.model,
        tools=request.tools,
        streams=request.streams,
        chat=ClientChat(
            parameters=dict(request.parameters),
            instructions=instructions,
            remembers=request.remembers,
            passes_chunks=request.streams,
        ),
        said=place.new,
        history=thread.history if thread else None,
    )
    return answering.stream(call)


def list_models() -> list[dict[str, Any]]:
    """The models of the upstream server, as it lists them. Raises `ModelFailedError`."""
    models: list[dict[str, Any]] = component("LLM_CLIENT").list_models()
    return models


def _read(messages: Sequence[Mapping[str, Any]]) -> tuple[str, list[TurnDraft]]:
    """The client's instructions, which are passed on and not stored, and what was said."""
    instructions, turns = [], []
    for index, message in enumerate(messages):
        refuse_unstorable(f"messages[{index}]", message)
        turn = _turn(index, message)
        if turn.role in INSTRUCTION_ROLES:
            instructions.append(text_of(turn.content))
        else:
            turns.append(turn)
    if not turns or turns[-1].role == "assistant":
        raise InvalidError(fields={"messages": ["The last one must be a user's or a tool's."]})
    return "\n\n".join(instructions), turns


def _turn(index: int, message: Mapping[str, Any]) -> TurnDraft:
    if message.get("role") not in ROLES:
        raise InvalidError(fields={f"messages[{index}].role": [f"One of {', '.join(ROLES)}."]})
    turn = TurnDraft(
        role=message["role"],
        content=message.get("content"),
        tool_calls=message.get("tool_calls") or None,
        tool_call_id=message.get("tool_call_id"),
        refusal=message.get("refusal"),
    )
    if problem := turn_problem(turn):
        raise InvalidError(fields={f"messages[{index}].{problem[0]}": [problem[1]]})
    return turn


def _place(tenant_pk: UUID, user: str, request: Chat, turns: list[TurnDraft]) -> _Place:
    """The thread that this goes on with: the named one, else the one of which the client has seen the same."""
    store = component("THREAD_STORE")
    last = max((index for index, turn in enumerate(turns) if turn.role == "assistant"), default=-1)
    old, new = turns[: last + 1], turns[last + 1 :]
    seen = follow(begin(tenant_pk, user), (message for turn in old for message in seen_messages(turn)))
    now = follow(seen, (message for turn in new for message in seen_messages(turn)))
    named = None
    if request.thread_id is not None:
        named = store.get_thread(tenant_pk, thread_uuid(request.thread_id), user_id=user)
        if not old or named.history == seen:
            return _Place(named, [] if _is_unanswered(named, new) else new)
    elif old and (thread := store.find_history(tenant_pk, user, seen)):
        return _Place(thread, new)
    thread = store.find_history(tenant_pk, user, now)
    if thread and (named is None or thread.pk == named.pk):
        # The question is stored, and waits for its answer: the model failed, or the client did not wait.
        return _Place(thread, [])
    if old and (turn := store.find_seen(tenant_pk, user, now)) and (named is None or turn.thread_id == named.pk):
        return _Place(turn.thread, answered_from=turn)
    if named is not None and not request.fork:
        raise HistoryDiffersError(thread_ids=[named.pk])
    return _Place(None, turns)


def _is_unanswered(thread: Any, new: Sequence[TurnDraft]) -> bool:
    """Whether the thread ends in just these messages: they were sent before, and got no answer."""
    stored = component("THREAD_STORE").get_last_turns(thread.tenant_id, thread.pk, len(new))
    start = begin(thread.tenant_id, thread.user_id)
    last, sent = (follow(start, (m for turn in turns for m in seen_messages(turn))) for turns in (stored, new))
    return bool(stored) and last == sent


def _answer_behind(place: _Place) -> Answer:
    """The answer that a thread has to these messages already, from what is stored."""
    store, asked = component("THREAD_STORE"), place.answered_from
    thread = place.thread
    turns = store.get_turns_between(thread.tenant_id, thread.pk, asked.seq, thread.turn_count)
    answer = next(turn for turn in turns if turn.history)
    run = store.get_run_at(thread, answer.seq)
    return Answer(
        thread_id=thread.pk,
        run=run,
        answer=answer,
        turns=[turn for turn in turns if turn.seq <= answer.seq],
        usage={"prompt_tokens": run.prompt_tokens, "completion_tokens": run.completion_tokens} if run else {},
        warnings=[],
    )
