"""A person corrects what is remembered about them, forgets it, takes it along; whatever is stored, the page holds."""

import json
import re
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.test import Client
from django.urls import include, path
from django.utils import timezone
from pytest_django import Settings

from memorygw import gateway
from memorygw.gateway import MemorySource
from memorygw.models import Tenant
from memorygw.pages.shown import ShownMemory
from memorygw.testing import ScriptedModelServer
from tests.pages.conftest import MEMORY, Outline, Person, entry, section
from threads.models import Run, Thread, Turn
from usermemory.models import Fact

pytestmark = pytest.mark.django_db


# --- editing


def test_a_fact_is_edited(ada: Person, bob: Person) -> None:
    fact = ada.know("city", "Turin")
    bob.know("city", "Turin")
    form = entry(ada.get(), "Turin")
    assert f'action="{MEMORY}facts/{fact.pk}/"' in form
    ada.post(f"facts/{fact.pk}/", key="home", value="Rome\r\nEUR")
    assert ada.facts() == {"home": "Rome\nEUR"}
    told = ada.told()
    assert "Your change was saved." in told
    assert not [word for word in ("home", "Rome") if word in told]
    assert "Entered by hand" in entry(ada.get(), "Rome")
    assert bob.facts() == {"city": "Turin"}


def test_a_free_text_is_edited_without_a_key(ada: Person) -> None:
    [fact] = gateway.add_user_facts(Tenant.DEFAULT, ada.id, ["Plays the cello."])
    html = ada.get(f"facts/{fact.pk}/")
    assert "Plays the cello." in html
    assert 'name="key"' not in html
    ada.post(f"facts/{fact.pk}/", key="instrument", value="Plays the viola.")
    assert ada.facts() == {"": "Plays the viola."}


@pytest.mark.parametrize(
    ("field", "typed", "reason"),
    [
        ("key", "", "This field is required."),
        ("key", "\u200b", "Please enter something that can be read."),
        ("key", "k" * 51, "at most 50 characters (it has 51)"),
        ("key", "HOME", "There is an entry for this already."),
        ("key", "fact-0123456789ab", "This name cannot be used."),
        ("value", "  ", "This field is required."),
        ("value", "v" * 51, "at most 50 characters (it has 51)"),
        ("value", "4111 1111 1111 1111", "Passwords, keys and payment data are not remembered."),
        ("value", "a\x00b", "Null characters are not allowed."),
    ],
)
def test_what_is_refused_is_told_at_its_field_and_what_was_typed_stays(
    ada: Person, settings: Settings, field: str, typed: str, reason: str
) -> None:
    settings.MEMORYGW_MAX_FACT_CHARS = 50
    fact = ada.know("city", "Turin")
    ada.know("home", "here")
    kept = {"key": "a new key", "value": "a new value"}
    html = ada.post(f"facts/{fact.pk}/", 200, **(kept | {field: typed}))
    [at_field] = [part for part in html.split('<div class="field">')[1:] if f'name="{field}"' in part]
    assert reason in at_field.partition("</ul>")[0]
    assert f'aria-describedby="{fact.pk}-{field}_error"' in at_field
    assert 'aria-invalid="true"' in at_field
    other = "value" if field == "key" else "key"
    assert kept[other] in html
    assert typed in at_field
    assert "Not saved" in html
    assert ada.facts() == {"city": "Turin", "home": "here"}


def test_a_text_that_is_known_already_is_refused_at_its_field(ada: Person) -> None:
    first, _ = gateway.add_user_facts(Tenant.DEFAULT, ada.id, ["Plays the cello.", "Likes tea."])
    assert "There is an entry for this already." in ada.post(f"facts/{first.pk}/", 200, value="Likes tea.")


def test_without_a_cap_long_texts_are_taken(ada: Person, settings: Settings) -> None:
    settings.MEMORYGW_MAX_FACT_CHARS = 0
    fact = ada.know("city", "Turin")
    ada.post(f"facts/{fact.pk}/", key="city", value="v" * 5_000)
    assert len(ada.facts()["city"]) == 5_000


