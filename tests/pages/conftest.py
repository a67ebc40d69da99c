"""Two people who are signed in, what is known about them, and pages as a browser reads them."""

import re
from html import unescape
from html.parser import HTMLParser
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from memorygw import gateway
from memorygw.models import Tenant
from memorygw.pages import urls
from tests.admin.conftest import make_fact
from threads.models import Thread
from threads.turns import TurnDraft
from usermemory.models import Fact, Owner

MEMORY = "/me/memory/"
UNKNOWN = "00000000-0000-7000-8000-000000000000"
VOID = {"meta", "link", "input", "br"}


class Person:
    """Somebody at their own page, signed in."""

    def __init__(self, name: str) -> None:
        self.user, self.client = User.objects.create_user(name, password="p"), Client()
        self.client.force_login(self.user)
        self.id = str(self.user.pk)

    def get(self, path: str = "", status: int = 200, /, **query: Any) -> str:
        response = self.client.get(MEMORY + path, query)
        assert response.status_code == status, response.content.decode()[:2_000]
        return unescape(response.content.decode())

    def post(self, path: str, status: int = 302, /, **data: Any) -> str:
        response = self.client.post(MEMORY + path, data)
        assert response.status_code == status, response.content.decode()[:2_000]
        return unescape(response.content.decode())

    def told(self) -> str:
        """What the page says of what was just done."""
        [messages] = re.findall(r'<ul class="messages".*?</ul>', self.get(), re.DOTALL)
        return unescape(re.sub(r"<.*?>", "", messages))

    def facts(self) -> dict[str, str]:
        return {fact.key: fact.value for fact in gateway.get_user_facts(Tenant.DEFAULT, self.id)}

    def know(self, key: str = "", value: str = "x", **columns: Any) -> Fact:
        """A fact as learning leaves it."""
        return make_fact(default(), owner=Owner.user(self.id), key=key, value=value, **columns)

    def talk(self, said: Any, title: str = "Plans") -> Thread:
        thread: Thread = gateway.create_thread(Tenant.DEFAULT, self.id, title=title)
        gateway.append_turns(Tenant.DEFAULT, self.id, thread.pk, [TurnDraft(role="user", content=said)])
        return thread


def default() -> Tenant:
    return Tenant.objects.get(name=Tenant.DEFAULT)


@pytest.fixture
def ada(db: None) -> Person:
    return Person("ada")


@pytest.fixture
def bob(db: None) -> Person:
    return Person("bob")


def addresses() -> list[str]:
    """Every address of the page, with an id where it takes one."""
    paths = (f"/{pattern.pattern}" for pattern in urls.urlpatterns)
    return [path.replace("<uuid:memory_id>", UNKNOWN) for path in paths if path.startswith(MEMORY)]


def entry(html: str, word: str) -> str:
    """The one entry of the page's lists that has the word."""
    [found] = [part for part in re.findall(r'<li class="panel">.*?\n</li>', html, re.DOTALL) if word in part]
    return str(found)


def section(html: str, name: str) -> str:
    """A part of the page, or nothing where there is none."""
    found = re.search(rf'<section aria-labelledby="{name}">.*?</section>', html, re.DOTALL)
    return found[0] if found else ""


class Outline(HTMLParser):
    """A page as an assistive program reads it: its headings, its controls and what labels them, its ids."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.headings: list[int] = []
        self.ids: list[str] = []
        self.labelled: set[str] = set()
        self.controls: list[str] = []
        self.described: set[str] = set()
        self.open: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        if tag not in VOID:
            self.open.append(tag)
        if re.fullmatch(r"h\d", tag):
            self.headings.append(int(tag[1]))
        if tag == "label":
            self.labelled.add(values["for"])
        if tag in ("input", "textarea", "select") and values.get("type") != "hidden":
            self.controls.append(values.get("id", ""))
        self.ids += [values["id"]] if "id" in values else []
        self.described |= set(values.get("aria-describedby", "").split())

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, (tag, self.getpos())
