"""Threads, their turns, their leases and their notes."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from django.db import transaction

from memorygw import answering, forgetting
from memorygw.conf import component
from memorygw.exceptions import InvalidError, ThreadNotFoundError, TurnNotFoundError
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
from memorygw.models import Persona
from memorygw.preparing import find_persona
from memorygw.text import is_storable
from threads.turns import TurnDraft, turn_problem

MAX_TITLE_CHARS = 200
MAX_SESSION_ID_CHARS = 255
MAX_APPENDED_TURNS = 100


@dataclass(frozen=True)
class Lease:
    """A thread held for one caller; ``token`` goes with every write until ``expires_at`` and gives it back."""

    token: UUID
    expires_at: datetime


def create_thread(
    tenant: TenantLike, user_id: UserLike, *, title: str = "", persona: str = "", thread_id: UUID | None = None
) -> Any:
    """A new thread, with the id ``thread_id`` when there is one."""
    tenant_pk, user = tenant_id(tenant), external_user_id(user_id)
    persona_id = find_persona(tenant_pk, persona).pk if persona else None
    with transaction.atomic():
        component("USER_MEMORY_STORE").admit(tenant_pk, user)
        return component("THREAD_STORE").create_thread(
            tenant_pk, user, title=_title(title), persona_id=persona_id, thread_id=thread_id
        )


def open_session(tenant: TenantLike, user_id: UserLike | None, session_id: str, *, persona: str | Persona = "") -> Any:
    """The thread that a user's agent calls by this name, made when there is none (C24); also by the thread's own id.

    Without a user (None) the name is the tenant's.
    """
    tenant_pk, user = tenant_id(tenant), user_or_nobody(user_id)
    if not 1 <= len(session_id) <= MAX_SESSION_ID_CHARS or not is_storable(session_id):
        raise InvalidError(fields={"session_id": [f"1 to {MAX_SESSION_ID_CHARS} characters, without U+0000."]})
    store = component("THREAD_STORE")
    try:
        return store.get_thread(tenant_pk, UUID(session_id), user_id=user)
    except (ValueError, ThreadNotFoundError):
        persona_id = find_persona(tenant_pk, persona).pk if persona else None
        with transaction.atomic():
            component("USER_MEMORY_STORE").admit(tenant_pk, user)
            return store.open_session(tenant_pk, user, session_id, persona_id=persona_id)


def get_thread(tenant: TenantLike, user_id: UserLike, thread_id: UUID | str) -> Any:
    user = external_user_id(user_id)
    return component("THREAD_STORE").get_thread(tenant_id(tenant), thread_uuid(thread_id), user_id=user)


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
        starting_after=None if starting_after is None else thread_uuid(starting_after),
        ending_before=None if ending_before is None else thread_uuid(ending_before),
    )


def rename_thread(tenant: TenantLike, user_id: UserLike, thread_id: UUID | str, title: str) -> Any:
    user = external_user_id(user_id)
    return component("THREAD_STORE").rename_thread(
        tenant_id(tenant), thread_uuid(thread_id), _title(title), user_id=user
    )


def delete_threads(
    tenant: TenantLike, user_id: UserLike | None, thread_ids: Sequence[UUID] | Literal["all"], *, learned: bool = False
) -> Any:
    """Hard-delete; ids that are not the user's are ignored. A busy thread: `ThreadBusyError`, nothing deleted.

    ``learned``: the facts that were learned from these threads go, too; those that somebody wrote by hand stay.
    """
    return forgetting.delete_threads(tenant_id(tenant), user_or_nobody(user_id), thread_ids, learned=learned)


def forget_turn(
    tenant: TenantLike, user_id: UserLike, thread_id: UUID | str, turn_id: UUID | str, *, learned: bool = False
) -> None:
    """Empty one turn: its place stays, status "forgotten"; notes and a title that were made of it are made anew.

    ``learned``: the facts that were learned from it go, too. Raises `ThreadNotFoundError`, `TurnNotFoundError`,
    `ThreadBusyError` and its kin.
    """
    place = tenant_id(tenant), external_user_id(user_id), thread_uuid(thread_id)
    forgetting.forget_turn(*place, uuid_of(turn_id, TurnNotFoundError), learned=learned)


def get_turns(tenant: TenantLike, user_id: UserLike | None, thread_id: UUID | str) -> list[Any]:
    user = user_or_nobody(user_id)
    turns: list[Any] = component("THREAD_STORE").get_turns(tenant_id(tenant), thread_uuid(thread_id), user_id=user)
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


def has_id(made_id: UUID) -> bool:
    """Whether a thread, a turn or a run has this id: whether the request that was to make it took effect."""
    return bool(component("THREAD_STORE").has_id(made_id))


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
        refuse_unstorable(f"turns[{index}]", asdict(turn))
    return answering.append_turns(
        answering.Append(
            tenant_id=tenant_id(tenant),
            user_id=external_user_id(user_id),
            thread_id=thread_uuid(thread_id),
            turns=[replace(turns[0], id=first_turn_id), *turns[1:]],
            lease_token=lease_token,
        )
    )


def pop_turn(tenant: TenantLike, user_id: UserLike | None, thread_id: UUID | str) -> Any:
    """Take the newest turn of a thread away again, and notes that were made of it; None where there is no turn.

    Facts that were learned from it stay. Raises `ThreadNotFoundError`, `ThreadBusyError` and its kin.
    """
    return answering.pop_turn(tenant_id(tenant), user_or_nobody(user_id), thread_uuid(thread_id))


def acquire_lease(tenant: TenantLike, user_id: UserLike, thread_id: UUID | str, *, seconds: int | None = None) -> Lease:
    """Take the thread for a call of your own; held or not open: 409. ``seconds``: LEASE_SECONDS when left out."""
    tenant_pk, thread_pk, user = tenant_id(tenant), thread_uuid(thread_id), external_user_id(user_id)
    store = component("THREAD_STORE")
    token = store.acquire_lease(tenant_pk, thread_pk, user_id=user, seconds=seconds)
    return Lease(token, store.get_thread(tenant_pk, thread_pk, user_id=user).lease_expires_at)


def release_lease(tenant: TenantLike, user_id: UserLike, thread_id: UUID | str, token: UUID) -> None:
    """Give the lease back; a token that holds nothing (any more) frees nothing and is no error."""
    tenant_pk, thread_pk = tenant_id(tenant), thread_uuid(thread_id)
    store = component("THREAD_STORE")
    store.get_thread(tenant_pk, thread_pk, user_id=external_user_id(user_id))
    store.release_lease(tenant_pk, thread_pk, token)


def get_thread_memory(tenant: TenantLike, user_id: UserLike, thread_id: UUID | str) -> Any:
    user = external_user_id(user_id)
    return component("WORKING_MEMORY_STORE").get_state(tenant_id(tenant), thread_uuid(thread_id), user_id=user)


def reset_thread_memory(tenant: TenantLike, user_id: UserLike, thread_id: UUID | str) -> None:
    user = external_user_id(user_id)
    component("WORKING_MEMORY_STORE").reset(tenant_id(tenant), thread_uuid(thread_id), user_id=user)


def _title(title: str) -> str:
    title = title.strip()
    if len(title) > MAX_TITLE_CHARS or not is_storable(title):
        raise InvalidError(fields={"title": [f"At most {MAX_TITLE_CHARS} characters, without U+0000."]})
    return title