def test_what_was_not_changed_is_not_written(ada: Person) -> None:
    fact = ada.know("city", "one\ntwo")
    before = Fact.objects.values().get()
    ada.post(f"facts/{fact.pk}/", key="city", value="one\r\ntwo")
    assert Fact.objects.values().get() == before


def test_what_waits_or_is_archived_is_not_edited(ada: Person) -> None:
    for status in ("pending_review", "archived"):
        fact = ada.know("city", "Turin", status=status)
        ada.post(f"facts/{fact.pk}/", 404, key="city", value="Rome")
    assert not Fact.objects.filter(value="Rome").exists()


# --- forgetting


def test_one_fact_is_forgotten(ada: Person, bob: Person) -> None:
    fact = ada.know("city", "Turin")
    ada.know("drink", "tea")
    bob.know("city", "Turin")
    assert f'action="{MEMORY}facts/{fact.pk}/forget/"' in entry(ada.get(), "Turin")
    ada.post(f"facts/{fact.pk}/forget/")
    assert ada.facts() == {"drink": "tea"}
    assert "The fact was forgotten." in ada.told()
    assert bob.facts() == {"city": "Turin"}


def test_an_address_alone_changes_nothing(ada: Person) -> None:
    fact = ada.know("city", "Turin")
    for form in (f"facts/{fact.pk}/forget/", f"proposals/{fact.pk}/", "switch/"):
        assert ada.client.get(MEMORY + form).headers["Location"] == MEMORY
    ada.get("forget/")
    assert ada.facts() == {"city": "Turin"}


def test_everything_is_forgotten_after_a_tick(ada: Person, bob: Person) -> None:
    for person in (ada, bob):
        person.know("city", "Turin")
        person.know("drink", "tea")
        person.know("pet", "cat", status="pending_review")
        person.know("old", "x", status="archived")
    thread = ada.talk("Hello")
    html = ada.get("forget/")
    assert "2 facts are remembered" in html
    assert "1 proposal waits" in html
    assert "This field is required." in ada.post("forget/", 200)
    assert len(ada.facts()) == 2
    ada.post("forget/", sure="on")
    assert "Everything was forgotten." in ada.told()
    assert not Fact.objects.filter(owner_id=ada.id).exists()
    assert gateway.get_thread(Tenant.DEFAULT, ada.id, thread.pk)
    assert Fact.objects.filter(owner_id=bob.id).count() == 4


# --- what answers used


def ask(person: Person, model: ScriptedModelServer, text: str = "Hello", **options: Any) -> Any:
    return gateway.ask(Tenant.DEFAULT, person.id, text, **options)


def test_what_past_answers_used_is_shown_as_it_is_now(ada: Person, bob: Person, model: ScriptedModelServer) -> None:
    city, drink = (
        gateway.upsert_user_fact(Tenant.DEFAULT, ada.id, *said) for said in (("city", "Turin"), ("drink", "tea"))
    )
    assert not section(ada.get(), "answers")
    thread_id = ask(ada, model).thread_id
    gateway.rename_thread(Tenant.DEFAULT, ada.id, thread_id, "Small talk")
    used = section(ada.get(), "answers")
    for words in ("Small talk", "2 facts", "Turin", "tea"):
        assert words in used
    gateway.change_memory(Tenant.DEFAULT, ada.id, city.pk, value="Rome")
    gateway.delete_memory(Tenant.DEFAULT, ada.id, drink.pk)
    used = section(ada.get(), "answers")
    assert "Rome" in used
    assert "1 that is not remembered any more" in used
    assert not [word for word in ("Turin", "tea") if word in used]
    assert not section(bob.get(), "answers")


def test_what_a_persona_knows_for_all_is_neither_shown_nor_counted(ada: Person, model: ScriptedModelServer) -> None:
    persona = gateway.create_persona(Tenant.DEFAULT, "Coach", instructions="{memory}")
    gateway.set_persona_fact(Tenant.DEFAULT, persona.pk, "tone", "strict")
    ask(ada, model, persona="Coach")
    [run] = Run.objects.all()
    assert len(run.memories) == 1
    assert not section(ada.get(), "answers")
    gateway.upsert_user_fact(Tenant.DEFAULT, ada.id, "city", "Turin")
    ask(ada, model, persona="Coach")
    used = section(ada.get(), "answers")
    assert "1 fact<" in used
    assert "strict" not in used


