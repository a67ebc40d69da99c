"""The facade: everything memorygw does, in the words of its documents. The one module a host imports.

Every function takes the tenant (the object, its id or its name) and, where a person is meant, that person's external
id: text or an integer, 1–255 characters. Somebody else's row is never told apart from one that does not exist.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Literal
from uuid import UUID

from django.utils import timezone

from memorygw import answering, erasure, keys, user_tokens
from memorygw.answering import Append, Call
from memorygw.conf import component
from memorygw.context import Context, facts_block
from memorygw.exceptions import (
    InvalidError,
    NotFoundError,
    RunNotFoundError,
    TenantNotFoundError,
    ThreadNotFoundError,
    UserRequiredError,
)
from memorygw.ids import new_id
from memorygw.models import ApiKey, Tenant
from memorygw.preparing import ContextQuery, find_persona, model_of, read_context
from memorygw.running import Answer
from memorygw.running import Decision as Decision  # part of the facade
from memorygw.text import is_storable, unstorable_paths
from memorygw.text import user_id as clean_user_id
from memorygw.tools import ToolCaller, call_memory_tool, memory_tools, schemas_problem
from threads.turns import Content, TurnDraft, content_problem, turn_problem

TenantLike = Tenant | UUID | str
UserLike = str | int
MAX_TITLE_CHARS = 200
MAX_NAME_CHARS = 100
MAX_APPENDED_TURNS = 100


DEFAULT_TOKEN_SECONDS, MAX_TOKEN_SECONDS = 900, 3600


@dataclass(frozen=True)
class UserToken:
    """A bearer token of one user."""

    token: str
    expires_at: datetime


@dataclass(frozen=True)
class Lease:
    """A thread held for one caller; ``token`` goes with every write until ``expires_at`` and gives it back."""

    token: UUID
    expires_at: datetime


def tenant_id(tenant: TenantLike) -> UUID:
    """The id behind a tenant; a name costs a query. Raises `TenantNotFoundError`."""
    if isinstance(tenant, Tenant):
        return tenant.pk
    if isinstance(tenant, UUID):
        return tenant
    found = Tenant.objects.filter(name=tenant).values_list("pk", flat=True).first()
    if found is None:
        raise TenantNotFoundError
    return found


def external_user_id(user: UserLike) -> str:
    """The user's id as it is stored; an integer becomes its decimal text (K12). Raises `UserRequiredError`."""
    text = clean_user_id(user)
    if text is None:
        raise UserRequiredError("A user id is 1 to 255 characters, without control characters, not blank and not *.")
    return text


def create_api_key(tenant: str, *, role: str, name: str) -> tuple[ApiKey, str]:
    """A new key of the tenant (made when missing), and its text: the only time it is seen."""
    for field, value in {"tenant": tenant, "name": name}.items():
        if not value.strip() or len(value) > MAX_NAME_CHARS or not is_storable(value):
            raise InvalidError(fields={field: [f"1 to {MAX_NAME_CHARS} characters."]})
    owner, _ = Tenant.objects.get_or_create(name=tenant)
    key = keys.new_key()
    row = ApiKey.objects.create(tenant=owner, role=ApiKey.Role(role), name=name, prefix=key.prefix, digest=key.digest)
    return row, key.text


def create_user_token(
    tenant: TenantLike, user_id: UserLike, *, expires_in_seconds: int = DEFAULT_TOKEN_SECONDS
) -> UserToken:
    """A token that acts as this user alone, for at most an hour; erasing the person revokes it."""
    if not 1 <= expires_in_seconds <= MAX_TOKEN_SECONDS:
        raise InvalidError(fields={"expires_in_seconds": [f"1 to {MAX_TOKEN_SECONDS}."]})
    record_id = component("USER_MEMORY_STORE").open_record(tenant_id(tenant), external_user_id(user_id))
    expires_at = timezone.now() + timedelta(seconds=expires_in_seconds)
    return UserToken(user_tokens.make(record_id, expires_at=expires_at.timestamp()), expires_at)


def user_of_token(token: str) -> tuple[UUID, str] | None:
    """Tenant and user behind a token; None when it is forged, expired or revoked."""
    record_id = user_tokens.record_of(token)
    found: tuple[UUID, str] | None = component("USER_MEMORY_STORE").find_record(record_id) if record_id else None
    return found


# --- asking


