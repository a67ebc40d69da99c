"""Who may see and do what: a viewer sees no word of anybody; who reads leaves a trace without content (S13, S36)."""

from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Group
from django.core.management import call_command

from memorygw import gateway
from memorygw.models import ApiKey, ErasureReceipt, Persona, Tenant
from tests.admin.conftest import LISTS, WORD, Operator
from threads.models import Thread
from usermemory.models import Fact, UserMemory

pytestmark = pytest.mark.django_db


@pytest.fixture
def rows(tenant: Tenant, persona: Persona, thread: Thread, fact: Fact) -> dict[str, Any]:
    """List → a row of it."""
    key = gateway.create_api_key(tenant.name, role="service", name="phone")[0]
    receipt = ErasureReceipt.objects.create(tenant_id=tenant.pk, subject="hash", mode="delete", status="restored")
    person = UserMemory.objects.get()
    return dict(zip(LISTS, [tenant, key, persona, receipt, thread, person, fact], strict=True))


def test_a_viewer_sees_that_there_is_something_and_no_word_of_it(viewer: Operator, rows: dict[str, Any]) -> None:
    for path, row in rows.items():
        for page in (viewer.get(path), viewer.get(f"{path}{row.pk}/change/"), viewer.get(f"{path}{row.pk}/history/")):
            assert WORD not in page
    assert "ada" in viewer.get("memorygw_threads/thread/")
    assert "What was said is for those who may read content." in viewer.get(
        f"memorygw_threads/thread/{rows['memorygw_threads/thread/'].pk}/change/"
    )


def test_content_cannot_be_guessed_by_filters_searches_or_autocompletion(
    viewer: Operator, reader: Operator, rows: dict[str, Any]
) -> None:
    for operator in (viewer, reader):
        operator.get("memorygw_threads/thread/", 400, title__contains=WORD)
        operator.get("memorygw_threads/thread/", 400, turns__content__contains=WORD)
        operator.get("memorygw_usermemory/fact/", 400, value__startswith="the")
        operator.get("memorygw_usermemory/fact/", 400, searchable__contains="the")
        operator.get("memorygw_threads/thread/", 400, status__exact="\x00")
        operator.get("memorygw/apikey/", 400, digest__startswith="0")
        operator.get("memorygw/apikey/", 400, tenant__api_keys__digest__startswith="0")
        for path in ("memorygw_threads/thread/", "memorygw_usermemory/fact/"):
            assert str(rows[path].pk) in operator.get(path)
            assert str(rows[path].pk) not in operator.get(path, q=WORD)
    query = {"app_label": "memorygw", "model_name": "persona", "field_name": "tenant"}
    assert "acme" in viewer.get("autocomplete/", **query, term="ac")
    asked = {"app_label": "memorygw_usermemory", "model_name": "fact", "field_name": "source_thread", "term": WORD}
    assert WORD not in viewer.get("autocomplete/", **asked)


def test_a_viewer_changes_nothing(viewer: Operator, rows: dict[str, Any]) -> None:
    for path, row in rows.items():
        viewer.post(f"{path}{row.pk}/change/", 403, name="x", value="x")
        viewer.post(f"{path}{row.pk}/delete/", 403, post="yes")
        viewer.post(f"{path}add/", 403, name="x")
        for action in ("revoke", "approve", "reject", "delete_selected"):
            viewer.try_to(path, action, row)
    assert not LogEntry.objects.exists()
    assert ApiKey.objects.usable().count() == 1
    assert [row.pk for row in rows.values()] == [type(row).objects.get(pk=row.pk).pk for row in rows.values()]


def test_a_content_viewer_reads_and_it_is_noted_without_content(reader: Operator, rows: dict[str, Any]) -> None:
    for path in ("memorygw_threads/thread/", "memorygw_usermemory/fact/"):
        LogEntry.objects.all().delete()
        assert WORD in reader.get(path)
        assert WORD in reader.get(f"{path}{rows[path].pk}/change/")
        entries = [(entry.object_id, entry.change_message) for entry in LogEntry.objects.order_by("pk")]
        assert entries == [(None, "Opened a list."), (str(rows[path].pk), "Opened.")]
        reader.post(f"{path}{rows[path].pk}/change/", 403, value="x")
    assert WORD not in logged()


def test_an_editor_writes_and_the_log_has_no_word_of_it(editor: Operator, rows: dict[str, Any], tenant: Tenant) -> None:
    fact, persona = rows["memorygw_usermemory/fact/"], rows["memorygw/persona/"]
    editor.post(f"memorygw_usermemory/fact/{fact.pk}/change/", key="plays", value=f"two {WORD}s")
    editor.post(f"memorygw/persona/{persona.pk}/change/", name=f"{WORD} coach", fact_kind="keyed", instructions=WORD)
    editor.get(f"memorygw_usermemory/fact/{fact.pk}/history/")
    editor.post(f"memorygw_usermemory/fact/{fact.pk}/delete/", post="yes")
    assert not gateway.get_user_facts(tenant, "ada")
    assert gateway.get_persona(tenant, persona.pk).instructions == WORD
    messages = list(LogEntry.objects.order_by("pk").values_list("object_repr", "change_message"))
    assert (f"fact {fact.pk}", "Changed: value.") in messages
    assert (f"fact {fact.pk}", "Deleted.") in messages
    assert WORD not in logged()


def test_an_editor_makes_no_keys_and_nobody_deletes_threads(editor: Operator, rows: dict[str, Any]) -> None:
    editor.get("memorygw/apikey/add/", 403)
    editor.try_to("memorygw/apikey/", "revoke", rows["memorygw/apikey/"])
    assert ApiKey.objects.usable().count() == 1
    editor.post(f"memorygw_threads/thread/{rows['memorygw_threads/thread/'].pk}/delete/", 403, post="yes")


def test_the_groups_can_be_made_again_and_lose_what_they_should_not_have(viewer: Operator) -> None:
    group = Group.objects.get(name="memorygw viewer")
    group.permissions.set(Group.objects.get(name="memorygw editor").permissions.all())
    call_command("create_groups")
    codes = set(group.permissions.values_list("codename", flat=True))
    assert codes == {
        "view_tenant",
        "view_apikey",
        "view_persona",
        "view_erasurereceipt",
        "view_modelcall",
        "view_voicesession",
        "view_thread",
        "view_titlestate",
        "view_usermemory",
        "view_fact",
        "view_extractionstate",
        "view_embeddingstate",
        "view_workingmemorystate",
    }
    assert Group.objects.count() == 4


@pytest.mark.django_db(transaction=True)
def test_erasing_a_person_takes_along_who_opened_what_of_theirs(
    reader: Operator, tenant: Tenant, thread: Thread, fact: Fact
) -> None:
    reader.get(f"memorygw_threads/thread/{thread.pk}/change/")
    reader.get(f"memorygw_usermemory/fact/{fact.pk}/change/")
    assert LogEntry.objects.count() == 2
    assert gateway.forget_user(tenant, "ada").verified
    assert not LogEntry.objects.exists()


def test_whoever_is_not_staff_gets_nowhere(viewer: Operator) -> None:
    viewer.user.is_staff = False
    viewer.user.save()
    for path in ("", *LISTS):
        viewer.get(path, 302)


def logged() -> str:
    return str(list(LogEntry.objects.values_list("object_repr", "change_message")))
