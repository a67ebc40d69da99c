"""What is known is found, corrected and taken away, by the rules that hold for everybody."""

import re
from collections.abc import Callable
from datetime import timedelta
from unittest.mock import ANY

import pytest
from django.utils import timezone
from pytest_django import Settings

from memorygw import gateway
from memorygw.exceptions import NotPendingError
from memorygw.models import Persona, Tenant
from tests.admin.conftest import WORD, Operator, make_fact, queries
from threads.models import Thread
from usermemory.models import Fact, Owner, UserMemory
from usermemory.review import content_hash

pytestmark = pytest.mark.django_db

LIST = "memorygw_usermemory/fact/"


@pytest.fixture
def tea(tenant: Tenant) -> Fact:
    fact: Fact = gateway.upsert_user_fact(tenant, "ada", "drink", "tea")
    return fact


def change(operator: Operator, fact: Fact, status: int = 302, **data: str) -> str:
    return operator.post(f"{LIST}{fact.pk}/change/", status, **{"key": fact.key, "value": fact.value, **data})


def known(tenant: Tenant, user: str = "ada") -> dict[str, str]:
    return {fact.key: fact.value for fact in gateway.get_user_facts(tenant, user)}


# --- the list


def test_facts_are_found_by_whom_they_are_about_or_by_id(
    reader: Operator, tenant: Tenant, other_tenant: Tenant, persona: Persona, tea: Fact
) -> None:
    made = [
        tea,
        make_fact(tenant, owner=Owner.user("bob"), key="drink", status="pending_review"),
        make_fact(tenant, owner=Owner.persona_user(persona.pk, "ada"), key="with coach"),
        make_fact(tenant, owner=Owner.persona(persona.pk), key="of coach", origin="tool"),
        make_fact(other_tenant, value="a free text"),
    ]

    def found(**query: str) -> list[int]:
        html = reader.get(LIST, **query)
        return [number for number, fact in enumerate(made) if str(fact.pk) in html]

    assert found() == [0, 1, 2, 3, 4]
    assert found(q="ada") == [0, 2, 4]
    assert found(q=str(persona.pk)) == [3]
    assert found(q=str(made[1].pk)) == [1]
    assert found(q="drink") == []
    assert found(status__exact="pending_review") == [1]
    assert found(scope__exact="persona_user") == [2]
    assert found(origin__exact="tool") == [3]
    assert found(kind__exact="text") == [4]
    assert found(persona=str(persona.pk)) == [2, 3]
    assert found(confidence="low") == []
    Fact.objects.filter(pk=made[1].pk).update(confidence=0.4)
    assert [found(confidence=level) for level in ("low", "medium", "high")] == [[1], [], [0, 2, 3, 4]]
    assert found(tenant__id__exact=str(other_tenant.pk)) == [4]


def test_facts_whose_time_is_over_are_hidden(
    reader: Operator, tenant: Tenant, persona: Persona, tea: Fact, settings: Settings
) -> None:
    shared = make_fact(tenant, owner=Owner.persona(persona.pk), key="of coach")
    Fact.objects.update(updated_at=timezone.now() - timedelta(days=40))
    settings.MEMORYGW_RETENTION_DAYS = {"facts": 30}
    html = reader.get(LIST)
    assert str(tea.pk) not in html
    assert str(shared.pk) in html
    reader.get(f"{LIST}{tea.pk}/change/", 302)


# --- changing


def test_a_fact_is_corrected_by_hand(editor: Operator, tenant: Tenant) -> None:
    fact = make_fact(tenant, key="drink", value="tea", confidence=0.6, source_seq=1)
    change(editor, fact, key="Drink", value="coffee")
    assert known(tenant) == {"Drink": "coffee"}
    fact.refresh_from_db()
    assert (fact.origin, fact.source_seq, fact.confidence) == ("manual", None, 0.6)


def test_what_the_gateway_refuses_is_told_at_the_field_and_not_lost(
    editor: Operator, tenant: Tenant, tea: Fact, settings: Settings
) -> None:
    gateway.upsert_user_fact(tenant, "ada", "home", "Turin")
    settings.MEMORYGW_MAX_FACT_CHARS = 50
    refused = {
        "value": [" ", "v" * 51, "4111 1111 1111 1111"],
        "key": ["HOME", "fact-0123456789ab"],
    }
    for field, values in refused.items():
        for value in values:
            html = change(editor, tea, 200, **{field: value})
            row = html.partition(f'field-{field}"')[0].rpartition("<div")[2] + html.partition(f"field-{field}")[2]
            assert "errorlist" in row.partition('<div class="form-row')[0]
            assert value.strip() in html
    assert known(tenant) == {"drink": "tea", "home": "Turin"}


def test_nul_is_refused_and_line_breaks_are_ours(editor: Operator, tenant: Tenant, tea: Fact) -> None:
    change(editor, tea, 200, value="t\x00a")
    change(editor, tea, value="one\r\ntwo")
    assert known(tenant) == {"drink": "one\ntwo"}
    before = Fact.objects.get(pk=tea.pk).updated_at
    change(editor, tea, value="one\r\ntwo")
    assert Fact.objects.get(pk=tea.pk).updated_at == before


