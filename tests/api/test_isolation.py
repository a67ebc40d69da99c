"""Nobody reaches what is somebody else's: every operation, with every credential, with a foreign id in every place.

The operations come from the URLconf, what they take from the published schema. A new route needs no line here, unless
it names something new: then `NAMES` has to say whose that is.
"""

import copy
import json
import re
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from itertools import pairwise
from types import MappingProxyType
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

import pytest
from django.db import transaction
from django.http import HttpResponse

from memorygw.api.auth import IsReviewer
from memorygw.models import Tenant
from memorygw.testing import ScriptedModelServer
from tests.api.operations import Operation, Path, example, operations, paths, probes
from tests.api.worlds import REFUSED, STRANGERS, TOOL, Credential, World, dump, key, savepoint, undone

UNKNOWN = "00000000-0000-7000-8000-000000000000"
VOLATILE = re.compile(
    r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|\d{4}-\d\d-\d\dT[\d:.]+(Z|\+00:00)"
    r"|(mgwu_|fact-|chatcmpl-|created\W+)[\w:-]+|\b[0-9a-f]{64}\b"
)
USER_HEADER = "X-Memorygw-User"


class Whose(Enum):
    """To whom a name is foreign."""

    USER = "what a user owns: to all others"
    PERSON = "a user: to other tenants, and to who is bound to another user"
    TENANT = "what a tenant owns: to other tenants"
    NOBODY = "to nobody"


class Name(NamedTuple):
    """What a parameter or a field of this name stands for: values of a world, and one that is nobody's, as long."""

    whose: Whose
    values: Callable[[World], list[Any]]
    unknown: Any = UNKNOWN


THREAD = Name(Whose.USER, lambda world: world.thread_ids)
LEASE = Name(Whose.USER, lambda world: [world.lease_token])
USER = Name(Whose.PERSON, lambda world: [world.user], "user-zoe")
NAMES = {
    "thread_id": THREAD,
    "starting_after": THREAD,
    "ending_before": THREAD,
    "ids": Name(Whose.USER, lambda world: [[thread_id] for thread_id in world.thread_ids], [UNKNOWN]),
    "turn_id": Name(Whose.USER, lambda world: [world.turn_id]),
    "receipt_id": Name(Whose.TENANT, lambda world: [world.receipt_id]),
    "run_id": Name(Whose.USER, lambda world: world.run_ids),
    "tool_call_id": Name(Whose.USER, lambda world: [world.call_id], "call-00000000"),
    "token": LEASE,
    "lease_token": LEASE,
    "X-Memorygw-Thread": THREAD,
    "session_id": Name(Whose.USER, lambda world: [world.voice_session_id]),
    "memory_id": Name(Whose.USER, lambda world: [world.fact_id]),
    "key": Name(Whose.USER, lambda world: [world.fact_key], "key-00000000"),
    "Idempotency-Key": Name(Whose.USER, lambda world: [world.request_key], "request-00000000"),
    "user": USER,
    "user_id": USER,
    USER_HEADER: USER,
    "persona": Name(Whose.TENANT, lambda world: [world.persona, world.persona_id], "persona-00000000"),
    "persona_id": Name(Whose.TENANT, lambda world: [world.persona_id]),
    "query": Name(Whose.NOBODY, lambda world: ["Hello"], "Howdy"),
    "name": Name(Whose.NOBODY, lambda world: [TOOL], "no_such_function_"),
}
LOOKS_LIKE_AN_ID = re.compile(r"(_id|ids|token|key|user|persona)$")

# Where the smallest body, or none of the query, is not yet a request that works; None: the caller's own.
QUERIES = {"DELETE /facts": ["key"], "GET /memories/search": ["query"], "HEAD /memories/search": ["query"]}
BODIES: dict[str, Any] = {
    "POST /threads/{thread_id}/turns": {"turns": [{"role": "user", "content": "Hello"}]},
    "POST /runs/{run_id}/continue": {"decisions": [{"tool_call_id": None, "approved": True}]},
    "POST /tools/{name}": {"arguments": {"key": None, "value": "tea", "user_id": None}},
    "POST /facts": {"facts": ["Hello"]},
    "POST /voice/sessions/{session_id}/fragments": {"items": [{"role": "user", "text": "Hello"}]},
    "POST /v1/chat/completions": {
        "messages": [{"role": "user", "content": "Hello"}],
        "metadata": {"thread_id": None},
    },
    "PUT /facts/context": {"value": "Hello"},
}