def ask(
    tenant: TenantLike,
    user_id: UserLike,
    content: Content,
    *,
    thread_id: UUID | str | None = None,
    persona: str = "",
    model: str = "",
    metadata: dict[str, Any] | None = None,
    tools: Sequence[dict[str, Any]] = (),
    run_id: UUID | None = None,
) -> Answer:
    """Store the user's turn, have the model answer it with what memory knows, store the answer; learning follows later.

    Without a thread a new one is made. ``tools`` are the caller's own, in OpenAI's shape: when the model calls one, or
    a tool that needs approval, the answer is None and `continue_run` goes on. ``run_id``: the id that the run gets.

    Raises `ThreadNotFoundError`, `ThreadBusyError` and its kin (409, nothing stored), `ContextTooLargeError` (nothing
    stored), `ModelFailedError` (the user's turn stays), `LeaseLostError` (the answer came after another call had taken
    the thread), `RunCancelledError`. Must not be called inside a transaction: RuntimeError.
    """
    if problem := content_problem(content):
        raise InvalidError(fields={"content": [problem]})
    if problem := schemas_problem(tools):
        raise InvalidError(fields={"tools": [problem]})
    for field, value in {"content": content, "model": model, "metadata": metadata, "tools": list(tools)}.items():
        _refuse_unstorable(field, value)
    return answering.ask(
        Call(
            tenant_id=tenant_id(tenant),
            user_id=external_user_id(user_id),
            content=content,
            thread_id=_thread_id(thread_id) if thread_id is not None else None,
            persona=persona,
            model=model,
            metadata=metadata or {},
            tools=tools,
            run_id=run_id or new_id(),
        )
    )


def continue_run(
    tenant: TenantLike,
    user_id: UserLike,
    run_id: UUID | str,
    decisions: Sequence[Decision],
    *,
    first_turn_id: UUID | None = None,
) -> Answer:
    """Go on with a run that waits: one decision for each pending call, in any order; the calls keep theirs (T119).

    ``first_turn_id``: the id of the first turn that it stores. Raises `RunNotFoundError`, `RunNotWaitingError`,
    `InvalidError` (a call undecided, unknown, or decided in the wrong way: nothing happens), and what `ask` raises once
    the run goes on.
    """
    for index, decision in enumerate(decisions):
        _refuse_unstorable(f"decisions[{index}]", asdict(decision))
    run_pk, user = _id(run_id, RunNotFoundError), external_user_id(user_id)
    return answering.continue_run(tenant_id(tenant), user, run_pk, decisions, first_turn_id=first_turn_id)


def cancel_run(tenant: TenantLike, user_id: UserLike, run_id: UUID | str) -> Any:
    """End a run without an answer, whether it waits or runs; what it stored stays. `RunOverError` when it is over."""
    run_pk, user = _id(run_id, RunNotFoundError), external_user_id(user_id)
    return component("THREAD_STORE").cancel_run(tenant_id(tenant), run_pk, user_id=user)


def answer_again(
    tenant: TenantLike, user_id: UserLike, run_id: UUID | str, *, first_turn_id: UUID | None = None
) -> Answer:
    """What a run came to, as `ask` gave it (or `continue_run`, with its ``first_turn_id``).

    One that failed is run again from the turns that are stored (K14). Raises `RunNotFoundError`, `ThreadBusyError`
    while it runs, and what `ask` raises.
    """
    run_pk, user = _id(run_id, RunNotFoundError), external_user_id(user_id)
    return answering.answer_again(tenant_id(tenant), user, run_pk, first_turn_id=first_turn_id)


def get_run(tenant: TenantLike, user_id: UserLike, run_id: UUID | str) -> Any:
    user = external_user_id(user_id)
    return component("THREAD_STORE").get_run(tenant_id(tenant), _id(run_id, RunNotFoundError), user_id=user)


def get_context(
    tenant: TenantLike,
    user_id: UserLike,
    thread_id: UUID | str,
    *,
    persona: str = "",
    model: str = "",
    budget_tokens: int | None = None,
) -> Context:
    """What the next request on this thread would carry, for callers that run their own model; nothing is written."""
    tenant_pk, user = tenant_id(tenant), external_user_id(user_id)
    thread = component("THREAD_STORE").get_thread(tenant_pk, _thread_id(thread_id), user_id=user)
    chosen = find_persona(tenant_pk, persona) if persona else thread.persona
    model = model_of(chosen, model)
    query = ContextQuery(tenant_id=tenant_pk, user_id=user, persona=chosen, model=model, budget_tokens=budget_tokens)
    return read_context(thread, query)


# --- tools