def test_a_free_text_has_no_key_to_change(editor: Operator, tenant: Tenant) -> None:
    [fact] = gateway.add_user_facts(tenant, "ada", ["Plays the cello."])
    assert 'name="key"' not in editor.get(f"{LIST}{fact.pk}/change/")
    change(editor, fact, key="instrument", value="Plays the viola.")
    fact.refresh_from_db()
    assert (fact.key, fact.value) == ("", "Plays the viola.")


def test_a_fact_of_a_persona_is_set_and_removed_as_such(editor: Operator, tenant: Tenant, persona: Persona) -> None:
    fact = gateway.set_persona_fact(tenant, persona.pk, "tone", "kind")
    change(editor, fact, key="mood", value="strict")
    fact.refresh_from_db()
    assert (fact.key, fact.value) == ("tone", "strict")
    assert "errorlist" in change(editor, fact, 200, value="4111 1111 1111 1111")
    editor.post(f"{LIST}{fact.pk}/delete/", post="yes")
    assert not Fact.objects.exists()


def test_what_has_no_function_of_the_gateway_is_only_read(editor: Operator, tenant: Tenant, persona: Persona) -> None:
    made = [
        make_fact(tenant, owner=Owner.persona_user(persona.pk, "ada"), key="with coach"),
        make_fact(tenant, owner=Owner.persona(persona.pk), value="a text of coach"),
        make_fact(tenant, owner=Owner.persona(persona.pk), key="proposed", status="pending_review"),
    ]
    for fact in made:
        assert 'name="value"' not in editor.get(f"{LIST}{fact.pk}/change/")
        change(editor, fact, 403, value="new")
        editor.post(f"{LIST}{fact.pk}/delete/", 403, post="yes")
    proposed = make_fact(tenant, key="drink", status="pending_review", operation="delete")
    change(editor, proposed, 403, value="new")
    assert Fact.objects.filter(value="new").count() == 0


def test_a_fact_in_any_state_is_deleted(editor: Operator, tenant: Tenant, tea: Fact) -> None:
    archived = make_fact(tenant, key="old", status="archived")
    for fact in (tea, archived):
        editor.post(f"{LIST}{fact.pk}/delete/", post="yes")
    assert not Fact.objects.exists()
    editor.post(f"{LIST}{tea.pk}/delete/", 302, post="yes")


def test_nothing_is_deleted_in_bulk_past_the_gateway(editor: Operator, tea: Fact) -> None:
    editor.try_to(LIST, "delete_selected", tea)
    assert Fact.objects.get() == tea


def test_a_privacy_officer_deletes_and_does_not_edit(operator: Callable[[str], Operator], tea: Fact) -> None:
    officer = operator("privacy officer")
    change(officer, tea, 403, value="coffee")
    officer.post(f"{LIST}{tea.pk}/delete/", post="yes")
    assert not Fact.objects.exists()


def test_nothing_is_written_about_somebody_who_is_being_erased(editor: Operator, tenant: Tenant, tea: Fact) -> None:
    UserMemory.objects.update(erasing_at=timezone.now())
    assert "errorlist" in change(editor, tea, 200, value="coffee")
    assert Fact.objects.get().value == "tea"


# --- reviewing


REVIEW = f"{LIST}review/"


def seen(html: str) -> dict[str, str]:
    """The fields by which a page says what it shows."""
    return dict(re.findall(r'name="(seen-[0-9a-f-]+)" value="([0-9a-f]{64})"', html))


def decide(operator: Operator, decision: str, facts: list[Fact], html: str = "") -> None:
    """Decide on facts as they are shown, in the queue unless on another page."""
    choices = {f"decide-{fact.pk}": decision for fact in facts}
    operator.post(REVIEW, 302, **seen(html or operator.get(REVIEW)), **choices)


def statuses(*facts: Fact) -> list[str]:
    return [Fact.objects.get(pk=fact.pk).status for fact in facts]


def test_the_queue_shows_what_waits_beside_what_is_known_and_what_was_said(
    editor: Operator, tenant: Tenant, tea: Fact, thread: Thread
) -> None:
    waiting = make_fact(
        tenant, key="drink", value="coffee, " * 50, status="pending_review", source_thread=thread, source_seq=1
    )
    gone = make_fact(tenant, key="home", value="Turin", status="pending_review", operation="delete")
    html = editor.get(REVIEW)
    assert html.index(str(waiting.pk)) < html.index(str(gone.pk))
    assert ("coffee, " * 50).strip() in html
    beside = html.partition(">Now</p>")[2].partition("</fieldset>")[0]
    assert "tea" in beside
    assert f"I play the {WORD}." in beside
    assert "To be forgotten" in html
    assert html.count('value="later" checked') == 2
    assert "Review what waits" in editor.get(LIST)


