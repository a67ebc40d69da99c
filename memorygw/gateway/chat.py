"""Chat for clients that keep the conversation themselves and send all of it each time: OpenAI's way.

The conversation is found by what the client has seen of it, and only what is new of it is stored (K14).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import accumulate
from typing import Any
from uuid import UUID

from memorygw import answering
from memorygw.conf import component
from memorygw.database import release_connection
from memorygw.exceptions import HistoryDiffersError, InvalidError, RunNotFoundError
from memorygw.gateway.arguments import (
    TenantLike,
    UserLike,
    external_user_id,
    refuse_unstorable,
    tenant_id,
    thread_uuid,
)
from memorygw.ids import new_id
from memorygw.live import Answer, ClientChat, Events
from memorygw.tools import schemas_problem
from threads.history import begin, follow
from threads.turns import (
    INSTRUCTION_ROLES,
    MESSAGE_FIELDS,
    ROLES,
    TurnDraft,
    client_view_of,
    content_problem,
    text_of,
    turn_problem,
)

_MOST_STEPS, _TRIES = 200, 3
_SAYS = ("content", "refusal", "tool_calls")


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
    run_id: UUID | None = None


@dataclass(frozen=True)
class _Place:
    """Where a conversation goes on, and with which turns; or the answer that was given there before."""

    thread: Any = None
    new: Sequence[TurnDraft] = ()
    given: Answer | None = None


def chat(tenant: TenantLike, user_id: UserLike, request: Chat) -> Events | Answer:
    """Answer the newest messages of a conversation: the events of the run, or the `Answer` that was given before.

    Raises `InvalidError`, `HistoryDiffersError` for a named thread with another history, and what `ask` raises.
    """
    tenant_pk, user = tenant_id(tenant), external_user_id(user_id)
    instructions, turns = _read(request.messages)
    if problem := schemas_problem(request.tools):
        raise InvalidError(fields={"tools": [problem]})
    refuse_unstorable("tools", list(request.tools))
    for _ in range(_TRIES):
        place = _place(tenant_pk, user, request, turns)
        if place.given is not None:
            return place.given
        try:
            return answering.stream(_call(tenant_pk, user, request, instructions, place))
        except HistoryDiffersError:
            # Somebody was quicker on the thread that was found.
            if request.thread_id is not None:
                raise
    raise HistoryDiffersError


def chat_again(tenant: TenantLike, user_id: UserLike, run_id: UUID, request: Chat) -> Answer:
    """What the same request has come to, whose run got this id, as by `answer_again`; it may have needed no run."""
    tenant_pk, user = tenant_id(tenant), external_user_id(user_id)
    instructions, turns = _read(request.messages)
    try:
        return answering.answer_again(tenant_pk, user, run_id, chat=_client_chat(request, instructions))
    except RunNotFoundError:
        given = _place(tenant_pk, user, request, turns).given
        if given is None:
            raise
        return given


def _client_chat(request: Chat, instructions: str) -> ClientChat:
    return ClientChat(
        parameters=dict(request.parameters),
        instructions=instructions,
        remembers=request.remembers,
        passes_chunks=request.streams,
    )


def _call(tenant_pk: UUID, user: str, request: Chat, instructions: str, place: _Place) -> answering.Call:
    thread = place.thread
    return answering.Call(
        tenant_id=tenant_pk,
        user_id=user,
        content=None,
        thread_id=thread.id if thread else None,
        model=request.model,
        tools=request.tools,
        streams=request.streams,
        chat=_client_chat(request, instructions),
        said=place.new,
        history=thread.history if thread else None,
        run_id=request.run_id or new_id(),
    )


def list_models() -> list[dict[str, Any]]:
    """The models of the upstream server, as it lists them. Raises `ModelFailedError`."""
    release_connection()
    models: list[dict[str, Any]] = component("LLM_CLIENT").list_models()
    return models


def _read(messages: Sequence[Mapping[str, Any]]) -> tuple[str, list[TurnDraft]]:
    """The client's instructions, which are passed on and not stored, and what was said."""
    instructions, turns = [], []
    for index, message in enumerate(messages):
        refuse_unstorable(f"messages[{index}]", message)
        if message.get("role") == "assistant" and not any(message.get(name) for name in _SAYS):
            # An answer without words, which was passed on and not stored.
            continue
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
    content = message.get("content")
    if message["role"] == "tool" and not content_problem(content):
        # Parts of text, which not every server takes here.
        content = text_of(content)
    turn = TurnDraft(
        role=message["role"],
        content=content,
        tool_calls=message.get("tool_calls") or None,
        tool_call_id=message.get("tool_call_id"),
        refusal=message.get("refusal"),
        extras={name: value for name, value in message.items() if name not in MESSAGE_FIELDS and value is not None}
        or None,
    )
    if problem := turn_problem(turn):
        raise InvalidError(fields={f"messages[{index}].{problem[0]}": [problem[1]]})
    return turn


