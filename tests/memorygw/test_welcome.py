"""What `serve` says once it listens, and the login that it makes in development."""

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from django.apps import apps
from django.contrib.auth.models import User
from django.test import Client
from django.urls import clear_url_caches, include, path
from pytest_django import Settings

from memorygw.management.welcome import welcome
from tests.e2e.conftest import PYTHON, ROOT, clean_environment

ADDRESS, PASSWORD = "http://127.0.0.1:8000", "aV-4_z0Q9sTx"


@pytest.fixture
def development(db: None, settings: Settings) -> Settings:
    settings.DEBUG, settings.DEVELOPER_PASSWORD = True, PASSWORD
    return settings


def login(host: str = "127.0.0.1") -> list[str]:
    """The lines that are about no page."""
    return [line for line in welcome(ADDRESS, host) if ADDRESS not in line]


def test_it_names_the_pages() -> None:
    lines = list(welcome(ADDRESS, "127.0.0.1"))
    assert "Playground:   http://127.0.0.1:8000/playground/" in lines
    assert "Admin:        http://127.0.0.1:8000/admin/" in lines
    assert "API docs:     http://127.0.0.1:8000/api/v1/docs" in lines


def test_it_names_no_page_that_a_host_does_not_have(settings: Settings) -> None:
    host = ModuleType("host_urls")
    host.urlpatterns = [path("memory/", include("memorygw.api.urls"))]  # type: ignore[attr-defined]
    settings.ROOT_URLCONF = host
    clear_url_caches()
    assert list(welcome(ADDRESS, "127.0.0.1")) == ["API docs:     http://127.0.0.1:8000/memory/api/v1/docs"]


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "localhost", "::1"])
def test_in_development_it_makes_a_login_that_works(development: Settings, client: Client, host: str) -> None:
    assert login(host) == [f"Sign in as developer / {PASSWORD} (made for development, on this machine only)."]
    assert client.login(username="developer", password=PASSWORD)
    assert client.get("/playground/").status_code == 200
    assert User.objects.get().is_superuser


def test_who_is_there_already_is_kept(development: Settings, client: Client) -> None:
    User.objects.create_user("developer", email="d@example.org", password="another one")
    before = User.objects.values().get()
    assert login() == login()
    assert {**User.objects.values().get(), "password": ""} == {**before, "password": ""}
    assert client.login(username="developer", password=PASSWORD)


def test_a_password_that_fits_is_not_set_again(development: Settings) -> None:
    login()
    before = User.objects.get().password
    login()
    assert User.objects.get().password == before


@pytest.mark.parametrize(("name", "value"), [("DEBUG", False), ("DEVELOPER_PASSWORD", "")])
def test_elsewhere_it_makes_none_and_says_nothing(development: Settings, name: str, value: Any) -> None:
    setattr(development, name, value)
    assert login() == []
    assert not User.objects.exists()


def test_without_djangos_users_it_makes_none(development: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apps, "is_installed", lambda _: False)
    assert login() == []
    assert not User.objects.exists()


def test_a_host_has_no_such_setting(db: None, settings: Settings) -> None:
    settings.DEBUG = True
    with suppress(AttributeError):
        del settings.DEVELOPER_PASSWORD
    assert login() == []


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "192.0.2.1", "memory.example.org", "localhost.example.org"])  # noqa: S104
def test_where_others_may_reach_it_it_makes_none_and_says_so(development: Settings, host: str) -> None:
    assert login(host) == ["No login was made: other machines may reach this server."]
    assert not User.objects.exists()


def in_development(folder: Path) -> dict[str, str]:
    return clean_environment(
        DEBUG="true", DATABASE_URL=f"sqlite:///{folder / 'memorygw.sqlite3'}", PYTHONUNBUFFERED="1"
    )


@contextmanager
def serving(folder: Path) -> Iterator[list[str]]:
    """What `serve` prints in development on a database in this folder, up to the line about the login."""
    command = [*PYTHON, "manage.py", "serve", "--port", "0"]
    process = subprocess.Popen(command, cwd=ROOT, env=in_development(folder), stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        printed = [""]
        while not printed[-1].startswith(("Sign in", "No login")):
            printed.append(process.stdout.readline())
            assert printed[-1], f"It ended: {printed}"
        yield printed[1:]
    finally:
        process.terminate()
        process.wait(20)
        process.stdout.close()


def test_without_tables_serve_makes_no_login_and_says_so(tmp_path: Path) -> None:
    with serving(tmp_path) as printed:
        assert printed[-1].startswith("No login was made: the database does not answer")


def test_serve_says_first_where_it_listens_and_last_who_may_sign_in(tmp_path: Path) -> None:
    migrate = [*PYTHON, "manage.py", "migrate", "--verbosity", "0"]
    subprocess.run(migrate, cwd=ROOT, env=in_development(tmp_path), check=True)
    with serving(tmp_path) as printed:
        first, *_, last = printed
        assert re.fullmatch(r"memorygw listens on http://127\.0\.0\.1:\d+\n", first)
        assert f"Playground:   {first.split()[-1]}/playground/\n" in printed
        assert last.startswith("Sign in as developer / ")