def test_a_turn_that_is_hidden_from_its_user_is_not_quoted(
    editor: Operator, tenant: Tenant, thread: Thread, settings: Settings
) -> None:
    make_fact(tenant, key="drink", value="coffee", status="pending_review", source_thread=thread, source_seq=1)
    said, long_ago = f"I play the {WORD}.", timezone.now() - timedelta(days=40)
    assert said in editor.get(REVIEW)
    Thread.objects.update(updated_at=long_ago)
    settings.MEMORYGW_RETENTION_DAYS = {"threads": 30}
    assert said not in editor.get(REVIEW)
    settings.MEMORYGW_RETENTION_DAYS = {"threads": 30, "tenants": {tenant.name: {"threads": 60}}}
    assert said in editor.get(REVIEW)
    Thread.objects.update(deleted_at=long_ago)
    html = editor.get(REVIEW)
    assert said not in html
    assert "coffee" in html


def test_what_waits_is_approved_or_rejected_or_left(
    editor: Operator, tenant: Tenant, tea: Fact, settings: Settings, persona: Persona
) -> None:
    settings.MEMORYGW_USER_CAN_APPROVE = False
    drink, home, later = (make_fact(tenant, key=key, status="pending_review") for key in ("drink", "home", "later"))
    coach = make_fact(tenant, owner=Owner.persona_user(persona.pk, "ada"), key="goal", status="pending_review")
    choices = {f"decide-{drink.pk}": "approve", f"decide-{coach.pk}": "approve"}
    choices |= {f"decide-{home.pk}": "reject", f"decide-{later.pk}": "later"}
    editor.post(REVIEW, 302, **seen(editor.get(REVIEW)), **choices)
    assert statuses(drink, coach, home, later, tea) == ["active", "active", "archived", "pending_review", "archived"]
    assert known(tenant) == {"drink": "x"}
    html = editor.get(REVIEW)
    assert "3 decided." in html
    assert [str(fact.pk) in html for fact in (drink, later)] == [False, True]


def test_several_are_chosen_in_the_list_and_decided_on_one_page(editor: Operator, tenant: Tenant, tea: Fact) -> None:
    one, two, other = (make_fact(tenant, key=key, status="pending_review") for key in ("one", "two", "other"))
    html = editor.act(LIST, "reject", [one, two, tea], 200)
    assert [str(fact.pk) in html for fact in (one, two, other, tea)] == [True, True, False, False]
    assert html.count('value="reject" checked') == 2
    decide(editor, "reject", [one, two], html)
    assert statuses(one, two, other, tea) == ["archived", "archived", "pending_review", "active"]


def test_what_changed_since_it_was_shown_is_not_decided(editor: Operator, tenant: Tenant) -> None:
    waiting = make_fact(tenant, key="drink", value="tea", status="pending_review")
    html = editor.get(REVIEW)
    Fact.objects.update(value="poison")
    decide(editor, "approve", [waiting], html)
    assert statuses(waiting) == ["pending_review"]
    assert "1 not: changed" in editor.get(REVIEW)


def test_what_was_not_shown_is_not_decided(editor: Operator, tenant: Tenant) -> None:
    shown, other = (make_fact(tenant, key=key, status="pending_review") for key in ("one", "two"))
    html = editor.act(LIST, "approve", [shown], 200)
    decide(editor, "approve", [shown, other], html)
    editor.post(REVIEW, 302, **{f"decide-{other.pk}": "approve", f"seen-{other.pk}": ""})
    editor.post(REVIEW, 302, **{"decide-nothing": "approve", "seen-nothing": "x"})
    assert statuses(shown, other) == ["active", "pending_review"]


def test_a_memory_of_another_tenant_does_not_wait(tenant: Tenant, other_tenant: Tenant) -> None:
    waiting = make_fact(tenant, key="drink", status="pending_review")
    for approve in (True, False):
        with pytest.raises(NotPendingError):
            gateway.decide_memory(other_tenant, waiting.pk, approve=approve)
    gateway.decide_memory(tenant, waiting.pk, approve=False)
    assert Fact.objects.get().rejected


def test_reviewing_is_for_reviewers(reader: Operator, tenant: Tenant) -> None:
    waiting = make_fact(tenant, key="drink", status="pending_review")
    reader.try_to(LIST, "approve", waiting)
    reader.get(REVIEW, 403)
    reader.post(REVIEW, 403, **{f"decide-{waiting.pk}": "approve", f"seen-{waiting.pk}": content_hash(waiting)})
    assert "Review what waits" not in reader.get(LIST)
    assert statuses(waiting) == ["pending_review"]


# --- what it costs


def test_lists_and_pages_cost_the_same_whatever_there_is(editor: Operator, tenant: Tenant) -> None:
    def cost() -> list[int]:
        fact = make_fact(tenant, key=f"k{Fact.objects.count()}", status="pending_review")
        rows = list(Fact.objects.all()[:40])
        pages = (
            lambda: editor.get(LIST),
            lambda: editor.get(f"{LIST}{fact.pk}/change/"),
            lambda: editor.act(LIST, "approve", rows, 200),
            lambda: editor.get(REVIEW),
        )
        return [len(queries(work)) for work in pages]

    few = cost()
    for number in range(40):
        make_fact(tenant, owner=Owner.user(f"user {number}"), key="x", status="pending_review")
    assert cost() == few == [ANY] * 4
    assert max(few) <= 14
