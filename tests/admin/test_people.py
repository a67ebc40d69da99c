"""A person's page, and what can be done from there: forget, anonymise, export."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.utils import timezone

from memorygw import gateway
from memorygw.models import ErasureReceipt, Persona, Tenant
from tests.admin.conftest import WORD, Operator, make_fact, queries
from threads.models import Run, Thread
from threads.turns import TurnDraft
from usermemory.models import Fact, Owner, UserMemory
from workingmemory.models import WorkingMemoryState

pytestmark = pytest.mark.django_db

LIST = "memorygw_usermemory/usermemory/"
THREADS = "memorygw_threads/thread/"
FACTS = "memorygw_usermemory/fact/"


@pytest.fixture
def officer(operator: Callable[[str], Operator]) -> Operator:
    return operator("privacy officer")


@pytest.fixture
def ada(thread: Thread, fact: Fact) -> UserMemory:
    return UserMemory.objects.get(user_id="ada")


@pytest.fixture
def bob(tenant: Tenant, ada: UserMemory) -> UserMemory:
    """Somebody else of the tenant, of whom nothing may ever go along."""
    gateway.create_thread(tenant, "bob", title="Bob's")
    gateway.upsert_user_fact(tenant, "bob", "drink", "cocoa")
    return UserMemory.objects.get(user_id="bob")


def page(operator: Operator, person: UserMemory) -> str:
    return operator.get(f"{LIST}{person.pk}/change/")


def take_notes(thread: Thread, summary: str, *facts: Any) -> None:
    WorkingMemoryState.objects.update_or_create(thread=thread, defaults={"summary": summary, "facts": list(facts)})


def receipt_of(person: UserMemory) -> ErasureReceipt:
    return ErasureReceipt.objects.get(tenant_id=person.tenant_id)


# --- the list and the page


def test_people_are_found_by_their_id(reader: Operator, ada: UserMemory, bob: UserMemory) -> None:
    def found(**query: str) -> list[bool]:
        html = reader.get(LIST, **query)
        return [str(person.pk) in html for person in (ada, bob)]

    assert found() == [True, True]
    assert found(q="ada") == [True, False]
    assert found(q="ad") == [False, False]
    assert found(memory_enabled__exact="0") == [False, False]


def test_a_page_shows_what_is_known_said_noted_and_used_of_one_person(
    reader: Operator, tenant: Tenant, thread: Thread, fact: Fact, ada: UserMemory, bob: UserMemory, persona: Persona
) -> None:
    make_fact(tenant, owner=Owner.persona_user(persona.pk, "ada"), key="goal", value="a marathon")
    make_fact(tenant, key="pet", value="a parrot", status="pending_review")
    make_fact(tenant, key="old", value="long gone", status="archived")
    take_notes(thread, "They spoke of it.", "Plays on Sundays.")
    Run.objects.create(
        thread=thread,
        status="completed",
        finished_at=timezone.now(),
        first_seq=1,
        last_seq=4,
        memories=[str(fact.pk), str(bob.pk), "no id"],
    )
    html = page(reader, ada)
    for text in (
        f"the {WORD}",
        "a marathon",
        "a parrot",
        f"On the {WORD}",
        "They spoke of",
        "Plays on Sundays.",
    ):
        assert text in html
    used = html.partition("Given to the model lately")[2]
    assert f"the {WORD}" in used
    assert "and 2 that are gone" in used
    assert html.index("a parrot") < html.index("a marathon")
    assert "long gone" not in html
    assert "cocoa" not in html
    assert "Bob" not in html


def test_a_viewer_sees_that_there_is_something_and_no_word_of_it(
    viewer: Operator, thread: Thread, ada: UserMemory
) -> None:
    take_notes(thread, f"About the {WORD}.")
    html = page(viewer, ada)
    assert str(thread.pk) in html
    assert "Active" in html
    assert WORD not in html
    assert "Forget…" not in html
    assert not LogEntry.objects.exists()


def test_opening_a_page_is_noted(reader: Operator, ada: UserMemory) -> None:
    page(reader, ada)
    entry = LogEntry.objects.get()
    assert (entry.object_repr, entry.change_message) == (f"person {ada.pk}", "Opened.")


def test_a_page_leads_from_a_conversation_to_its_person(reader: Operator, thread: Thread, ada: UserMemory) -> None:
    assert f"/admin/{LIST}{ada.pk}/change/" in reader.get(f"{THREADS}{thread.pk}/change/")


def test_nobody_is_found_by_a_wrong_address(root: Operator) -> None:
    for address in ("nonsense", "00000000-0000-0000-0000-000000000000"):
        root.get(f"{LIST}{address}/change/", 302)


def test_hostile_ids_and_texts_are_only_text(root: Operator, tenant: Tenant) -> None:
    evil = '<script>alert("1")</script> \u202egnirts/?&#'
    thread = gateway.create_thread(tenant, evil, title=evil)
    gateway.append_turns(tenant, evil, thread.pk, [TurnDraft(role="user", content=evil)])
    gateway.upsert_user_fact(tenant, evil, evil, evil)
    take_notes(thread, evil, {"a": evil}, 7)
    person = UserMemory.objects.get()
    for html in (root.get(LIST), page(root, person), root.act(LIST, "forget_people", [person], 200)):
        assert "&lt;script&gt;" in html
        assert "<script>alert" not in html
    assert str(person.pk) in root.get(LIST, q=evil)


def test_memory_is_switched_off_and_on(editor: Operator, reader: Operator, tenant: Tenant, ada: UserMemory) -> None:
    for state, enabled in (("off", False), ("on", True)):
        editor.post(f"{LIST}{ada.pk}/change/", 302, memory=state)
        assert gateway.user_memory_enabled(tenant, "ada") == enabled
    assert "Memory switched off." in LogEntry.objects.values_list("change_message", flat=True)
    reader.post(f"{LIST}{ada.pk}/change/", 403, memory="off")
    editor.post(f"{LIST}{ada.pk}/change/", 403)
    editor.post(f"{LIST}{ada.pk}/change/", 403, memory="perhaps")
    assert gateway.user_memory_enabled(tenant, "ada")
    UserMemory.objects.update(erasing_at=timezone.now())
    editor.post(f"{LIST}{ada.pk}/change/", 302, memory="off")
    assert UserMemory.objects.get(pk=ada.pk).memory_enabled


def test_a_fact_is_edited_in_place_by_the_rules_of_all(
    editor: Operator, reader: Operator, fact: Fact, ada: UserMemory, settings: Any
) -> None:
    settings.MEMORYGW_MAX_FACT_CHARS = 50
    assert f'action="/admin/{FACTS}{fact.pk}/change/"' in page(editor, ada)
    assert 'name="value"' not in page(reader, ada)
    place = {"_person": str(ada.pk), "key": "plays"}
    html = editor.post(f"{FACTS}{fact.pk}/change/", 200, **place, value="much too long " * 10)
    assert "errorlist" in html
    assert "much too long" in html
    response = editor.client.post(f"/admin/{FACTS}{fact.pk}/change/", {**place, "value": "the viola"})
    assert response["Location"] == f"/admin/{LIST}{ada.pk}/change/#fact-{fact.pk}"
    fact.refresh_from_db()
    assert fact.value == "the viola"


def test_a_page_costs_the_same_whatever_there_is(
    editor: Operator, tenant: Tenant, thread: Thread, ada: UserMemory
) -> None:
    def cost() -> list[int]:
        works = (
            lambda: editor.get(LIST),
            lambda: page(editor, ada),
            lambda: editor.get(f"{THREADS}{thread.pk}/change/"),
        )
        return [len(queries(work)) for work in works]

    take_notes(thread, "x")
    over = {"status": "completed", "finished_at": timezone.now(), "first_seq": 1, "last_seq": 1}
    Run.objects.create(thread=thread, memories=[str(fact.pk) for fact in Fact.objects.all()], **over)
    few = cost()
    for number in range(30):
        other = gateway.create_thread(tenant, "ada", title=f"Number {number}")
        fact = make_fact(tenant, key=f"k{number}", source_thread=other, source_seq=1)
        take_notes(other, "x")
        Run.objects.create(thread=other, memories=[str(fact.pk)], **over)
        gateway.create_thread(tenant, f"user {number}")
    assert cost() == few
    assert max(few) <= 12


# --- forgetting, anonymising, exporting


@pytest.mark.django_db(transaction=True)
def test_a_person_is_forgotten_once_the_id_has_been_typed(
    officer: Operator, tenant: Tenant, ada: UserMemory, bob: UserMemory
) -> None:
    html = officer.act(LIST, "forget_people", [ada], 200)
    assert gateway.count_user_data(tenant, "ada")["turns"] == 4
    assert '<th scope="row">turns</th><td>4</td>' in html
    assert "backups" in html
    for typed in ("", "Ada", "bob"):
        assert "Nothing was done." in officer.act(LIST, "forget_people", [ada], 200, confirmation=typed)
    assert Thread.objects.filter(user_id="ada").exists()
    officer.act(LIST, "forget_people", [ada], 302, confirmation="ada")
    assert not any(gateway.count_user_data(tenant, "ada").values())
    receipt = receipt_of(ada)
    assert (receipt.mode, receipt.verified, receipt.requested_by) == ("delete", True, f"operator {officer.user.pk}")
    html = officer.get(f"memorygw/erasurereceipt/{receipt.pk}/change/")
    assert "Erased; the receipt:" in html
    assert "ada" not in html
    assert [fact.value for fact in gateway.get_user_facts(tenant, "bob")] == ["cocoa"]
    assert (str(receipt.pk), "Asked for.") in LogEntry.objects.values_list("object_id", "change_message")
    assert not LogEntry.objects.filter(object_id=str(ada.pk)).exists()


@pytest.mark.django_db(transaction=True)
def test_the_people_of_threads_are_anonymised_together(
    officer: Operator, tenant: Tenant, ada: UserMemory, bob: UserMemory
) -> None:
    gateway.open_session(tenant, None, "shared")
    rows = list(Thread.objects.all())
    officer.act(THREADS, "anonymize_people", rows, 302, confirmation="anonymise 2")
    assert set(ErasureReceipt.objects.values_list("mode", "verified")) == {("anonymize", True)}
    assert Thread.objects.filter(user_id__in=["ada", "bob"]).count() == 0
    assert Thread.objects.count() == 3
    assert "Erased; the receipt" in officer.messages(THREADS)


@pytest.mark.django_db(transaction=True)
def test_a_running_call_is_only_lost_by_force(
    officer: Operator, tenant: Tenant, thread: Thread, ada: UserMemory
) -> None:
    gateway.acquire_lease(tenant, "ada", thread.pk)
    officer.act(LIST, "forget_people", [ada], 302, confirmation="ada")
    assert "Somebody was not erased" in officer.messages(LIST)
    assert Thread.objects.filter(pk=thread.pk).exists()
    officer.act(LIST, "forget_people", [ada], 302, confirmation="ada", force="on")
    assert not Thread.objects.filter(pk=thread.pk).exists()


def test_an_id_that_cannot_be_typed_is_not_asked_for(officer: Operator, tenant: Tenant) -> None:
    gateway.create_thread(tenant, " \u200b")
    html = officer.act(LIST, "forget_people", [UserMemory.objects.get()], 200)
    assert "<bdi>forget 1</bdi>" in html


def test_an_export_is_the_document_of_one_person(officer: Operator, ada: UserMemory, bob: UserMemory) -> None:
    chosen = {"action": "export_person", "_selected_action": str(ada.pk)}
    assert "Download" in officer.post(LIST, 200, **chosen)
    assert not LogEntry.objects.exists()
    response = officer.client.post(f"/admin/{LIST}", {**chosen, "confirmation": ""})
    assert response["Content-Disposition"] == 'attachment; filename="memory.json"'
    text = b"".join(response.streaming_content).decode()  # type: ignore[attr-defined]
    assert json.loads(text)["user_id"] == "ada"
    assert WORD in text
    assert "cocoa" not in text
    assert LogEntry.objects.get().change_message == "Exported."
    officer.act(LIST, "export_person", [ada, bob], 302)
    assert "At most 1 at a time." in officer.messages(LIST)


def test_too_many_people_and_nobody_are_refused(officer: Operator, tenant: Tenant) -> None:
    nobody = gateway.open_session(tenant, None, "shared")
    officer.act(THREADS, "forget_people", [nobody], 302)
    assert "about nobody" in officer.messages(THREADS)
    many = [gateway.create_thread(tenant, f"user {number}") for number in range(21)]
    officer.act(THREADS, "forget_people", many, 302, confirmation="forget 21")
    assert "At most 20 at a time." in officer.messages(THREADS)
    assert Thread.objects.count() == 22


def test_each_right_has_its_permission(editor: Operator, reader: Operator, thread: Thread, ada: UserMemory) -> None:
    for operator in (editor, reader):
        for path, row in ((LIST, ada), (THREADS, thread)):
            for action in ("forget_people", "anonymize_people", "export_person", "forget_threads"):
                chosen = {"action": action, "_selected_action": str(row.pk), "confirmation": "ada"}
                html = operator.client.post(f"/admin/{path}", chosen).content.decode()
                assert "Download" not in html
                assert action not in operator.get(path)
    assert Thread.objects.filter(pk=thread.pk).exists()
    assert not ErasureReceipt.objects.exists()


def test_threads_are_forgotten_with_what_was_learned_from_them_or_without(
    officer: Operator, tenant: Tenant, thread: Thread, fact: Fact, bob: UserMemory
) -> None:
    other = gateway.create_thread(tenant, "ada")
    kept = make_fact(tenant, key="kept", source_thread=other, source_seq=1)
    html = officer.act(THREADS, "forget_threads", [thread], 200)
    assert '<th scope="row">turns</th><td>4</td>' in html
    officer.act(THREADS, "forget_threads", [thread], 200, confirmation="forget")
    assert Thread.objects.filter(pk=thread.pk).exists()
    officer.act(THREADS, "forget_threads", [thread], 302, confirmation="forget 1", learned="on")
    officer.act(THREADS, "forget_threads", [other], 302, confirmation="forget 1")
    assert not Thread.objects.filter(user_id="ada").exists()
    assert list(Fact.objects.filter(owner_id="ada")) == [kept]
    assert Thread.objects.filter(user_id="bob").exists()


def test_a_thread_that_is_held_is_not_forgotten(officer: Operator, tenant: Tenant, thread: Thread) -> None:
    gateway.acquire_lease(tenant, "ada", thread.pk)
    officer.act(THREADS, "forget_threads", [thread], 302, confirmation="forget 1")
    assert "1 not:" in officer.messages(THREADS)
    assert Thread.objects.filter(pk=thread.pk).exists()
