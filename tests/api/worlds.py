"""What a person owns, and the credentials of everybody who does not."""

import json
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property
from typing import Any
from uuid import UUID

from django.apps import apps
from django.contrib.auth.models import User
from django.db import transaction
from django.test import Client
from django.utils import timezone

from memorygw import gateway, keys, user_tokens
from memorygw.conf import component
from memorygw.models import ApiKey, Persona, Tenant
from memorygw.testing import ScriptedModelServer
from tests.conftest import Api
from threads.models import Thread
from workingmemory.models import WorkingMemoryState

Rows = dict[tuple[str, Any], dict[str, Any]]
TOOL = "remember_user_fact"


def dump() -> Rows:
    """Every row of ours, but for when a key was last used."""
    ours = [model for name in ("threads", "usermemory", "workingmemory") for model in config(name).get_models()]
    return {
        (model._meta.label, row["pk"]): {name: value for name, value in row.items() if name != "last_used_at"}
        for model in [*config("memorygw").get_models(), *ours]
        for row in model._base_manager.values("pk", *(field.attname for field in model._meta.concrete_fields))
    }


# Django 6.1 calls it savepoint_create.
savepoint: Callable[[], Any] = getattr(transaction, "savepoint_create", transaction.savepoint)


@contextmanager
def undone() -> Iterator[None]:
    """Roll back what happens inside. Not by `atomic`, in which code that insists on being outermost would not run."""
    here = savepoint()
    yield
    transaction.savepoint_rollback(here)


def config(name: str) -> Any:
    return next(config for config in apps.get_app_configs() if config.name == name)


@dataclass
class World:
    """One of everything that a person can own; whatever text there is, is the ``mark``."""

    tenant: str
    user: str
    mark: str = field(default_factory=lambda: f"mark {secrets.token_hex(8)}")
    fact_key: str = field(default_factory=lambda: f"key-{secrets.token_hex(4)}")
    persona: str = field(default_factory=lambda: f"persona-{secrets.token_hex(4)}")
    call_id: str = field(default_factory=lambda: f"call-{secrets.token_hex(4)}")
    request_key: str = field(default_factory=lambda: f"request-{secrets.token_hex(4)}")
    thread_ids: list[str] = field(default_factory=list)
    run_ids: list[str] = field(default_factory=list)
    rows: Rows = field(default_factory=dict)

    @cached_property
    def tenant_id(self) -> UUID:
        return Tenant.objects.get_or_create(name=self.tenant)[0].pk

    def fill(self, model: ScriptedModelServer) -> "World":
        """Make the rows: threads that are open, waiting, leased and deleted, runs, notes, facts, speech; a persona."""
        persona = Persona.objects.create(tenant_id=self.tenant_id, name=self.persona)
        self.persona_id = str(persona.pk)
        self.receipt_id = str(gateway.forget_user(self.tenant_id, "somebody").pk)
        before = dump()
        self.thread_ids = [self._thread(), self._waiting(model), self._thread(), self._thread()]
        open_, _, leased, deleted = self.thread_ids
        self.lease_token = str(gateway.acquire_lease(self.tenant, self.user, leased, seconds=3600).token)
        Thread.objects.filter(pk=deleted).update(deleted_at=timezone.now())
        answer = gateway.ask(self.tenant, self.user, self.mark, thread_id=open_)
        self.run_ids.append(str(answer.run.id))
        self.turn_id = str(answer.answer.id)
        WorkingMemoryState.objects.filter(thread_id=open_).update(summary=self.mark, facts=[self.mark])
        gateway.upsert_user_fact(self.tenant, self.user, self.fact_key, self.mark)
        waiting = gateway.upsert_user_fact(self.tenant, self.user, "waiting", self.mark)
        waiting.status = "pending_review"
        waiting.save(update_fields=["status"])
        self.fact_id = str(waiting.pk)
        self.voice_session_id = str(gateway.open_voice_session(self.tenant, self.user).id)
        gateway.add_voice_fragments(self.tenant, self.user, self.voice_session_id, [("user", self.mark)])
        self._use_request_key()
        self.rows = {place: row for place, row in dump().items() if place not in before}
        return self

    def _thread(self) -> str:
        return str(gateway.create_thread(self.tenant, self.user, title=self.mark).id)

    def _waiting(self, model: ScriptedModelServer) -> str:
        arguments = json.dumps({"key": "pet", "value": self.mark})
        call = {"id": self.call_id, "type": "function", "function": {"name": TOOL, "arguments": arguments}}
        model.reply(self.mark, model="main", tool_calls=[call])
        answer = gateway.ask(self.tenant, self.user, self.mark)
        assert answer.run.status == "awaiting_human"
        self.run_ids.append(str(answer.run.id))
        return str(answer.thread_id)

    def _use_request_key(self) -> None:
        """Where it takes no thread, so that others can send the same request."""
        api = Api(gateway.create_api_key(self.tenant, role="service", name="tests")[1], self.user)
        for path, body in (("/threads", {}), ("/ask", {"content": "Hello"})):
            assert api("POST", path, body, headers={"Idempotency-Key": self.request_key}).status in (200, 201)

    def release(self) -> "World":
        """Let the lease run out: nobody is busy with a thread."""
        Thread.objects.filter(pk__in=self.thread_ids).update(lease_expires_at=timezone.now())
        return self

    @property
    def secrets(self) -> set[str]:
        """What nobody else may be told: the text, and the ids of the rows."""
        return {self.mark, self.lease_token, *(str(pk) for _, pk in self.rows)}

    def secrets_from(self, other: "World") -> set[str]:
        """The same, and for another tenant what the whole tenant owns."""
        return self.secrets | ({self.persona, self.persona_id} if other.tenant != self.tenant else set())

    def owns(self, row: dict[str, Any]) -> bool:
        """Whether a new row is this person's, or refers to a row that is."""
        is_theirs = row.get("tenant_id") == self.tenant_id and self.user in (row.get("user_id"), row.get("owner_id"))
        return is_theirs or any(secret in str(value) for secret in self.secrets for value in row.values())