def _place(tenant_pk: UUID, user: str, request: Chat, turns: list[TurnDraft]) -> _Place:
    """Where this goes on: in the named thread, else in the one that holds the most of what was sent, and nothing else.

    ``histories[n]`` is what a client has seen after its first ``n`` messages.
    """
    store = component("THREAD_STORE")
    histories = list(accumulate(map(client_view_of, turns), follow, initial=begin(tenant_pk, user)))
    if request.thread_id is not None:
        named = store.get_thread(tenant_pk, thread_uuid(request.thread_id), user_id=user)
        return _place_in(named, request, turns, histories)
    has_answers = any(turn.role == "assistant" for turn in turns)
    thread = store.find_history(tenant_pk, user, histories[1:])
    # Two new conversations may begin alike; that one of them is being answered is no reason for the other to wait.
    if thread and (has_answers or not store.is_leased(thread)):
        return _Place(thread, turns[histories.index(thread.history) :])
    asked = store.find_seen(tenant_pk, user, histories[-1]) if has_answers else ()
    return _answered(asked, request) or _taken_in(turns, histories)


def _place_in(thread: Any, request: Chat, turns: list[TurnDraft], histories: list[UUID]) -> _Place:
    if thread.history is None or thread.history in histories:
        return _Place(thread, turns[histories.index(thread.history) if thread.history else 0 :])
    if not any(turn.role == "assistant" for turn in turns):
        return _Place(thread, [] if _is_unanswered(thread, turns) else turns)
    store = component("THREAD_STORE")
    if request.fork:
        return _taken_in(turns, histories)
    asked = store.find_seen(thread.tenant_id, thread.user_id, histories[-1], thread_id=thread.pk)
    if place := _answered(asked, request):
        return place
    raise HistoryDiffersError(thread_ids=[thread.pk])


def _taken_in(turns: list[TurnDraft], histories: list[UUID]) -> _Place:
    """A new thread with all of it. What is a copy of turns that must never be learned from, must not be either."""
    if len(turns) == 1:
        return _Place(None, turns)
    forbidden = component("THREAD_STORE").find_unlearnable(histories[1:])
    places = zip(turns, histories[1:], strict=True)
    return _Place(None, [replace(turn, learnable=history not in forbidden) for turn, history in places])


def _is_unanswered(thread: Any, new: Sequence[TurnDraft]) -> bool:
    """Whether the thread ends in just these messages, or in a broken answer to them: they were sent before."""
    stored = component("THREAD_STORE").get_last_turns(thread.tenant_id, thread.pk, len(new) + 1)
    stored = stored[:-1] if stored and stored[-1].status == "interrupted" else stored[-len(new) :]
    start = begin(thread.tenant_id, thread.user_id)
    last, sent = (reduce(follow, map(client_view_of, turns), start) for turns in (stored, new))
    return bool(stored) and last == sent


def _answered(asked: Sequence[Any], request: Chat) -> _Place | None:
    """What threads have behind these messages: their answer; a broken one, which is then given anew; or nothing."""
    return next((place for turn in asked if (place := _answer_behind(turn, request))), None)


def _answer_behind(asked: Any, request: Chat) -> _Place | None:
    """The answer of another model, or one that had other tools, is not the one that is asked for."""
    store, thread = component("THREAD_STORE"), asked.thread
    behind = store.get_turns_between(thread.tenant_id, thread.pk, asked.seq, asked.seq + _MOST_STEPS)
    answer = next((turn for turn in behind if turn.history), None)
    if answer is None or answer.role != "assistant":
        return None
    if answer.status == "interrupted":
        return _Place(thread, []) if answer.seq == thread.turn_count else None
    run = store.get_run_at(thread, answer.seq)
    if run and ((request.model or run.model) != run.model or list(request.tools) != run.tools):
        return None
    return _Place(
        thread,
        given=Answer(
            thread_id=thread.pk,
            run=run,
            answer=answer,
            turns=[],
            usage={"prompt_tokens": run.prompt_tokens, "completion_tokens": run.completion_tokens} if run else {},
            warnings=[],
        ),
    )
