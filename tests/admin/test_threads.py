"""Conversations are found and read, whatever is stored in them, at a cost that does not grow with the table."""

from datetime import timedelta
from typing import Any
from unittest.mock import ANY

import pytest
from django.utils import timezone
from pytest_django import Settings

from memorygw import gateway
from memorygw.admin import base
from memorygw.admin.transcript import CHARS_SHOWN, TURNS_SHOWN
from memorygw.models import Tenant
from tests.admin.conftest import WORD, Operator, make_fact, queries
from threads.models import Thread, Turn
from threads.turns import TurnDraft
from usermemory.models import Fact, Owner, UserMemory

pytestmark = pytest.mark.django_db

LIST = "memorygw_threads/thread/"


def page(operator: Operator, thread: Thread, **query: str) -> str:
    return operator.get(f"{LIST}{thread.pk}/change/", **query)


def store(thread: Thread, seq: int, **columns: Any) -> Turn:
    """A turn as no way in would make it."""
    return Turn.objects.create(**{"thread": thread, "seq": seq, "role": "user", "tokens_through": 0, **columns})


# --- the list


def test_threads_are_listed_newest_first_and_found_by_user_or_id(
    reader: Operator, tenant: Tenant, other_tenant: Tenant
) -> None:
    made = [gateway.create_thread(tenant, user, title=f"of {user}") for user in ("ada", "bob")]
    made.append(gateway.create_thread(other_tenant, "ada", title="elsewhere"))
    html = reader.get(LIST)
    assert sorted(made, key=lambda thread: html.index(str(thread.pk))) == made[::-1]

    def found(**query: str) -> list[bool]:
        html = reader.get(LIST, **query)
        return [str(thread.pk) in html for thread in made]

    assert found(q="ada") == [True, False, True]
    assert found(q="ad") == [False, False, False]
    assert found(q=str(made[1].pk)) == [False, True, False]
    assert found(tenant__id__exact=str(tenant.pk)) == [True, True, False]
    assert found(status__exact="CLOSED") == [False, False, False]
    assert found(q='"; DROP TABLE') == [False, False, False]


def test_the_table_is_never_counted(reader: Operator, tenant: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "MAX_LISTED", 60)
    for _ in range(70):
        gateway.create_thread(tenant, "ada")
    counting = [sql for sql in queries(lambda: reader.get(LIST)) if "COUNT(" in sql and "threads_thread" in sql]
    assert counting
    assert all("LIMIT 60" in sql for sql in counting)
    assert "60 threads" in reader.get(LIST, p="2")
    reader.get(LIST, 302, p="3")


def test_what_is_hidden_from_its_user_is_hidden_here(
    reader: Operator, tenant: Tenant, other_tenant: Tenant, settings: Settings
) -> None:
    old, gone, elsewhere = (gateway.create_thread(owner, "ada") for owner in (tenant, tenant, other_tenant))
    long_ago = timezone.now() - timedelta(days=40)
    Thread.objects.exclude(pk=gone.pk).update(updated_at=long_ago)
    Thread.objects.filter(pk=gone.pk).update(deleted_at=long_ago)
    assert str(old.pk) in reader.get(LIST)
    settings.MEMORYGW_RETENTION_DAYS = {"threads": 30, "tenants": {"globex": {"threads": 365}}}
    html = reader.get(LIST)
    assert [str(thread.pk) in html for thread in (old, gone, elsewhere)] == [False, False, True]
    for thread in (old, gone):
        reader.get(f"{LIST}{thread.pk}/change/", 302)
    page(reader, elsewhere)


# --- the transcript


def test_a_conversation_is_read_with_all_that_belongs_to_it(reader: Operator, thread: Thread, fact: Fact) -> None:
    loose = make_fact(fact.tenant, key="loose", value="without a quote", source_thread=thread)
    Turn.objects.filter(thread=thread, seq=4).update(status="interrupted")
    html = page(reader, thread)
    for text in (f"On the {WORD}", f"A {WORD}.", f"Not the {WORD}.", "4 · assistant · interrupted", "answers"):
        assert text in html
    places = [html.index(text) for text in (f"I play the {WORD}.", "Learned from it", str(fact.pk), "calls look")]
    assert places == sorted(places)
    assert html.index("without a quote") < html.index(str(loose.pk))
    assert "<form" not in html.partition('id="content-main"')[2]


def test_a_forgotten_turn_keeps_its_place(reader: Operator, thread: Thread) -> None:
    first = Turn.objects.get(thread=thread, seq=1)
    gateway.forget_turn(thread.tenant_id, "ada", thread.pk, first.pk)
    html = page(reader, thread)
    assert "1 · user · forgotten" in html
    assert f"I play the {WORD}." not in html


HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "\u202egnol\u202c \u2067x",
    "{{ 7|add:7 }}{% debug %}",
    "</details></div></body>",
    "\x08\x1b[31m\ufffe",
    "a" * 100_000,
    "e\u0301" * 20_000,
]


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_text_is_shown_as_text(editor: Operator, tenant: Tenant, text: str) -> None:
    thread = gateway.create_thread(tenant, f"ada{text[:20]}".replace("\x08\x1b", ""), title=text[:100].strip())
    calls = [{"id": text[:50], "type": "function", "function": {"name": text, "arguments": text}}]
    store(thread, 1, content=text)
    store(thread, 2, role="assistant", tool_calls=calls, refusal=text, model=text[:100])
    store(thread, 3, role="tool", tool_call_id=text[:50], content=[{"type": "text", "text": text}])
    owner = Owner.user(thread.user_id)
    fact = make_fact(tenant, owner=owner, key=text[:500], value=text, source_thread=thread, source_seq=1)
    make_fact(tenant, owner=owner, key="waits", value=text, source_thread=thread, source_seq=1, status="pending_review")
    person = UserMemory.objects.get(user_id=thread.user_id)
    facts, people = "memorygw_usermemory/fact/", "memorygw_usermemory/usermemory/"
    pages = (
        f"{LIST}{thread.pk}/change/",
        LIST,
        facts,
        f"{facts}{fact.pk}/change/",
        f"{facts}{fact.pk}/delete/",
        f"{facts}review/",
        people,
        f"{people}{person.pk}/change/",
    )
    for html in map(editor.get, pages):
        assert "<script>alert" not in html
        assert "<img src=x" not in html
        assert html.count("</body>") == 1


@pytest.mark.parametrize("content", [{"a": 1}, [1], [None], [{"type": "text"}], [[]], 7, True, [{"type": "image_url"}]])
def test_content_of_no_known_shape_is_shown(reader: Operator, tenant: Tenant, content: Any) -> None:
    thread = gateway.create_thread(tenant, "ada")
    store(thread, 1, content=content)
    assert "1 · user" in page(reader, thread)


@pytest.mark.parametrize(
    "calls",
    [{}, {"a": 1}, ["look"], [None], [{"function": "look"}], [{"function": {}}], [{"function": {"arguments": {}}}], 7],
)
def test_calls_of_no_known_shape_are_shown(reader: Operator, tenant: Tenant, calls: Any) -> None:
    thread = gateway.create_thread(tenant, "ada")
    store(thread, 1, role="assistant", tool_calls=calls)
    assert "1 · assistant" in page(reader, thread)


@pytest.mark.parametrize("arguments", ['{"city": ', "[" * 100_000, "", "NaN", '{"city": "\\ud800"}'])
def test_arguments_that_are_no_json_are_shown_as_they_are(reader: Operator, tenant: Tenant, arguments: str) -> None:
    thread = gateway.create_thread(tenant, "ada")
    store(thread, 1, role="assistant", tool_calls=[{"id": "c", "function": {"name": "look", "arguments": arguments}}])
    assert "calls look" in page(reader, thread)


def test_a_long_turn_is_shortened_and_all_of_it_is_a_click_away(reader: Operator, tenant: Tenant) -> None:
    thread = gateway.create_thread(tenant, "ada")
    store(thread, 1, content="b" * CHARS_SHOWN)
    assert "<details>" not in page(reader, thread)
    store(thread, 2, content="b" * CHARS_SHOWN + "the end")
    before, _, behind = page(reader, thread).partition("<summary>Show all (2007 characters)</summary>")
    assert "the end" not in before
    assert "the end" in behind


def test_a_long_conversation_has_pages(reader: Operator, tenant: Tenant) -> None:
    thread = gateway.create_thread(tenant, "ada")
    for seq in range(1, TURNS_SHOWN + 3):
        store(thread, seq, content=f"turn number {seq}.")
    first, second = page(reader, thread), page(reader, thread, after=str(TURNS_SHOWN))
    assert f'href="?after={TURNS_SHOWN}"' in first
    assert f"turn number {TURNS_SHOWN}." in first
    assert f"turn number {TURNS_SHOWN}." not in second
    assert f"turn number {TURNS_SHOWN + 2}." in second
    assert "?after=" not in second
    for nonsense in ("-1", "x", "²", "9" * 40):
        assert "turn number 1." in page(reader, thread, after=nonsense)


def test_no_thread_is_no_error(reader: Operator) -> None:
    for name in ("01890000-0000-7000-8000-000000000000", "nothing", "%00"):
        reader.get(f"{LIST}{name}/change/", 302)


# --- what it costs


def test_lists_and_transcripts_cost_the_same_whatever_there_is(reader: Operator, tenant: Tenant) -> None:
    thread = grown(tenant, 1)
    few = [queries(lambda: page(reader, thread)), queries(lambda: reader.get(LIST))]
    thread = grown(tenant, 30)
    many = [queries(lambda: page(reader, thread)), queries(lambda: reader.get(LIST))]
    assert [len(found) for found in many] == [len(found) for found in few] == [ANY, ANY]
    assert [len(found) <= 12 for found in many] == [True, True]


def grown(tenant: Tenant, size: int) -> Thread:
    for number in range(size):
        thread: Thread = gateway.create_thread(tenant, f"user {number}", title="t")
    gateway.append_turns(tenant, thread.user_id, thread.pk, [TurnDraft(role="user", content="x") for _ in range(size)])
    for seq in range(1, size + 1):
        make_fact(tenant, key=f"{thread.pk} {seq}", source_thread=thread, source_seq=seq)
    return thread
