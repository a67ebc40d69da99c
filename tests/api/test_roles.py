"""Which credential opens which operation; and an answer is JSON and nothing more, whoever asks, and for what."""

from collections.abc import Callable

import pytest
from django.test import Client

from memorygw.api.auth import HasCredential, IsAdminKey, IsKey, IsReviewer
from memorygw.models import Tenant
from memorygw.testing import ScriptedModelServer
from tests.api.operations import PREFIX, Operation, operations, probes, routes
from tests.api.test_isolation import send
from tests.api.worlds import Credential, World, key, session, token, undone

ROLES: dict[str, Callable[[World], Credential]] = {
    "admin": lambda world: key(world, "admin"),
    "service": lambda world: key(world, "service"),
    "token": token,
    "session": lambda world: session(csrf=True),
}
ALLOWED = {HasCredential: set(ROLES), IsKey: {"admin", "service"}, IsAdminKey: {"admin"}, IsReviewer: {"admin"}}
RESTRICTED = {
    IsKey: ("/user-tokens",),
    IsAdminKey: ("/users/", "/personas", "/tenant", "/erasures"),
    IsReviewer: ("/admin/",),
}
OPEN_TO_ALL = {
    f"{PREFIX}/schema",
    f"{PREFIX}/docs",
    f"{PREFIX}/{{unknown}}",
    "/v1/{unknown}",
    "/livez",
    "/readyz",
    "/metrics",
}
FORBIDDEN = {"error": {"code": "forbidden", "message": "The credential may not do this."}}
NOT_ALLOWED = {"code": "method_not_allowed", "message": "The method is not allowed here."}


@pytest.fixture
def world(tenant: Tenant, model: ScriptedModelServer) -> World:
    return World(tenant.name, "user-ada").fill(model).release()


def test_every_other_route_asks_for_a_credential() -> None:
    assert {route.path for route in routes() if not hasattr(route.callback, "cls")} == OPEN_TO_ALL


@pytest.mark.parametrize("operation", operations(), ids=str)
def test_every_operation_declares_who_may_use_it(operation: Operation) -> None:
    permissions = [type(permission) for permission in operation.permissions]
    assert permissions
    assert set(permissions) <= set(ALLOWED)
    path = operation.path.removeprefix(PREFIX)
    for permission, prefixes in RESTRICTED.items():
        assert (permission in permissions) == path.startswith(prefixes)


@pytest.mark.parametrize("role", ROLES)
def test_a_role_opens_what_it_is_allowed_and_nothing_else(role: str, world: World, model: ScriptedModelServer) -> None:
    credential = ROLES[role](world)
    if credential.world is not world:
        credential.world.fill(model).release()
    for operation in operations():
        allowed = set.intersection(*(ALLOWED[type(permission)] for permission in operation.permissions))
        with undone():
            response = send(operation, credential)
        if role in allowed:
            assert 200 <= response.status_code < 300, operation
        else:
            assert (response.status_code, response.json()) == (403, FORBIDDEN), operation


def test_a_credential_in_the_query_string_is_refused_whoever_sends_it(world: World) -> None:
    admin = key(world, "admin")
    for text in (admin.headers["Authorization"].removeprefix("Bearer "), "mgwu_anything"):
        for operation in [*operations(), *probes()]:
            for sender in (admin, Credential(world, Client())):
                response = send(operation, sender, query={"any_name": text})
                assert response.status_code == 400, operation
                assert text not in response.content.decode()


@pytest.mark.parametrize("accept", ["text/html", "application/xml", "*/*;q=0"])
def test_an_answer_is_json_without_forms_whatever_is_accepted(accept: str, world: World) -> None:
    for sender in (key(world, "admin"), Credential(world, Client())):
        for operation in [*operations(), *probes()]:
            with undone():
                response = send(operation, sender, Accept=accept)
            assert response.status_code in (202, 204) or response["Content-Type"] == "application/json", operation
            assert "<form" not in response.content.decode(), operation


def test_a_probe_lists_nothing(world: World) -> None:
    credential = key(world, "admin")
    for operation in probes():
        response = send(operation, credential)
        if operation.method == "HEAD":
            assert (response.status_code, response.content) == (200, b""), operation
        else:
            error = {name: response.json()["error"][name] for name in NOT_ALLOWED}
            assert (response.status_code, error) == (405, NOT_ALLOWED), operation
