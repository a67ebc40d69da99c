"""A person sees what is remembered about them, and it is theirs: to correct, to decide on, to forget, to take along."""

import json
import re
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.db import DEFAULT_DB_ALIAS
from django.test import Client
from django.urls import include, path
from django.utils import timezone
from pytest_django import Settings

from memorygw import gateway
from memorygw.gateway import MemorySource
from memorygw.models import Tenant
from memorygw.pages import urls
from memorygw.pages.shown import ShownMemory
from memorygw.testing import ScriptedModelServer
from tests.admin.conftest import make_fact, queries
from tests.pages.conftest import MEMORY, Outline, Person, addresses, default, entry, section
from threads.models import Run, Thread, Turn
from usermemory.models import Fact, Owner, UserMemory

pytestmark = pytest.mark.django_db


def seen(html: str) -> str:
    [seen] = re.findall(r'name="seen" value="([0-9a-f]{64})"', html)
    return str(seen)


def decide(person: Person, fact: Fact, decision: str, status: int = 302, *, shown: str | None = None) -> None:
    """On what the page shows now, or on what it has shown."""
    shown = seen(person.get()) if shown is None else shown
    person.post(f"proposals/{fact.pk}/", status, decision=decision, seen=shown)


# --- who may see it


@pytest.mark.parametrize("address", addresses())
def test_nobody_sees_it_who_is_not_signed_in(ada: Person, address: str) -> None:
    ada.know("city", "Turin")
    for response in (Client().get(address), Client().post(address, {"sure": "on", "memory": "off"})):
        assert (response.status_code, response.headers["Location"]) == (302, f"/login/?next={address}")
        assert "no-store" in response.headers["Cache-Control"]
    assert ada.facts() == {"city": "Turin"}


@pytest.mark.parametrize("address", addresses())
def test_nothing_of_it_is_kept_by_a_cache(ada: Person, address: str) -> None:
    assert "no-store" in ada.client.get(address).headers["Cache-Control"]


def test_no_page_runs_inside_a_transaction_of_the_host() -> None:
    assert {DEFAULT_DB_ALIAS} == {
        alias for pattern in urls.urlpatterns for alias in getattr(pattern.callback, "_non_atomic_requests", {""})
    }


def test_a_form_needs_its_token(ada: Person) -> None:
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(ada.user)
    assert strict.post(f"{MEMORY}switch/", {"memory": "off"}).status_code == 403
    assert gateway.user_memory_enabled(Tenant.DEFAULT, ada.id)


def test_each_sees_their_own_alone(ada: Person, bob: Person, other_tenant: Tenant) -> None:
    ada.know("city", "Turin", source_thread=ada.talk("I live in Turin."), source_seq=1)
    ada.know("drink", "tea", status="pending_review")
    make_fact(other_tenant, owner=Owner.user(bob.id), key="city", value="Lisbon")
    assert {"Turin", "tea", "Plans"} == {word for word in ("Turin", "tea", "Plans", "Lisbon") if word in ada.get()}
    assert not [word for word in ("Turin", "tea", "Plans", "Lisbon") if word in bob.get()]


def test_the_identity_setting_says_who_it_is(ada: Person, other_tenant: Tenant, settings: Settings) -> None:
    gateway.upsert_user_fact(other_tenant, "customer 7", "city", "Lisbon")
    assert "Lisbon" not in ada.get()
    settings.MEMORYGW_IDENTITY = "tests.pages.test_memory.customer"
    assert "Lisbon" in ada.get()


def customer(request: Any) -> tuple[str, str]:
    return "globex", "customer 7"


def nobody(request: Any) -> tuple[str, str]:
    return Tenant.DEFAULT, ""


def test_who_is_nobody_is_told_and_no_error_is_raised(ada: Person, settings: Settings) -> None:
    settings.MEMORYGW_IDENTITY = "tests.pages.test_memory.nobody"
    assert "That did not work" in ada.get("", 400)


