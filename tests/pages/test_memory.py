"""A person sees what is remembered about them, and it is theirs: to correct, to decide on, to forget, to take along."""

import re
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.db import DEFAULT_DB_ALIAS
from django.test import Client
from django.utils import timezone
from pytest_django import Settings

from memorygw import gateway
from memorygw.models import Tenant
from memorygw.pages import urls
from tests.admin.conftest import make_fact, queries
from tests.pages.conftest import MEMORY, Person, addresses, default, entry, section
from threads.models import Run, Thread
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
