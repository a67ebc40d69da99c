"""What operators do in the admin, in a real browser."""

import json
from collections.abc import Iterator
from uuid import uuid4

import pytest
from playwright.sync_api import Browser, Page, expect

from memorygw.testing import ScriptedModelServer
from tests.e2e.browser import barriers, browser, press, sign_in, visit
from tests.e2e.conftest import Caller, Gateway, tell

__all__ = ["browser"]

PASSWORD = "only for tests"
OPERATORS = """
from django.contrib.auth.models import Group, User
from django.core.management import call_command
call_command("create_groups", verbosity=0)
for group in ("viewer", "editor", "privacy officer"):
    user, made = User.objects.get_or_create(username=group, is_staff=True)
    user.set_password("only for tests")
    user.save()
    user.groups.set([Group.objects.get(name="memorygw " + group)])
from memorygw import gateway
for tenant in {tenants}:
    print(tenant, gateway.create_api_key(tenant, role="admin", name="e2e")[1])
"""


@pytest.fixture(scope="module")
def callers(running: Gateway) -> Iterator[Caller]:
    """One for each test, each of a tenant of its own; and operators of each group."""
    tenants = [f"tenant-{uuid4().hex[:8]}" for _ in range(5)]
    made = running.manage("shell", "-v", "0", "-c", OPERATORS.format(tenants=tenants))
    keys = dict(line.split() for line in made.splitlines() if line.startswith("tenant-"))
    return (Caller(running, key, tenant) for tenant, key in keys.items())


@pytest.fixture
def caller(callers: Iterator[Caller]) -> Caller:
    return next(callers)


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    with visit(browser) as page:
        yield page


def enter(page: Page, running: Gateway, operator: str, path: str = "") -> None:
    sign_in(page, f"{running.base_url}/admin/{path}", operator, PASSWORD)


@pytest.fixture
def thread_id(e2e_model: ScriptedModelServer, caller: Caller) -> str:
    return tell(caller, e2e_model, "I play the cello.", "ada", instrument="cello")


def test_a_transcript_is_read_and_a_fact_over_the_cap_is_refused_and_not_lost(
    page: Page, running: Gateway, caller: Caller, thread_id: str
) -> None:
    enter(page, running, "editor", f"memorygw_threads/thread/{thread_id}/change/")
    expect(page.locator("#turn-1")).to_contain_text("I play the cello.")
    expect(page.locator("#turn-1")).to_contain_text("instrument: cello")
    assert not barriers(page, "#content-main")
    press(page.get_by_role("link", name="The person"))
    fact = page.locator(".memorygw-fact", has_text="cello").first
    assert not barriers(page, "#content-main")
    fact.get_by_text("Edit").click()
    fact.get_by_label("Value").fill("viola " * 1_000)
    press(fact.get_by_role("button", name="Save"))
    expect(page.locator(".field-value .errorlist")).to_be_visible()
    assert page.locator("#id_value").input_value().startswith("viola viola")
    assert caller.facts("ada") == {"instrument": "cello"}
    page.locator("#id_value").fill("viola")
    press(page.locator("[name=_save]"))
    assert caller.facts("ada") == {"instrument": "viola"}


def waiting(model: ScriptedModelServer, caller: Caller, **facts: str) -> None:
    caller("PATCH", "/tenant", {"review_policy": "always_extracted"}, user="ada")
    tell(caller, model, "Now you know.", "ada", **facts)


def test_what_waits_is_approved_and_rejected_by_keyboard(
    page: Page, running: Gateway, e2e_model: ScriptedModelServer, caller: Caller, thread_id: str
) -> None:
    waiting(e2e_model, caller, instrument="viola", city="Turin")
    enter(page, running, "editor", "memorygw_usermemory/fact/")
    press(page.get_by_role("link", name="Review what waits"))
    ours = page.locator("fieldset", has_text=caller.tenant)
    expect(ours).to_have_count(2)
    expect(ours.first).to_contain_text("cello")
    expect(ours.first).to_contain_text("viola")
    assert not barriers(page, "#content-main")
    ours.first.focus()
    page.keyboard.press("a")
    page.keyboard.press("r")
    assert caller.facts("ada") == {"instrument": "cello"}
    press(page.get_by_role("button", name="Decide"))
    expect(page.locator(".messagelist")).to_contain_text("2 decided.")
    assert caller.facts("ada") == {"instrument": "viola"}


def test_many_are_approved_at_once(
    page: Page, running: Gateway, e2e_model: ScriptedModelServer, caller: Caller, thread_id: str
) -> None:
    waiting(e2e_model, caller, **{f"fact {n}": "x" for n in range(5)})
    enter(page, running, "editor", "memorygw_usermemory/fact/?status__exact=pending_review")
    for box in page.locator("#result_list tr", has_text=caller.tenant).locator(".action-select").all():
        box.check()
    page.locator("select[name=action]").select_option("approve")
    press(page.locator("button[name=index]"))
    expect(page.get_by_role("radio", name="Approve", checked=True)).to_have_count(5)
    press(page.get_by_role("button", name="Decide"))
    expect(page.locator(".messagelist")).to_contain_text("5 decided.")
    assert len(caller.facts("ada")) == 6


def test_a_person_is_forgotten_and_the_receipt_shown(
    page: Page, running: Gateway, caller: Caller, thread_id: str
) -> None:
    enter(page, running, "privacy officer", f"memorygw_threads/thread/{thread_id}/change/")
    press(page.get_by_role("link", name="The person"))
    press(page.get_by_role("button", name="Export…"))
    with page.expect_download() as download:
        page.get_by_role("button", name="Download").click()
    assert "cello" in json.dumps(json.loads(download.value.path().read_text()))
    page.go_back()
    press(page.get_by_role("button", name="Forget…"))
    expect(page.locator("tr", has_text="turns")).to_contain_text("2")
    assert not barriers(page, "#content-main")
    page.get_by_label("To go on, type").fill("Ada")
    press(page.get_by_role("button", name="Forget"))
    expect(page.locator("#mistyped")).to_contain_text("Nothing was done.")
    assert caller.facts("ada") == {"instrument": "cello"}
    page.get_by_label("To go on, type").fill("ada")
    press(page.get_by_role("button", name="Forget"))
    expect(page.locator(".messagelist")).to_contain_text("Erased; the receipt:")
    expect(page.locator(".field-verified")).to_be_visible()
    assert caller.facts("ada") == {}
    caller("GET", f"/threads/{thread_id}", user="ada", expect=404)


def test_a_viewer_sees_no_content(page: Page, running: Gateway, caller: Caller, thread_id: str) -> None:
    enter(page, running, "viewer", f"memorygw_threads/thread/{thread_id}/change/")
    expect(page.locator("#turn-1")).to_be_visible()
    assert "cello" not in page.content()
    press(page.get_by_role("link", name="The person"))
    expect(page.locator(".memorygw-fact")).to_have_count(1)
    assert "cello" not in page.content()
    assert page.get_by_role("button", name="Forget…").count() == 0