class Place(NamedTuple):
    """Where a request bears a name: in "path", "query", "header" or "body"."""

    kind: str
    path: Path

    @property
    def name(self) -> Name:
        return NAMES[str(self.path[-1])]


class Sent(NamedTuple):
    """An answer, and the value that was asked with."""

    response: HttpResponse
    value: Any


def places(operation: Operation) -> list[Place]:
    """Wherever a request of this operation can name something."""
    found = [Place("path", (name,)) for name in operation.arguments]
    if operation.method in ("OPTIONS", "TRACE"):
        return found
    found += [Place(kind, (name,)) for kind, name in operation.parameters if name in NAMES]
    found += [Place("query", ("user",)), Place("header", (USER_HEADER,))]
    found += [Place("body", path) for path in paths(operation.body or {}, NAMES)]
    found += [Place("body", path) for path in named(BODIES.get(str(operation), {}))]
    return list(dict.fromkeys(found))


def named(body: Any, at: Path = ()) -> Iterator[Path]:
    items = body.items() if isinstance(body, dict) else enumerate(body) if isinstance(body, list) else ()
    for name, inner in items:
        if inner is None:
            yield (*at, name)
        else:
            yield from named(inner, (*at, name))


def send(
    operation: Operation,
    credential: Credential,
    place: Place | None = None,
    value: Any = None,
    *,
    query: Mapping[str, str] = MappingProxyType({}),
    **headers: str,
) -> Any:
    """A request about the caller's own things, but for the ``value`` in that ``place``."""
    own = credential.world
    parts: dict[str, Any] = {
        "path": {name: mine(own, name) for name in operation.arguments},
        "query": credential.query | {name: mine(own, name) for name in QUERIES.get(str(operation), ())} | dict(query),
        "header": credential.headers | headers,
        "body": body_of(operation, own),
    }
    if place is not None:
        if place.path == (USER_HEADER,):
            parts["query"].pop("user", None)
        put(parts[place.kind], place.path, value)
    arguments = {name: quote(str(part), safe="") for name, part in parts["path"].items()}
    response = credential.client.generic(
        operation.method,
        f"{operation.path.format(**arguments)}?{urlencode(parts['query'])}",
        json.dumps(parts["body"]) if operation.method in ("POST", "PUT", "PATCH") else "",
        "application/json",
        headers=parts["header"],
    )
    return whole(response) if response.streaming else response


def whole(response: Any) -> HttpResponse:
    """A streamed answer, to be looked at more than once."""
    return HttpResponse(response.getvalue(), status=response.status_code, headers=response.headers)


def body_of(operation: Operation, own: World) -> Any:
    special = copy.deepcopy(BODIES.get(str(operation), {}))
    for path in named(special):
        put(special, path, mine(own, str(path[-1])))
    smallest = example(operation.body, lambda name: mine(own, name)) if operation.body else {}
    return smallest | special


def mine(world: World, name: str) -> Any:
    return NAMES[name].values(world)[0] if name in NAMES else None


def put(target: Any, path: Path, value: Any) -> None:
    """Set what is at the path, which is made where the smallest body has none."""
    for step, below in pairwise(path):
        if isinstance(target, list) and not target:
            target.append({})
        elif isinstance(target, dict):
            target.setdefault(step, [] if below == 0 else {})
        target = target[step]
    target[path[-1]] = value


def foreign(place: Place, credential: Credential, owner: World) -> bool:
    whose = place.name.whose
    if not credential.role or whose is Whose.NOBODY:
        return whose is not Whose.NOBODY
    if whose is Whose.TENANT:
        return credential.world.tenant_id != owner.tenant_id
    if whose is Whose.PERSON:
        return credential.world.user != owner.user and not credential.may_name_users_of(owner)
    return True


def seen(sent: Sent) -> tuple[int, dict[str, str], str]:
    """What a caller can compare. An answer that is no refusal may say what was asked, and has ids of its own."""
    response = sent.response
    headers = {name: value for name, value in response.items() if name not in ("X-Request-ID", "Date")}
    text = response.content.decode()
    if response.status_code < 300:
        # Of the length as well: a time without microseconds is shorter.
        headers.pop("Content-Length", None)
        headers = {name: VOLATILE.sub("…", value) for name, value in headers.items()}
        text = VOLATILE.sub("…", text.replace(str(sent.value), "…"))
    return response.status_code, headers, text