@pytest.mark.parametrize("known", [{}, {"status": "pending_review"}, {"status": "archived"}])
def test_what_is_somebody_elses_is_not_found(ada: Person, bob: Person, known: dict[str, str]) -> None:
    fact = bob.know("city", "Turin", **known)
    before = Fact.objects.values().get()
    for pk in (fact.pk, uuid4()):
        for html in (
            ada.get(f"facts/{pk}/", 404),
            ada.post(f"facts/{pk}/", 404, key="city", value="Rome"),
            ada.post(f"facts/{pk}/forget/", 404),
            ada.post(f"proposals/{pk}/", 404, decision="approve", seen="0" * 64),
            ada.post(f"proposals/{pk}/", 404, decision="reject", seen="0" * 64),
            ada.get("", 404, before=str(pk)),
        ):
            assert "This is not here" in html
            assert "Turin" not in html
    assert Fact.objects.values().get() == before


# --- on and off


def test_memory_is_switched_off_and_on(ada: Person, bob: Person) -> None:
    ada.know("city", "Turin")
    assert "Memory is on." in ada.get()
    ada.post("switch/", memory="off")
    assert "Memory is off now." in ada.told()
    assert "Memory is off." in ada.get()
    assert "Turin" in ada.get()
    assert not gateway.user_memory_enabled(Tenant.DEFAULT, ada.id)
    assert gateway.user_memory_enabled(Tenant.DEFAULT, bob.id)
    ada.post("switch/", memory="on")
    assert gateway.user_memory_enabled(Tenant.DEFAULT, ada.id)


def test_what_is_no_position_of_the_switch_changes_nothing(ada: Person) -> None:
    ada.post("switch/", memory="maybe")
    ada.post("switch/")
    assert gateway.user_memory_enabled(Tenant.DEFAULT, ada.id)


def test_while_memory_is_off_facts_are_edited_and_forgotten(ada: Person) -> None:
    city, drink = ada.know("city", "Turin"), ada.know("drink", "tea")
    gateway.set_user_memory(Tenant.DEFAULT, ada.id, enabled=False)
    ada.post(f"facts/{city.pk}/", key="city", value="Rome")
    ada.post(f"facts/{drink.pk}/forget/")
    assert ada.facts() == {"city": "Rome"}


@pytest.mark.parametrize("address", addresses())
def test_who_is_being_erased_is_told_so(ada: Person, address: str) -> None:
    fact = ada.know("city", "Turin")
    gateway.set_user_memory(Tenant.DEFAULT, ada.id, enabled=True)
    UserMemory.objects.update(erasing_at=timezone.now())
    assert "Your memory is being erased" in ada.get("", 409)
    changes: dict[str, dict[str, str]] = {
        "switch/": {"memory": "off"},
        f"facts/{fact.pk}/": {"key": "city", "value": "Rome"},
        "forget/": {"sure": "on"},
    }
    for form, data in changes.items():
        assert "Your memory is being erased" in ada.post(form, 409, **data)
    assert ada.client.get(address).status_code < 500
    assert ada.facts() == {"city": "Turin"}


# --- what waits


def test_a_proposal_is_shown_beside_what_is_so_now_with_its_quote(ada: Person) -> None:
    ada.know("drink", "tea")
    thread = ada.talk("I have come to like coffee.", title="Breakfast")
    ada.know("drink", "coffee", status="pending_review", source_thread=thread, source_seq=1)
    shown = section(ada.get(), "proposals")
    for words in ("drink", "tea", "coffee", "I have come to like coffee.", "Breakfast", "Approve", "Reject"):
        assert words in shown
    assert "coffee" not in section(ada.get(), "facts")


def test_without_a_proposal_there_is_no_word_of_proposals(ada: Person) -> None:
    assert not section(ada.get(), "proposals")


def test_a_proposal_is_approved(ada: Person, bob: Person) -> None:
    ada.know("drink", "tea")
    bob.know("drink", "milk")
    proposal = ada.know("drink", "coffee", status="pending_review")
    decide(ada, proposal, "approve")
    assert ada.facts() == {"drink": "coffee"}
    told = ada.told()
    assert "The proposal was approved." in told
    assert not [word for word in ("drink", "coffee") if word in told]
    assert bob.facts() == {"drink": "milk"}


def test_a_proposal_is_rejected(ada: Person) -> None:
    ada.know("drink", "tea")
    proposal = ada.know("drink", "coffee", status="pending_review")
    decide(ada, proposal, "reject")
    assert ada.facts() == {"drink": "tea"}
    assert "The proposal was rejected." in ada.told()
    proposal.refresh_from_db()
    assert (proposal.status, proposal.rejected) == ("archived", True)