def list_tools(tenant: TenantLike, *, persona: str = "") -> list[dict[str, Any]]:
    """The memory tools that a persona (else the setting) offers, in OpenAI's shape, for callers that run their own
    model."""
    chosen = find_persona(tenant_id(tenant), persona) if persona else None
    return [tool.schema for tool in memory_tools(chosen.memory_tools if chosen else "")]


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
    thread = get_thread(tenant_pk, user, thread_id) if thread_id is not None else None
    caller = ToolCaller(tenant_pk, user, thread.id if thread else None)
    return call_memory_tool(name, caller, arguments)


# --- threads


def create_thread(
    tenant: TenantLike, user_id: UserLike, *, title: str = "", persona: str = "", thread_id: UUID | None = None
) -> Any:
    """A new thread, with the id ``thread_id`` when there is one."""
    tenant_pk, user = tenant_id(tenant), external_user_id(user_id)
    persona_id = find_persona(tenant_pk, persona).pk if persona else None
    return component("THREAD_STORE").create_thread(
        tenant_pk, user, title=_title(title), persona_id=persona_id, thread_id=thread_id
    )


def get_thread(tenant: TenantLike, user_id: UserLike, thread_id: UUID | str) -> Any:
    user = external_user_id(user_id)
    return component("THREAD_STORE").get_thread(tenant_id(tenant), _thread_id(thread_id), user_id=user)


def list_threads(
    tenant: TenantLike,
    user_id: UserLike,
    *,
    limit: int = 20,
    starting_after: UUID | str | None = None,
    ending_before: UUID | str | None = None,
) -> Any:
    """One page of the user's threads, newest first: ``items`` and ``has_more`` (K13)."""
    return component("THREAD_STORE").list_threads(
        tenant_id(tenant),
        external_user_id(user_id),
        limit=limit,
        starting_after=None if starting_after is None else _thread_id(starting_after),
        ending_before=None if ending_before is None else _thread_id(ending_before),
    )


def rename_thread(tenant: TenantLike, user_id: UserLike, thread_id: UUID | str, title: str) -> Any:
    user = external_user_id(user_id)
    return component("THREAD_STORE").rename_thread(
        tenant_id(tenant), _thread_id(thread_id), _title(title), user_id=user
    )


def delete_threads(tenant: TenantLike, user_id: UserLike, thread_ids: Sequence[UUID] | Literal["all"]) -> Any:
    """Hard-delete; ids that are not the user's are ignored. A busy thread: `ThreadBusyError`, nothing deleted."""
    return component("THREAD_STORE").delete(tenant_id(tenant), thread_ids, user_id=external_user_id(user_id))


def get_turns(tenant: TenantLike, user_id: UserLike, thread_id: UUID | str) -> list[Any]:
    user = external_user_id(user_id)
    turns: list[Any] = component("THREAD_STORE").get_turns(tenant_id(tenant), _thread_id(thread_id), user_id=user)
    return turns


def get_turns_from(
    tenant: TenantLike, user_id: UserLike, thread_id: UUID | str, turn_id: UUID, *, count: int
) -> list[Any]:
    """A turn and those behind it, ``count`` in all. `ThreadNotFoundError` when the thread has no such turn."""
    thread = get_thread(tenant, user_id, thread_id)
    store = component("THREAD_STORE")
    first = store.find_turn(thread, turn_id)
    if first is None:
        raise ThreadNotFoundError
    turns: list[Any] = store.get_turns_between(thread.tenant_id, thread.id, first.seq - 1, first.seq + count - 1)
    return turns


def append_turns(
    tenant: TenantLike,
    user_id: UserLike,
    thread_id: UUID | str,
    turns: Sequence[TurnDraft],
    *,
    lease_token: UUID | None = None,
    first_turn_id: UUID | None = None,
) -> list[Any]:
    """Store turns, all or none, for a caller that runs its own model; learning follows when the last is an assistant's.

    ``first_turn_id``: the id that the first of them gets. Raises `InvalidError` (``turns[3].content``, …),
    `ThreadBusyError` and its kin, `LeaseLostError` for a token that does not hold the thread, `DoubleResultError` for a
    second result of one call.
    """
    if not 1 <= len(turns) <= MAX_APPENDED_TURNS:
        raise InvalidError(fields={"turns": [f"1 to {MAX_APPENDED_TURNS} turns."]})
    for index, turn in enumerate(turns):
        if problem := turn_problem(turn):
            raise InvalidError(fields={f"turns[{index}].{problem[0]}": [problem[1]]})
        _refuse_unstorable(f"turns[{index}]", asdict(turn))
    return answering.append_turns(
        Append(
            tenant_id=tenant_id(tenant),
            user_id=external_user_id(user_id),
            thread_id=_thread_id(thread_id),
            turns=[replace(turns[0], id=first_turn_id), *turns[1:]],
            lease_token=lease_token,
        )
    )


