"""Everything that the pages say is there in German."""

import ast
import re
from gettext import GNUTranslations
from pathlib import Path
from typing import Any

import pytest
from django.utils.translation.template import templatize

import memorygw
from memorygw import gateway
from memorygw.models import Tenant
from tests.pages.conftest import MEMORY, Person

ROOT = Path(memorygw.__file__).parent
GERMAN = ROOT / "locale" / "de" / "LC_MESSAGES"


def entries() -> dict[str, list[str]]:
    """What is translated, and how: as the source of the translations has it."""
    found = {}
    for block in (GERMAN / "django.po").read_text("utf-8").split("\n\n")[1:]:
        values = {"msgid": "", "msgstr": ""}
        for line in block.splitlines():
            if field := re.match(r"(\w+(?:\[\d\])?) \"", line):
                name = field[1]
                values[name] = ""
            if text := re.search(r'"(.*)"$', line):
                values[name] += text[1].replace('\\"', '"').replace("\\n", "\n") if not line.startswith("#") else ""
        found[values["msgid"]] = [text for name, text in values.items() if name.startswith("msgstr[")] or [
            values["msgstr"]
        ]
    return found


def test_every_text_has_its_german_one_and_none_is_a_guess() -> None:
    assert len(entries()) > 50
    assert [text for text, german in entries().items() if not all(german)] == []
    assert "fuzzy" not in (GERMAN / "django.po").read_text("utf-8")


def test_names_in_a_text_are_those_in_its_german_one() -> None:
    for text, german in entries().items():
        for one in german:
            assert set(re.findall(r"%\(\w+\)s", one)) == set(re.findall(r"%\(\w+\)s", text)), text


def test_what_is_read_at_run_time_is_what_is_written_here() -> None:
    with (GERMAN / "django.mo").open("rb") as file:
        compiled = GNUTranslations(file)
    for text, german in entries().items():
        counted = (
            [compiled.ngettext(text, text, count) for count in (1, 2)] if len(german) > 1 else [compiled.gettext(text)]
        )
        assert counted == german


def test_every_text_of_the_pages_is_there_and_no_other() -> None:
    templates = (ROOT.parent / "templates" / "memorygw" / "pages").rglob("*.html")
    said = {text for file in templates for text in texts(templatize(file.read_text("utf-8")))}
    said |= {text for file in (ROOT / "pages").glob("*.py") for text in texts(file.read_text("utf-8"))}
    assert said == set(entries())


def texts(source: str) -> set[str]:
    """What is marked for translation; one of a plural is enough to find it by."""
    marked = re.findall(r"(?:\b(?:n?gettext(?:_lazy)?)|\b_)\(\s*u?('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")", source)
    return {ast.literal_eval(text) for text in marked}


@pytest.mark.django_db
def test_the_page_is_german_for_who_reads_german(ada: Person) -> None:
    gateway.upsert_user_fact(Tenant.DEFAULT, ada.id, "city", "Turin")
    assert '<html lang="en"' in ada.get()
    response = ada.client.get(MEMORY, headers={"Accept-Language": "de"})
    html = response.content.decode()
    assert '<html lang="de" dir="ltr">' in html
    for words in ("Mein Gedächtnis", "Das Gedächtnis ist eingeschaltet.", "Von Hand eingetragen", "Angemeldet als ada"):
        assert words in html
    for words in ("Forget", "Memory is", "since", "Signed in"):
        assert words not in html


@pytest.mark.django_db
def test_what_is_refused_and_what_was_done_are_told_in_german(ada: Person) -> None:
    german: dict[str, Any] = {"headers": {"Accept-Language": "de"}}
    fact = gateway.upsert_user_fact(Tenant.DEFAULT, ada.id, "city", "Turin")
    refused = ada.client.post(f"{MEMORY}facts/{fact.pk}/", {"key": "city", "value": "4111 1111 1111 1111"}, **german)
    assert "Zahlungsdaten werden nicht ins Gedächtnis" in refused.content.decode()
    ada.client.post(f"{MEMORY}facts/{fact.pk}/forget/", **german)
    assert "Die Angabe wurde vergessen." in ada.client.get(MEMORY, **german).content.decode()