def test_the_latest_twenty_answers_are_shown(ada: Person) -> None:
    fact = ada.know("city", "Turin")
    start = timezone.now() - timedelta(days=1)
    for number in range(25):
        thread = ada.talk("Hello", title=f"title {number}.")
        run = Run.objects.create(thread=thread, memories=[str(fact.pk)], first_seq=1, last_seq=1)
        Run.objects.filter(pk=run.pk).update(created_at=start + timedelta(minutes=number))
    unused = ada.talk("Hello", title="nothing used")
    Run.objects.create(thread=unused, memories=[], first_seq=1, last_seq=1)
    used = section(ada.get(), "answers")
    assert [int(number) for number in re.findall(r"title (\d+)\.", used)] == list(range(24, 4, -1))
    assert "nothing used" not in used


def test_of_very_many_facts_of_an_answer_some_are_only_counted(ada: Person) -> None:
    known = [ada.know(f"key {number}", "x") for number in range(60)]
    Run.objects.create(thread=ada.talk("Hello"), memories=[str(fact.pk) for fact in known], first_seq=1, last_seq=1)
    used = section(ada.get(), "answers")
    assert "60 facts" in used
    assert "10 more" in used


# --- taking it along


def test_the_data_is_downloaded(ada: Person, bob: Person) -> None:
    ada.know("city", "Turin")
    ada.talk("Hello from ada")
    bob.know("city", "Lisbon")
    response = ada.client.get(f"{MEMORY}memory.json")
    assert response.headers["Content-Type"] == "application/json"
    assert response.headers["Content-Disposition"] == 'attachment; filename="memory.json"'
    assert "no-store" in response.headers["Cache-Control"]
    assert response.streaming
    text = response.getvalue().decode()
    assert [fact["value"] for fact in json.loads(text)["facts"]] == ["Turin"]
    assert "Hello from ada" in text
    assert "Lisbon" not in text


# --- whatever is stored


HOSTILE = [
    "<script>alert(1)</script>",
    "</div></li><h1>{{ 1 }}{% now 'Y' %}",
    "\u202eolleh \u2066 \u200f",
    "\"'><img src=x onerror=alert(1)>",
    "e" + "\u0301" * 5_000,
    "x" * 100_000,
]


@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: repr(text[:12]))
def test_hostile_text_stays_text(ada: Person, settings: Settings, text: str) -> None:
    settings.MEMORYGW_MAX_FACT_CHARS = 0
    thread = ada.talk(text, title=text[:200].replace("\x00", ""))
    fact = ada.know(text[:5_000], text, source_thread=thread, source_seq=1)
    [free] = gateway.add_user_facts(Tenant.DEFAULT, ada.id, [f"{text} too"])
    ada.know("waits", text, status="pending_review")
    Run.objects.create(thread=thread, memories=[str(fact.pk), str(free.pk)], first_seq=1, last_seq=1)
    for address in ("", f"facts/{fact.pk}/", f"facts/{free.pk}/"):
        html = ada.client.get(MEMORY + address).content.decode()
        assert "<script" not in html
        assert "<img" not in html
        assert Outline(html).headings.count(1) == 1
        for quote in re.findall(r"<blockquote.*?>(.*?)</blockquote>", html, re.DOTALL):
            assert len(quote) < 2_000


@pytest.mark.parametrize(
    "content",
    [
        [{"type": "text", "text": "first"}, {"type": "image_url", "image_url": {"url": "x"}}],
        [{"type": "text"}],
        ["a", 1, None],
        {"text": ["x"]},
        7,
        True,
        [],
        "",
    ],
    ids=repr,
)
def test_a_quote_of_any_shape_is_shown(ada: Person, content: Any) -> None:
    thread = ada.talk("Hello")
    Turn.objects.update(content=content)
    ada.know("city", "Turin", source_thread=thread, source_seq=1)
    Outline(ada.client.get(MEMORY).content.decode())