def assert_tells_nothing(sent: Sent, owner: World, to: World) -> None:
    assert sent.response.status_code < 500
    text = sent.response.content.decode() + str(sent.response.headers)
    text = text.replace(sent.value if isinstance(sent.value, str) else "".join(sent.value), "")
    assert not [secret for secret in owner.secrets_from(to) if secret in text], text


@pytest.fixture
def owner(tenant: Tenant, model: ScriptedModelServer) -> World:
    return World(tenant.name, "user-ada").fill(model)


@pytest.mark.parametrize("operation", operations(), ids=str)
def test_every_name_is_known(operation: Operation) -> None:
    body = {str(name) for path in paths(operation.body or {}, LikeAnId()) for name in path[-1:]}
    names = {*operation.arguments, *(name for _, name in operation.parameters if name in LikeAnId()), *body}
    assert names <= set(NAMES), "Say in NAMES whose it is."


class LikeAnId:
    def __contains__(self, name: object) -> bool:
        return name in NAMES or LOOKS_LIKE_AN_ID.search(str(name)) is not None


def test_every_request_of_the_matrix_works_for_the_owner(owner: World) -> None:
    credential = key(owner.release(), "admin")
    for operation in operations():
        with undone():
            response = send(operation, credential)
            assert 200 <= response.status_code < 300, (str(operation), response.content)


@pytest.mark.rows("T6", "T29", "T30", "U3", "U4")
@pytest.mark.parametrize("who", STRANGERS)
def test_a_foreign_id_is_an_unknown_id(who: str, owner: World, model: ScriptedModelServer) -> None:
    credential = STRANGERS[who](owner)
    credential.world.fill(model).release()
    faults = []
    for operation in [*operations(), *probes()]:
        for place in (place for place in places(operation) if foreign(place, credential, owner)):
            unknown = attempt(operation, credential, owner, place, place.name.unknown)
            for value in place.name.values(owner):
                if (answer := attempt(operation, credential, owner, place, value)) != unknown:
                    faults.append((str(operation), place, value, answer, unknown))
        attempt(operation, credential, owner)
        assert_untouched(owner)
    assert not faults


@pytest.mark.parametrize("who", REFUSED)
def test_a_credential_that_is_not_valid_opens_nothing(who: str, owner: World) -> None:
    credential = REFUSED[who](owner)
    before = dump()
    for operation in [*operations(), *probes()]:
        wanted: list[Any] = [
            (place, value) for place in places(operation) for value in (place.name.unknown, place.name.values(owner)[0])
        ]
        answers = {str(attempt(operation, credential, owner, *one)) for one in [(), *wanted]}
        assert len(answers) == 1, (str(operation), answers)
        assert answers.pop().startswith("(401,"), operation
        assert dump() == before, operation


def attempt(
    operation: Operation, credential: Credential, owner: World, place: Place | None = None, value: Any = ""
) -> tuple[int, dict[str, str], str]:
    """What is answered, when it tells nothing of the owner's. What a success did, to the caller's own, is undone."""
    start = savepoint()
    sent = Sent(send(operation, credential, place, value), value)
    if not reviews(operation, credential, owner):
        assert_tells_nothing(sent, owner, credential.world)
    if not credential.csrf and operation.method in ("POST", "PUT", "PATCH", "DELETE"):
        assert sent.response.status_code == 403, operation
    if sent.response.status_code < 300:
        assert_untouched(owner)
        transaction.savepoint_rollback(start)
    return seen(sent)


def reviews(operation: Operation, credential: Credential, owner: World) -> bool:
    """Whether this reads the queue of the owner's tenant with its admin key: what waits there is theirs to see."""
    is_queue = IsReviewer in operation.callback.cls.permission_classes
    return is_queue and credential.role == "admin" and credential.may_name_users_of(owner)


def assert_untouched(owner: World) -> None:
    rows = dump()
    assert {place: rows.pop(place, None) for place in owner.rows} == owner.rows
    assert not [row for row in rows.values() if owner.owns(row)]
