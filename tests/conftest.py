"""What every test has at hand: a scripted model, two tenants, keys, and clients of the API."""

import json
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import pytest
from django.db import connection
from django.test import Client
from hypothesis import settings as hypothesis_settings
from pytest_django import Settings

from memorygw import gateway, sweep
from memorygw.models import Tenant
from memorygw.testing import RecordedRequest, ScriptedModelServer

# A loaded machine is no fault of the code.
hypothesis_settings.register_profile("memorygw", deadline=None)
hypothesis_settings.load_profile("memorygw")

NO_OPERATIONS: dict[str, Any] = {"operations": []}


def cheap_default(request: RecordedRequest) -> Any:
    """The helper model with nothing to say: no operations for an extraction, a short summary for notes."""
    return NO_OPERATIONS if '"operations"' in request.text else {"summary": "Small talk.", "facts": []}


def extractions(model: ScriptedModelServer) -> list[RecordedRequest]:
    return [request for request in model.requests_for("cheap") if '"operations"' in request.text]


def note_updates(model: ScriptedModelServer) -> list[RecordedRequest]:
    return [request for request in model.requests_for("cheap") if '"operations"' not in request.text]


@pytest.fixture
def model(settings: Settings) -> Iterator[ScriptedModelServer]:
    """The model behind the gateway: "main" answers "ok", "cheap" learns nothing, until a test says otherwise."""
    with ScriptedModelServer() as server:
        server.strict = True
        server.defaults["cheap"] = cheap_default
        settings.MEMORYGW_LLM_BASE_URL = server.base_url
        yield server


@pytest.fixture
def tenant(db: None) -> Tenant:
    return Tenant.objects.create(name="acme")


@pytest.fixture
def other_tenant(db: None) -> Tenant:
    return Tenant.objects.create(name="globex")


@dataclass
class Reply:
    status: int
    body: Any
    headers: Any

    @property
    def error(self) -> dict[str, Any]:
        error: dict[str, Any] = self.body["error"]
        return error


class Api:
    """The API as a program calls it: a key, and a user per request."""

    def __init__(self, key: str | None, user: str | None = "ada") -> None:
        self.key, self.user, self.client = key, user, Client(raise_request_exception=False)

    def __call__(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        user: str | None = None,
        raw: bytes | None = None,
        headers: dict[str, str] | None = None,
    ) -> Reply:
        acting = user if user is not None else self.user
        if acting is not None:
            path += f"{'&' if '?' in path else '?'}user={quote(acting, safe='')}"
        if self.key is not None:
            headers = {"Authorization": f"Bearer {self.key}", **(headers or {})}
        data = raw if raw is not None else b"" if body is None else json.dumps(body).encode()
        response = self.client.generic(method, f"/api/v1{path}", data, content_type="application/json", headers=headers)
        return Reply(response.status_code, json.loads(response.getvalue() or b"null"), response.headers)

    def ask(self, content: Any = "Hello", thread_id: str | None = None, **body: Any) -> Reply:
        path = f"/threads/{thread_id}/ask" if thread_id else "/ask"
        return self("POST", path, {"content": content, **body})

    def facts(self, user: str | None = None) -> dict[str, str]:
        return {fact["key"]: fact["value"] for fact in self("GET", "/facts", user=user).body["items"]}


@pytest.fixture
def api(tenant: Tenant) -> Api:
    """An admin key of "acme", acting for "ada"."""
    return Api(gateway.create_api_key(tenant.name, role="admin", name="tests")[1])


@pytest.fixture
def service_api(tenant: Tenant) -> Api:
    return Api(gateway.create_api_key(tenant.name, role="service", name="tests")[1])


@pytest.fixture
def other_api(other_tenant: Tenant) -> Api:
    return Api(gateway.create_api_key(other_tenant.name, role="admin", name="tests")[1])


def background(pool: Executor, work: Callable[..., Any], *arguments: Any, **options: Any) -> "Future[Any]":
    """Run ``work`` in a thread of the pool, and close the database connection that the thread opened."""

    def run() -> Any:
        try:
            return work(*arguments, **options)
        finally:
            connection.close()

    return pool.submit(run)


def learn() -> None:
    """Do all background work that is due, here and now."""
    while sweep.work_off():
        pass