def acquire_lease(tenant: TenantLike, user_id: UserLike, thread_id: UUID | str, *, seconds: int | None = None) -> Lease:
    """Take the thread for a call of your own; held or not open: 409. ``seconds``: LEASE_SECONDS when left out."""
    tenant_pk, thread_pk, user = tenant_id(tenant), _thread_id(thread_id), external_user_id(user_id)
    store = component("THREAD_STORE")
    token = store.acquire_lease(tenant_pk, thread_pk, user_id=user, seconds=seconds)
    return Lease(token, store.get_thread(tenant_pk, thread_pk, user_id=user).lease_expires_at)


def release_lease(tenant: TenantLike, user_id: UserLike, thread_id: UUID | str, token: UUID) -> None:
    """Give the lease back; a token that holds nothing (any more) frees nothing and is no error."""
    tenant_pk, thread_pk = tenant_id(tenant), _thread_id(thread_id)
    store = component("THREAD_STORE")
    store.get_thread(tenant_pk, thread_pk, user_id=external_user_id(user_id))
    store.release_lease(tenant_pk, thread_pk, token)


def get_thread_memory(tenant: TenantLike, user_id: UserLike, thread_id: UUID | str) -> Any:
    user = external_user_id(user_id)
    return component("WORKING_MEMORY_STORE").get_state(tenant_id(tenant), _thread_id(thread_id), user_id=user)


def reset_thread_memory(tenant: TenantLike, user_id: UserLike, thread_id: UUID | str) -> None:
    user = external_user_id(user_id)
    component("WORKING_MEMORY_STORE").reset(tenant_id(tenant), _thread_id(thread_id), user_id=user)


# --- facts


def get_user_facts(tenant: TenantLike, user_id: UserLike) -> list[Any]:
    facts: list[Any] = component("USER_MEMORY_STORE").get_facts(tenant_id(tenant), external_user_id(user_id))
    return facts


def get_facts_text(tenant: TenantLike, user_id: UserLike) -> str:
    """The block of facts as a prompt gets it; empty when there are none."""
    return facts_block(get_user_facts(tenant, user_id)).text


def upsert_user_fact(tenant: TenantLike, user_id: UserLike, key: str, value: str) -> Any:
    """Set one fact by hand. Raises `BlankFactError`, `FactTooLongError`."""
    if not is_storable(key) or not is_storable(value):
        raise InvalidError(fields={"value": ["Contains U+0000 or a lone surrogate."]})
    return component("USER_MEMORY_STORE").upsert_fact(tenant_id(tenant), external_user_id(user_id), key, value)


def remove_user_fact(tenant: TenantLike, user_id: UserLike, key: str) -> None:
    component("USER_MEMORY_STORE").remove_fact(tenant_id(tenant), external_user_id(user_id), key)


def clear_user_facts(tenant: TenantLike, user_id: UserLike) -> None:
    component("USER_MEMORY_STORE").clear(tenant_id(tenant), external_user_id(user_id))


# --- a person's rights


def forget_user(tenant: TenantLike, user_id: UserLike) -> erasure.Receipt:
    """Delete everything of a person: threads with their turns, runs and notes, facts, the record.

    A busy thread: `ThreadBusyError` with the ids, nothing erased. A second call finds nothing and says so.
    """
    return erasure.forget_user(tenant_id(tenant), external_user_id(user_id))


def _thread_id(value: UUID | str) -> UUID:
    return _id(value, ThreadNotFoundError)


def _id(value: UUID | str, missing: type[NotFoundError]) -> UUID:
    """An id of ours; what is none names nothing, so it is not found either."""
    if isinstance(value, UUID):
        return value
    try:
        return UUID(value)
    except ValueError:
        raise missing from None


def _refuse_unstorable(field: str, value: object) -> None:
    if paths := list(unstorable_paths(value, field)):
        raise InvalidError(fields={path: ["Contains U+0000 or a lone surrogate."] for path in paths})


def _title(title: str) -> str:
    title = title.strip()
    if len(title) > MAX_TITLE_CHARS or not is_storable(title):
        raise InvalidError(fields={"title": [f"At most {MAX_TITLE_CHARS} characters, without U+0000."]})
    return title
