"""What a person does with their own memory, and the playground, in a real browser."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from uuid import uuid4

import pytest
from playwright.sync_api import Browser, Page, expect

from memorygw.testing import ScriptedModelServer
from tests.e2e.browser import barriers, browser, press, sign_in, visit
from tests.e2e.conftest import Caller, Gateway, tell

__all__ = ["browser"]

PASSWORD = "only for tests"
LOGINS = """
from django.contrib.auth.models import User
for name in {names}:
    print(name, User.objects.create_user(name, password="only for tests", is_staff=True).pk)
"""


@dataclass
class Person:
    """Somebody with a login, and a program that talks to the gateway for them."""

    name: str
    id: str
    caller: Caller

    @property
    def facts(self) -> dict[str, str]:
        return self.caller.facts(self.id)


@pytest.fixture(scope="module")
def people(running: Gateway) -> Iterator[Person]:
    """One for each test: a process that makes a login takes as long as some tests."""
    names = [f"person-{uuid4().hex[:8]}" for _ in range(8)]
    made = running.manage("shell", "-v", "0", "-c", LOGINS.format(names=names))
    caller = running.key("default", "admin")
    return (Person(name, number, caller) for name, number in map(str.split, made.splitlines()))


@pytest.fixture
def person(people: Iterator[Person]) -> Person:
    return next(people)


@pytest.fixture(params=["with JavaScript", "without"])
def page(request: pytest.FixtureRequest, browser: Browser) -> Iterator[Page]:
    with visit(browser, java_script_enabled=request.param == "with JavaScript") as page:
        yield page


def test_a_person_corrects_decides_forgets_and_takes_along_what_is_remembered(
    page: Page, running: Gateway, e2e_model: ScriptedModelServer, person: Person
) -> None:
    tell(person.caller, e2e_model, "I play the cello.", person.id, instrument="cello", city="Turin")
    person.caller("PATCH", "/tenant", {"review_policy": "always_extracted"}, user=person.id)
    tell(person.caller, e2e_model, "And the viola, and I drink tea.", person.id, instrument="viola", drink="tea")
    person.caller("PATCH", "/tenant", {"review_policy": ""}, user=person.id)

    sign_in(page, f"{running.base_url}/me/memory/", person.name, PASSWORD)
    expect(page.get_by_role("heading", name="My memory")).to_be_visible()
    expect(page.get_by_text("I play the cello.").first).to_be_visible()
    press(page.get_by_role("button", name="Approve instrument"))
    press(page.get_by_role("button", name="Reject drink"))
    assert person.facts == {"instrument": "viola", "city": "Turin"}

    city = page.get_by_role("listitem").filter(has_text="Turin")
    city.locator("summary", has_text="Edit").click()
    city.get_by_label("What is remembered").fill("a city " * 100)
    press(city.get_by_role("button", name="Save"))
    kept = page.get_by_label("What is remembered")
    expect(page.locator(".errorlist")).to_be_visible()
    assert kept.input_value().startswith("a city a city")
    kept.fill("Milan")
    press(page.get_by_role("button", name="Save"))
    assert person.facts == {"instrument": "viola", "city": "Milan"}

    with page.expect_download() as download:
        page.get_by_role("link", name="Download my data").click()
    assert "Milan" in json.dumps(json.loads(download.value.path().read_text()))

    viola = page.get_by_role("listitem").filter(has_text="viola")
    viola.locator("summary", has_text="Forget").click()
    press(viola.get_by_role("button", name="Forget for good"))
    assert person.facts == {"city": "Milan"}
    press(page.get_by_role("button", name="off"))
    person.caller.ask("I moved to Rome.", user=person.id)
    running.until_idle()
    press(page.get_by_role("link", name="Forget everything"))
    page.get_by_role("checkbox").check()
    press(page.get_by_role("button", name="Forget"))
    assert person.facts == {}


def test_the_page_has_no_barriers_in_either_language_light_or_dark(
    browser: Browser, running: Gateway, e2e_model: ScriptedModelServer, person: Person
) -> None:
    tell(person.caller, e2e_model, "I play the cello.", person.id, instrument="cello")
    person.caller.ask("What do I play?", user=person.id)
    for locale, scheme, width in (("en-GB", "light", 1280), ("de-DE", "dark", 390)):
        options = {"locale": locale, "color_scheme": scheme, "viewport": {"width": width, "height": 844}}
        with visit(browser, **options) as page:
            page.goto(f"{running.base_url}/me/memory/")
            assert not barriers(page)
            sign_in(page, f"{running.base_url}/me/memory/", person.name, PASSWORD)
            expect(page.get_by_role("heading", level=1)).to_have_text(
                "My memory" if width == 1280 else "Mein Gedächtnis"
            )
            page.evaluate("document.querySelectorAll('details').forEach((details) => { details.open = true })")
            assert not barriers(page)
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            page.goto(f"{running.base_url}/playground/")
            expect(page.get_by_role("textbox")).to_be_focused()
            assert not barriers(page)
            assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_the_playground_streams_an_answer_and_shows_what_was_given_and_learned(
    browser: Browser, running: Gateway, e2e_model: ScriptedModelServer, person: Person
) -> None:
    operation = {"op": "SET", "key": "instrument", "value": "cello", "evidence": "I play the cello."}
    e2e_model.reply({"operations": [operation]}, model="cheap")
    e2e_model.stream("How", " nice", 1.5, " to hear.", model="main")
    with visit(browser) as page:
        sign_in(page, f"{running.base_url}/playground/", person.name, PASSWORD)
        message, log = page.get_by_role("textbox", name="Message"), page.get_by_role("log")
        message.fill("I play the cello.")
        message.press("Enter")
        expect(log).to_contain_text("How nice")
        expect(log).not_to_contain_text("to hear.", timeout=100)
        expect(log).to_contain_text("How nice to hear.")
        expect(page.get_by_role("region", name="What was learned")).to_contain_text("cello", timeout=20_000)
        assert person.facts == {"instrument": "cello"}
        page.get_by_role("button", name="New thread").click()
        message.fill("What do I play?")
        message.press("Enter")
        given = page.get_by_role("region", name="What the model was given")
        expect(given).to_contain_text("instrument: cello")
        assert "cello" in e2e_model.requests_for("main")[-1].system


def test_a_model_that_fails_takes_nothing_of_what_was_typed(
    browser: Browser, running: Gateway, e2e_model: ScriptedModelServer, person: Person
) -> None:
    e2e_model.fail(500, model="main")
    with visit(browser) as page:
        sign_in(page, f"{running.base_url}/playground/", person.name, PASSWORD)
        page.get_by_role("textbox", name="Message").fill("Are you there?")
        page.get_by_role("button", name="Send").click()
        log = page.get_by_role("log")
        expect(log).to_contain_text("The model did not answer.")
        expect(log).to_contain_text("Are you there?")
        page.get_by_role("button", name="Try again").click()
        expect(log).to_contain_text("ok")
    [thread] = person.caller("GET", "/threads", user=person.id)["items"]
    assert [turn["role"] for turn in person.caller.turns(thread["id"], user=person.id)] == ["user", "assistant"]