def test_half_a_character_in_a_quote_is_no_text_of_a_page() -> None:
    # Unsaved: not every database stores one.
    turn = Turn(content=[{"type": "text", "text": "half \ud83d one"}])
    assert ShownMemory(Fact(), MemorySource(turn=turn)).quote == "half \ufffd one"


def test_what_is_no_id_among_the_facts_of_an_answer_counts_as_gone(ada: Person) -> None:
    thread = ada.talk("Hello")
    over = {"status": "completed", "finished_at": timezone.now(), "first_seq": 1, "last_seq": 1}
    Run.objects.create(thread=thread, memories=["no id"], **over)
    assert "1 that is not remembered any more" in section(ada.get(), "answers")


# --- how it is made


def test_every_control_has_a_label_and_every_id_is_there_once(ada: Person) -> None:
    for number in range(3):
        ada.know(f"key {number}", "x")
    ada.know("waits", "y", status="pending_review")
    fact = ada.know("city", "Turin", source_thread=ada.talk("Turin"), source_seq=1)
    Run.objects.create(thread=Thread.objects.get(), memories=[str(fact.pk)], first_seq=1, last_seq=1)
    pages = [ada.get(), ada.get(f"facts/{fact.pk}/"), ada.get("forget/"), ada.get(f"facts/{uuid4()}/", 404)]
    pages += [ada.post(f"facts/{fact.pk}/", 200, key="", value=""), ada.post("forget/", 200)]
    for html in pages:
        outline = Outline(html)
        assert outline.headings[0] == 1
        assert set(outline.headings[1:]) <= {2}
        assert len(set(outline.ids)) == len(outline.ids)
        assert set(outline.controls) <= outline.labelled
        assert outline.described <= set(outline.ids)


def test_the_page_says_where_one_is_and_who_and_signs_out(ada: Person) -> None:
    html = ada.get()
    assert f'<a href="{MEMORY}" aria-current="page">My memory</a>' in html
    assert "Signed in as ada" in html
    assert 'action="/logout/"' in html
    assert "aria-current" not in ada.get("forget/")
    ada.client.post("/logout/")
    assert ada.client.get(MEMORY).status_code == 302


def test_who_is_not_signed_in_sees_no_way_to_it() -> None:
    assert MEMORY not in Client().get("/login/").content.decode()


urlpatterns = [path("account/", include("memorygw.pages.urls"))]


@pytest.mark.urls("tests.pages.test_changes")
def test_it_stands_under_a_prefix_of_a_host_that_has_no_sign_out(ada: Person, settings: Settings) -> None:
    settings.LOGIN_URL = "/enter"
    fact = ada.know("city", "Turin")
    html = ada.client.get("/account/me/memory/").content.decode()
    assert "Turin" in html
    assert "Sign out" not in html
    assert set(re.findall(r'action="(/\w+/)', html)) == {"/account/"}
    response = ada.client.post(f"/account/me/memory/facts/{fact.pk}/forget/")
    assert response.headers["Location"] == "/account/me/memory/"
    assert ada.facts() == {}


def test_a_host_puts_its_own_template_in_the_place_of_a_part(ada: Person, settings: Settings, tmp_path: Any) -> None:
    part = tmp_path / "memorygw" / "pages" / "memory" / "fact.html"
    part.parent.mkdir(parents=True)
    part.write_text("<li>The host's way: {{ shown.value }}</li>")
    settings.TEMPLATES = [{**settings.TEMPLATES[0], "DIRS": [tmp_path, *settings.TEMPLATES[0]["DIRS"]]}]
    ada.know("city", "Turin")
    assert "The host's way: Turin" in ada.get()


def test_a_store_of_facts_reads_current_values_of_what_waits_alone(ada: Person) -> None:
    ada.know("drink", "tea")
    proposal = ada.know("drink", "coffee", status="pending_review")
    known = gateway.list_memories(Tenant.DEFAULT, ada.id)
    sources = gateway.get_sources_of(Tenant.DEFAULT, ada.id, [proposal, *known])
    assert [source.current_value for source in sources.values()] == ["tea", None]
