"""The playground's page: who may open it, and what its script finds there. The script itself runs in a browser only."""

import json
import re
from pathlib import Path
from types import ModuleType

import pytest
from django.conf import settings as django_settings
from django.contrib.auth.models import User
from django.contrib.staticfiles import finders
from django.test import Client
from django.urls import clear_url_caches, include, path
from pytest_django import Settings

import memorygw.urls
from memorygw.llm.offline import OfflineClient
from memorygw.pages.playground import TEXTS

pytestmark = pytest.mark.django_db


def somebody(name: str = "ada", *, staff: bool = True) -> Client:
    client = Client()
    client.force_login(User.objects.create_user(name, is_staff=staff))
    return client


def page(client: Client, where: str = "/playground/") -> str:
    response = client.get(where)
    assert response.status_code == 200, response.status_code
    return response.content.decode()


def script() -> str:
    return Path(str(finders.find("memorygw/playground.js"))).read_text(encoding="utf-8")


# --- who may open it


def test_it_is_for_staff(client: Client) -> None:
    answer = client.get("/playground/")
    assert (answer.status_code, answer.headers["Location"]) == (302, "/login/?next=/playground/")
    assert somebody(staff=False).get("/playground/").status_code == 403
    assert "Say something about yourself" in page(somebody("grace"))


def test_it_is_only_read() -> None:
    assert somebody().post("/playground/").status_code == 405


def test_in_development_it_is_for_all_who_are_signed_in(client: Client, settings: Settings) -> None:
    settings.DEBUG = True
    assert client.get("/playground/").status_code == 302
    assert "Say something about yourself" in page(somebody(staff=False))


def test_no_cache_keeps_it() -> None:
    assert "no-store" in somebody().get("/playground/").headers["Cache-Control"]


# --- what is in it


def test_it_finds_the_api_and_its_files_under_a_hosts_prefix(settings: Settings) -> None:
    host = ModuleType("host_urls")
    host.urlpatterns = [  # type: ignore[attr-defined]
        path("memory/", include("memorygw.api.urls")),
        path("pages/", include("memorygw.pages.urls")),
        *memorygw.urls.urlpatterns[3:],
    ]
    settings.ROOT_URLCONF = host
    clear_url_caches()
    text = page(somebody(), "/pages/playground/")
    assert 'data-schema="/memory/api/v1/schema"' in text
    assert 'src="/static/memorygw/playground.js"' in text
    assert 'href="/static/memorygw/playground.css"' in text
    assert '"/api/' not in text + script()


def test_a_strict_content_security_policy_lets_it_run() -> None:
    text = page(somebody())
    for attributes, body in re.findall(r"<script\b([^>]*)>(.*?)</script>", text, re.DOTALL):
        assert 'type="application/json"' in attributes or not body.strip()
    assert not re.search(r"<style|\sstyle=|\son\w+=|javascript:", text)
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function", script())


def test_the_script_has_every_text_that_it_says_and_no_other() -> None:
    shown = re.search(r'<script id="playground-texts"[^>]*>(.*?)</script>', page(somebody()), re.DOTALL)
    assert shown
    assert json.loads(shown[1]) == {name: str(text) for name, text in TEXTS.items()}
    # Those of roles, statuses, warnings and errors, whose names the API gives, are looked up by them.
    given = re.compile(r"role_|error_|interrupted$|forgotten$|turns_trimmed$|facts_left_out$|(this|next)_answer")
    entries = {"facts", "notes", "turns", "tokens", "left_out"}
    said = set(re.findall(r'(?:texts\.|say\(")(\w+)', script()))
    assert said <= TEXTS.keys()
    assert {name for name in TEXTS.keys() - said - entries if not given.match(name)} == set()


def test_it_says_which_model_answers(settings: Settings) -> None:
    client = somebody()
    settings.MEMORYGW_MODEL = "gpt-<b>"
    assert "The model gpt-&lt;b&gt; answers." in page(client)
    settings.MEMORYGW_LLM_CLIENT = f"{OfflineClient.__module__}.{OfflineClient.__name__}"
    text = page(client)
    assert "No model is configured: a small offline stand-in answers." in text
    assert "gpt-" not in text


def test_it_says_when_facts_are_looked_for(settings: Settings) -> None:
    client = somebody()
    settings.MEMORYGW_EXTRACT_EVERY_TURNS = 4
    assert "another 4 turns" in page(client)
    settings.MEMORYGW_EXTRACTION_TRIGGERS = "scanner"
    assert "another" not in page(client)


def test_its_example_is_what_the_offline_model_learns_from() -> None:
    assert django_settings.LANGUAGE_CODE == "en"
    assert "My name is Ada and I cycle to work." in page(somebody())