@dataclass
class Credential:
    """Somebody at the door. ``world`` is what they own, or would if they were let in."""

    world: World
    client: Client
    headers: dict[str, str] = field(default_factory=dict)
    role: str = ""
    """service, admin, user; empty for one that is not valid."""
    csrf: bool = True
    """False: a session whose requests carry no token."""

    @property
    def query(self) -> dict[str, str]:
        return {} if self.role == "user" else {"user": self.world.user}

    def may_name_users_of(self, world: World) -> bool:
        return self.role in ("service", "admin") and self.world.tenant_id == world.tenant_id


def with_bearer(world: World, text: str, role: str = "") -> Credential:
    return Credential(world, Client(), {"Authorization": f"Bearer {text}"}, role)


def key(world: World, role: str) -> Credential:
    return with_bearer(world, gateway.create_api_key(world.tenant, role=role, name="tests")[1], role)


def token(world: World) -> Credential:
    return with_bearer(world, gateway.create_user_token(world.tenant_id, world.user).token, "user")


def session(*, csrf: bool) -> Credential:
    user = User.objects.create_user("kim")
    client = Client(enforce_csrf_checks=not csrf)
    client.force_login(user)
    return Credential(World(Tenant.DEFAULT, str(user.pk)), client, role="user", csrf=csrf)


STRANGERS: dict[str, Callable[[World], Credential]] = {
    "another tenant's service key": lambda owner: key(World("globex", "user-eve"), "service"),
    "another tenant's admin key": lambda owner: key(World("globex", "user-eve"), "admin"),
    "the tenant's service key for another user": lambda owner: key(World(owner.tenant, "user-bob"), "service"),
    "the tenant's admin key for another user": lambda owner: key(World(owner.tenant, "user-bob"), "admin"),
    "another user's token": lambda owner: token(World(owner.tenant, "user-bob")),
    "the token of a namesake in another tenant": lambda owner: token(World("globex", owner.user)),
    "another user's session": lambda owner: session(csrf=True),
    "another user's session without its CSRF token": lambda owner: session(csrf=False),
}
"""Credentials that are valid, and not the owner's. Their worlds are still to be filled."""


def changed_key(owner: World, **change: Any) -> Credential:
    row, text = gateway.create_api_key(owner.tenant, role="admin", name="tests")
    ApiKey.objects.filter(pk=row.pk).update(**change)
    return with_bearer(owner, text)


def changed_token(owner: World, *, seconds: int, end: str = "") -> Credential:
    record: UUID = component("USER_MEMORY_STORE").open_record(owner.tenant_id, owner.user)
    return with_bearer(owner, user_tokens.make(record, expires_at=time.time() + seconds) + end)


REFUSED: dict[str, Callable[[World], Credential]] = {
    "nothing": lambda owner: Credential(owner, Client()),
    "a malformed key": lambda owner: with_bearer(owner, "mgw_00000000_x"),
    "a key that was never made": lambda owner: with_bearer(owner, keys.new_key().text),
    "a revoked key": lambda owner: changed_key(owner, revoked_at=timezone.now()),
    "an expired key": lambda owner: changed_key(owner, expires_at=timezone.now() - timedelta(seconds=1)),
    "an expired token": lambda owner: changed_token(owner, seconds=-1),
    "a forged token": lambda owner: changed_token(owner, seconds=60, end="x"),
}
"""What opens nothing, though it was the owner's own."""
