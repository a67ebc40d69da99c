"""A real browser before the running gateway: headless Chromium, which talks to this machine only."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, ConsoleMessage, Locator, Page, Route, expect, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
# The first two are for root in a container; the others keep the browser from asking for its maker's servers.
FLAGS = ("no-sandbox", "disable-gpu", "disable-quic", "no-first-run", "disable-background-networking")
MORE_FLAGS = ("disable-component-update", "disable-sync")
# A form that is shown again with an error, or a page that is refused, is no fault of the page.
EXPECTED = ("status of 4", "favicon")

# Two suites may share this machine.
expect.set_options(timeout=20_000)


def chromium_path() -> str | None:
    return next(filter(None, map(shutil.which, NAMES)), None)


@contextmanager
def launched() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        arguments = [f"--{flag}" for flag in (*FLAGS, *MORE_FLAGS)]
        browser = playwright.chromium.launch(executable_path=chromium_path(), args=arguments)
        try:
            yield browser
        finally:
            browser.close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if chromium_path() is None and not os.environ.get("CI"):
        pytest.skip("No Chromium is installed here.")
    with launched() as browser:
        yield browser


@contextmanager
def visit(browser: Browser, **options: Any) -> Iterator[Page]:
    """A new visitor. Whatever the pages complain about in the console, or want from elsewhere, is a failure."""
    complaints: list[str] = []
    context = browser.new_context(**{"locale": "en-GB", "viewport": {"width": 1280, "height": 900}, **options})
    page = context.new_page()

    def only_here(route: Route) -> None:
        if urlsplit(route.request.url).hostname == "127.0.0.1":
            return route.continue_()
        complaints.append(f"wants {route.request.url}")
        return route.abort()

    def heard(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning") and not any(text in message.text for text in EXPECTED):
            complaints.append(message.text)

    page.route("**/*", only_here)
    page.on("console", heard)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    try:
        yield page
    finally:
        context.close()
    assert not complaints


def press(button: Locator) -> None:
    """Click, and wait for the page that comes of it: a click alone does not wait for the form to be sent."""
    with button.page.expect_navigation():
        button.click()


def sign_in(page: Page, url: str, name: str, password: str) -> None:
    page.goto(url)
    page.fill("input[name=username]", name)
    page.fill("input[name=password]", password)
    press(page.locator("form:has(input[name=password]) [type=submit]"))


def barriers(page: Page, within: str = "") -> list[str]:
    """What axe finds wrong with the page, or with a part of it."""
    found = Axe().run(page, context=within or None).response["violations"]
    return [f"{one['id']}: {node['html'][:200]}" for one in found for node in one["nodes"]]
