"""Operators of each group, and a person whose every text has a word that nobody else says."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.core.management import call_command
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from memorygw import gateway
from memorygw.models import Persona, Tenant
from tests.memorygw.runs import call
from threads.models import Thread
from threads.turns import TurnDraft
from usermemory.models import Fact, Owner, identity

WORD = "xylophone"
LISTS = [
    "memorygw/tenant/",
    "memorygw/apikey/",
    "memorygw/persona/",
    "memorygw/erasurereceipt/",
    "memorygw_threads/thread/",
    "memorygw_usermemory/usermemory/",
    "memorygw_usermemory/fact/",
]


class Operator:
    """Somebody at the admin, logged in."""

    def __init__(self, user: User) -> None:
        self.user, self.client = user, Client()
        self.client.force_login(user)

    def get(self, path: str, status: int = 200, /, **query: str) -> str:
        response = self.client.get(f"/admin/{path}", query)
        assert response.status_code == status, response.content.decode()[:2_000]
        return response.content.decode()

    def post(self, path: str, status: int = 302, /, **data: Any) -> str:
        response = self.client.post(f"/admin/{path}", data)
        assert response.status_code == status, errors_in(response.content.decode())
        return response.content.decode()

    def act(self, path: str, action: str, rows: list[Any], status: int = 302, /, **data: Any) -> str:
        """Choose rows of a list and do something with them."""
        chosen = [str(row.pk) for row in rows]
        return self.post(path, status, action=action, _selected_action=chosen, **data)

    def try_to(self, path: str, action: str, row: Any) -> None:
        """The same, for somebody who may not: the list is shown again, or all of it is refused."""
        chosen = {"action": action, "_selected_action": str(row.pk), "post": "yes"}
        assert self.client.post(f"/admin/{path}", chosen).status_code in (200, 302, 403)

    def messages(self, path: str) -> str:
        """What the list says of what was just done."""
        return " ".join(re.findall(r'<li class="(?:success|warning|error)">(.*?)</li>', self.get(path), re.DOTALL))


def errors_in(html: str) -> str:
    return " ".join(re.findall(r'class="errorlist.*?</ul>', html, re.DOTALL)) or html[:2_000]


@pytest.fixture
def operator(db: None) -> Callable[[str], Operator]:
    """An operator of the group with this name."""
    call_command("create_groups")

    def log_in(group: str) -> Operator:
        user = User.objects.create_user(group.replace(" ", "-"), password="p", is_staff=True)
        user.groups.add(Group.objects.get(name=f"memorygw {group}"))
        return Operator(user)

    return log_in


@pytest.fixture
def viewer(operator: Callable[[str], Operator]) -> Operator:
    return operator("viewer")


@pytest.fixture
def reader(operator: Callable[[str], Operator]) -> Operator:
    return operator("content viewer")


@pytest.fixture
def editor(operator: Callable[[str], Operator]) -> Operator:
    return operator("editor")


@pytest.fixture
def root(db: None) -> Operator:
    return Operator(User.objects.create_superuser("root", password="p"))


@pytest.fixture
def persona(tenant: Tenant) -> Persona:
    return gateway.create_persona(tenant, "Coach", instructions=f"Mind the {WORD}.")


@pytest.fixture
def thread(tenant: Tenant) -> Thread:
    thread: Thread = gateway.create_thread(tenant, "ada", title=f"On the {WORD}")
    made = call("look", f"call {WORD}", at=WORD)
    turns = [
        TurnDraft(role="user", content=f"I play the {WORD}."),
        TurnDraft(role="assistant", content=None, tool_calls=[made], model="main"),
        TurnDraft(role="tool", content=f"A {WORD}.", tool_call_id=f"call {WORD}"),
        TurnDraft(role="assistant", content=None, refusal=f"Not the {WORD}."),
    ]
    gateway.append_turns(tenant, "ada", thread.pk, turns)
    return thread


@pytest.fixture
def fact(tenant: Tenant, thread: Thread) -> Fact:
    return make_fact(tenant, key="plays", value=f"the {WORD}", source_thread=thread, source_seq=1)


def make_fact(tenant: Tenant, *, owner: Owner | None = None, key: str = "", value: str = "x", **columns: Any) -> Fact:
    """A fact as learning leaves it."""
    owner = owner or Owner.user("ada")
    values = {"scope": owner.scope, "owner_id": owner.owner_id, "user_id": owner.user_id, "origin": "auto"}
    kind = "keyed" if key else "text"
    same = identity(key, "" if key else value)
    return Fact.objects.create(
        tenant=tenant, key=key, value=value, kind=kind, identity=same, searchable=f"{key} {value}", **values | columns
    )


def queries(work: Callable[[], Any]) -> list[str]:
    with CaptureQueriesContext(connection) as caught:
        work()
    return [query["sql"] for query in caught]
