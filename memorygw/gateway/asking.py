"""Asking, what became of it, and the tools a model may call."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, TypedDict, Unpack
from uuid import UUID

from memorygw import answering
from memorygw.conf import component
from memorygw.context import Context
from memorygw.exceptions import InvalidError, RunNotFoundError
from memorygw.gateway.arguments import (
    TenantLike,
    UserLike,
    external_user_id,
    refuse_unstorable,
    tenant_id,
    thread_uuid,
    user_or_nobody,
    uuid_of,
)
from memorygw.live import Answer, Decision, Events
from memorygw.models import Persona
from memorygw.preparing import ContextQuery, find_persona, model_of, read_context
from memorygw.tools import Tool, Toolbox, ToolCaller, call_memory_tool, memory_tools, schemas_problem
from threads.turns import Content, content_problem

MEMORY_OFF = "Error: memory is switched off for this user."


class CallOptions(TypedDict, total=False):
    """What `ask` takes beside content and thread.

    ``tools`` are the caller's own, in OpenAI's shape: when the model calls one, or a tool that needs approval, the
    answer is None and `continue_run` goes on. ``own_tools`` run here, for this call alone. ``run_id``: the id that the
    run gets.
    """

    persona: str | Persona
    model: str
    metadata: dict[str, Any]
    tools: Sequence[dict[str, Any]]
    own_tools: Sequence[Tool]
    run_id: UUID


def ask(
    tenant: TenantLike,
    user_id: UserLike | None,
    content: Content,
    *,
    thread_id: UUID | str | None = None,
    **options: Unpack[CallOptions],
) -> Answer:
    """Store the user's turn, have the model answer it with what memory knows, store the answer; learning follows later.

    Without a thread a new one is made. Without a user (None) nobody is known, and nothing is learned.

    Raises `ThreadNotFoundError`, `ThreadBusyError` and its kin (409, nothing stored), `ContextTooLargeError` (nothing
    stored), `ModelFailedError` (the user's turn stays), `LeaseLostError` (the answer came after another call had taken
    the thread), `RunCancelledError`. Must not be called inside a transaction: RuntimeError.
    """
    return answering.ask(_call(tenant, user_id, content, thread_id, options))


def stream(
    tenant: TenantLike,
    user_id: UserLike | None,
    content: Content,
    *,
    thread_id: UUID | str | None = None,
    **options: Unpack[CallOptions],
) -> Events:
    """The same, told as it happens; the last event, ``done``, has the `Answer`.

    Raises what `ask` does, at once or in the middle. Closing the iterator ends the run: what the model has said by then
    is kept as an interrupted turn, and the thread is free (K17).
    """
    return answering.stream(_call(tenant, user_id, content, thread_id, options, streams=True))


def _call(
    tenant: TenantLike,
    user_id: UserLike | None,
    content: Content,
    thread_id: UUID | str | None,
    options: CallOptions,
    *,
    streams: bool = False,
) -> answering.Call:
    """The call, checked. Raises `InvalidError`."""
    tools = options.get("tools", ())
    if problem := content_problem(content):
        raise InvalidError(fields={"content": [problem]})
    if problem := schemas_problem(tools):
        raise InvalidError(fields={"tools": [problem]})
    said = {"content": content, "tools": list(tools)} | {name: options.get(name) for name in ("model", "metadata")}
    for field, value in said.items():
        refuse_unstorable(field, value)
    return answering.Call(
        tenant_id=tenant_id(tenant),
        user_id=user_or_nobody(user_id),
        content=content,
        thread_id=thread_uuid(thread_id) if thread_id is not None else None,
        streams=streams,
        **options,
    )


class ContinuationOptions(TypedDict, total=False):
    """What `continue_run` takes beside the decisions. ``persona`` and ``own_tools``: those of the `ask`, where they are
    not stored. ``first_turn_id``: the id of the first turn that it stores."""

    persona: Persona | None
    own_tools: Sequence[Tool]
    first_turn_id: UUID | None


def continue_run(
    tenant: TenantLike,
    user_id: UserLike | None,
    run_id: UUID | str,
    decisions: Sequence[Decision],
    **options: Unpack[ContinuationOptions],
) -> Answer:
    """Go on with a run that waits: one decision for each pending call, in any order; the calls keep theirs (T119).

    Raises `RunNotFoundError`, `RunNotWaitingError`, `InvalidError` (a call undecided, unknown, or decided in the wrong
    way: nothing happens), and what `ask` raises once the run goes on.
    """
    return answering.continue_run(_continuation(tenant, user_id, run_id, decisions, options))


def stream_continued(
    tenant: TenantLike,
    user_id: UserLike | None,
    run_id: UUID | str,
    decisions: Sequence[Decision],
    **options: Unpack[ContinuationOptions],
) -> Events:
    """The same, told as it happens, as by `stream`."""
    return answering.stream_continued(_continuation(tenant, user_id, run_id, decisions, options))


def _continuation(
    tenant: TenantLike,
    user_id: UserLike | None,
    run_id: UUID | str,
    decisions: Sequence[Decision],
    options: ContinuationOptions,
) -> answering.Continuation:
    for index, decision in enumerate(decisions):
        refuse_unstorable(f"decisions[{index}]", asdict(decision))
    return answering.Continuation(
        tenant_id=tenant_id(tenant),
        user_id=user_or_nobody(user_id),
        run_id=uuid_of(run_id, RunNotFoundError),
        decisions=decisions,
        **options,
    )


def cancel_run(tenant: TenantLike, user_id: UserLike, run_id: UUID | str) -> Any:
    """End a run without an answer, whether it waits or runs; what it stored stays. `RunOverError` when it is over."""
    run_pk, user = uuid_of(run_id, RunNotFoundError), external_user_id(user_id)
    return component("THREAD_STORE").cancel_run(tenant_id(tenant), run_pk, user_id=user)


def answer_again(
    tenant: TenantLike, user_id: UserLike, run_id: UUID | str, *, first_turn_id: UUID | None = None
) -> Answer:
    """What a run came to, as `ask` gave it (or `continue_run`, with its ``first_turn_id``).

    One that failed is run again from the turns that are stored (K14). Raises `RunNotFoundError`, `ThreadBusyError`
    while it runs, and what `ask` raises.
    """
    run_pk, user = uuid_of(run_id, RunNotFoundError), external_user_id(user_id)
    return answering.answer_again(tenant_id(tenant), user, run_pk, first_turn_id=first_turn_id)


def get_run(tenant: TenantLike, user_id: UserLike, run_id: UUID | str) -> Any:
    user = external_user_id(user_id)
    return component("THREAD_STORE").get_run(tenant_id(tenant), uuid_of(run_id, RunNotFoundError), user_id=user)


def get_context(
    tenant: TenantLike,
    user_id: UserLike,
    thread_id: UUID | str,
    *,
    persona: str = "",
    model: str = "",
    query: str = "",
    budget_tokens: int | None = None,
) -> Context:
    """What the next request on this thread would carry, for callers that run their own model; nothing is written."""
    tenant_pk, user = tenant_id(tenant), external_user_id(user_id)
    thread = component("THREAD_STORE").get_thread(tenant_pk, thread_uuid(thread_id), user_id=user)
    chosen = find_persona(tenant_pk, persona) if persona else thread.persona
    model = model_of(chosen, model)
    return read_context(
        thread,
        ContextQuery(
            tenant_id=tenant_pk,
            user_id=user,
            persona=chosen,
            model=model,
            tools=Toolbox({tool.name: tool for tool in memory_tools(chosen) if tool.replaces_injection}),
            about=query,
            budget_tokens=budget_tokens,
            remembers=component("USER_MEMORY_STORE").remembers(tenant_pk, user),
        ),
    )


def list_tools(tenant: TenantLike, *, persona: str = "") -> list[dict[str, Any]]:
    """The memory tools that a persona (else the setting) offers, in OpenAI's shape, for callers that run their own
    model."""
    chosen = find_persona(tenant_id(tenant), persona) if persona else None
    return [tool.schema for tool in memory_tools(chosen)]


def call_tool(
    tenant: TenantLike,
    user_id: UserLike,
    name: str,
    arguments: dict[str, Any],
    *,
    thread_id: UUID | str | None = None,
) -> str:
    """Run a memory tool, whatever set is offered: the text for the model, a refusal too. Asking is the approval.

    Raises `ToolNotFoundError`, `ThreadNotFoundError`.
    """
    tenant_pk, user = tenant_id(tenant), external_user_id(user_id)
    if not component("USER_MEMORY_STORE").remembers(tenant_pk, user):
        return MEMORY_OFF
    thread = None
    if thread_id is not None:
        thread = component("THREAD_STORE").get_thread(tenant_pk, thread_uuid(thread_id), user_id=user)
    caller = ToolCaller(tenant_pk, user, thread and thread.id, thread and thread.persona_id, is_approved=True)
    return call_memory_tool(name, caller, arguments)