def test_a_proposed_deletion_is_shown_as_such_and_approved(ada: Person) -> None:
    ada.know("drink", "tea")
    proposal = ada.know("drink", "tea", status="pending_review", operation="delete")
    assert "Proposed to be forgotten" in section(ada.get(), "proposals")
    decide(ada, proposal, "approve")
    assert ada.facts() == {}


def test_what_changed_since_it_was_shown_is_not_decided_on(ada: Person) -> None:
    proposal = ada.know("drink", "coffee", status="pending_review")
    shown = seen(ada.get())
    Fact.objects.update(value="gin")
    for decision in ("approve", "reject"):
        decide(ada, proposal, decision, shown=shown)
        assert "Nothing was done" in ada.told()
        decide(ada, proposal, decision, shown="")
        assert "Nothing was done" in ada.told()
    assert Fact.objects.get().status == "pending_review"
    decide(ada, proposal, "approve")
    assert ada.facts() == {"drink": "gin"}


def test_what_was_decided_on_already_is_not_decided_on_again(ada: Person) -> None:
    proposal = ada.know("drink", "coffee", status="pending_review")
    shown = seen(ada.get())
    decide(ada, proposal, "approve")
    decide(ada, proposal, "reject", shown=shown)
    assert "Nothing was done" in ada.told()
    assert ada.facts() == {"drink": "coffee"}


def test_what_is_no_decision_decides_nothing(ada: Person) -> None:
    proposal = ada.know("drink", "coffee", status="pending_review")
    decide(ada, proposal, "perhaps")
    assert Fact.objects.get().status == "pending_review"


def test_where_others_decide_a_proposal_is_only_read(ada: Person, settings: Settings) -> None:
    proposal = ada.know("drink", "coffee", status="pending_review")
    shown = seen(ada.get())
    settings.MEMORYGW_USER_CAN_APPROVE = False
    html = section(ada.get(), "proposals")
    assert "coffee" in html
    assert "<form" not in html
    decide(ada, proposal, "approve", 403, shown=shown)
    assert Fact.objects.get().status == "pending_review"


def test_long_proposals_are_shown_in_full(ada: Person) -> None:
    ada.know("likes", "coffee, " * 500 + "and gin", status="pending_review")
    assert "and gin" in section(ada.get(), "proposals")


# --- what is known


def test_a_fact_is_shown_with_where_it_comes_from_and_since_when(ada: Person) -> None:
    thread = ada.talk("I live in Turin, as you know.", title="Moving house")
    fact = ada.know("city", "Turin", source_thread=thread, source_seq=1)
    Fact.objects.update(created_at="2026-05-03T10:00Z")
    Thread.objects.update(created_at="2026-05-02T10:00Z")
    shown = entry(ada.get(), "Turin")
    for words in ("city", "Moving house", "May 2, 2026", "I live in Turin, as you know.", "since May 3, 2026"):
        assert words in shown
    assert str(fact.pk) in shown


def test_where_a_fact_comes_from_is_told_in_every_case(ada: Person) -> None:
    thread = ada.talk("Hello", title="")
    gateway.upsert_user_fact(Tenant.DEFAULT, ada.id, "written", "1")
    ada.know("unquoted", "2", source_thread=thread)
    ada.know("changed", "3", source_thread=thread, origin="manual")
    ada.know("thread gone", "4")
    html = ada.get()
    assert "Entered by hand" in entry(html, ">written<")
    assert re.search(r"Learned from\s+a conversation without a title", entry(html, "unquoted"))
    assert "You said" not in entry(html, "unquoted")
    assert "Changed by hand, first learned from" in entry(html, ">changed<")
    assert "a conversation that is not kept" in entry(html, "thread gone")


def test_a_turn_that_was_forgotten_is_not_quoted(ada: Person) -> None:
    thread = ada.talk("I live in Turin.")
    ada.know("city", "Rome", source_thread=thread, source_seq=1)
    assert "I live in Turin." in ada.get()
    [turn] = gateway.get_turns(Tenant.DEFAULT, ada.id, thread.pk)
    gateway.forget_turn(Tenant.DEFAULT, ada.id, thread.pk, turn.pk)
    html = ada.get()
    assert "I live in Turin." not in html
    assert "Rome" in html


def test_a_conversation_that_the_host_has_deleted_is_not_named(ada: Person) -> None:
    ada.know("city", "Rome", source_thread=ada.talk("I live in Turin."), source_seq=1)
    assert "I live in Turin." in ada.get()
    Thread.objects.update(deleted_at=timezone.now())
    html = ada.get()
    assert not [word for word in ("I live in Turin.", "Plans") if word in html]
    assert "a conversation that is not kept" in html


def test_what_a_persona_keeps_about_a_person_is_read_and_what_it_keeps_for_all_is_not_shown(ada: Person) -> None:
    persona = gateway.create_persona(Tenant.DEFAULT, "Coach")
    fact = make_fact(default(), owner=Owner.persona_user(persona.pk, ada.id), key="goal", value="marathon")
    gateway.set_persona_fact(Tenant.DEFAULT, persona.pk, "tone", "strict")
    html = ada.get()
    assert "<form" not in entry(html, "marathon")
    assert "strict" not in html
    ada.get(f"facts/{fact.pk}/", 404)
    ada.post(f"facts/{fact.pk}/", 404, key="goal", value="sprint")
    ada.post(f"facts/{fact.pk}/forget/", 404)
    assert Fact.objects.get(pk=fact.pk).value == "marathon"


def test_what_is_archived_or_too_old_is_not_shown(ada: Person, settings: Settings) -> None:
    ada.know("city", "Turin", status="archived")
    ada.know("drink", "tea")
    assert ("Turin" in ada.get(), "tea" in ada.get()) == (False, True)
    Fact.objects.update(updated_at=timezone.now() - timedelta(days=40))
    settings.MEMORYGW_RETENTION_DAYS = {"facts": 30}
    assert "Nothing is remembered about you yet." in ada.get()


def test_fifty_facts_are_a_page_and_a_link_leads_to_the_older_ones(ada: Person, bob: Person) -> None:
    facts = [ada.know(f"key {number}", f"value {number}.") for number in range(120)]
    bob.know("city", "Turin")
    pages, links = [], [""]
    while links:
        html = ada.client.get(MEMORY + links[0]).content.decode()
        pages.append([int(number) for number in re.findall(r"value (\d+)\.</div>", section(html, "facts"))])
        links = re.findall(r'rel="next" href="([^"#]+)#', html)
    assert pages == [list(range(119, 69, -1)), list(range(69, 19, -1)), list(range(19, -1, -1))]
    assert "To the newest" in html
    assert "Nothing older" in ada.get(before=str(facts[0].pk))


def test_a_change_leads_back_to_the_page_that_it_was_made_on(ada: Person) -> None:
    first, *_, last = [ada.know(f"key {number}", "x") for number in range(60)]
    shown = entry(ada.get(before=str(last.pk)), ">key 20<")
    assert f'name="before" value="{last.pk}"' in shown
    for form in (f"facts/{first.pk}/", f"facts/{first.pk}/forget/"):
        response = ada.client.post(MEMORY + form, {"key": "k", "value": "y", "before": str(last.pk)})
        assert response.headers["Location"] == f"{MEMORY}?before={last.pk}"
    strange = ada.client.post(f"{MEMORY}switch/", {"before": "//evil.example/?x=1#"})
    assert strange.headers["Location"] == f"{MEMORY}?before=%2F%2Fevil.example%2F%3Fx%3D1%23"


def test_a_page_takes_as_many_queries_for_fifty_facts_as_for_three(ada: Person) -> None:
    def learn(number: int) -> None:
        for source in ({"source_thread": ada.talk(f"said {number}"), "source_seq": 1}, {}):
            ada.know(f"key {number} {len(source)}", f"value {number}", **source)
        ada.know(f"key {number} 0", f"new {number}", status="pending_review")
        thread = Thread.objects.latest("created_at")
        facts = Fact.objects.active().values_list("pk", flat=True)
        Run.objects.create(thread=thread, memories=[str(pk) for pk in facts], first_seq=1, last_seq=1)

    for number in range(2):
        learn(number)
    few = queries(ada.get)
    for number in range(2, 25):
        learn(number)
    html = ada.get()
    assert html.count("<summary>Edit") == 50
    assert html.count("<blockquote") == 25
    many = queries(ada.get)
    assert len(many) == len(few) < 20, many


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


@pytest.mark.urls("tests.pages.test_memory")
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
