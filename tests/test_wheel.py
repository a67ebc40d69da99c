"""The wheel in a host project: installed into an environment of its own, with nothing of the checkout in reach.

In CI its requirements are installed afresh, as a host would; elsewhere they are lent by the environment of the tests,
so that the suite needs no network.
"""

import json
import os
import shutil
import sqlite3
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4
from zipfile import ZipFile

import pytest
import requests

from memorygw.conf import Conf
from memorygw.testing import RecordedRequest, ScriptedModelServer

ROOT = Path(__file__).parent.parent
PACKAGES = {"memorygw", "threads", "usermemory", "workingmemory"}
MAIN, CHEAP = Conf.MODEL, Conf.CHEAP_MODEL


def run(*command: str | Path, cwd: Path, env: dict[str, str]) -> str:
    """What the command prints. A failure shows everything it said."""
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@dataclass(frozen=True)
class Host:
    """The host project, migrated, with the wheel in its environment and a scripted model behind it."""

    folder: Path
    python: Path
    model: ScriptedModelServer

    @property
    def database(self) -> Path:
        return self.folder / "portal.sqlite3"

    @property
    def env(self) -> dict[str, str]:
        return {
            "PATH": os.defpath,
            "HOME": str(self.folder),
            "PORTAL_DATABASE": str(self.database),
            "MEMORYGW_LLM_BASE_URL": self.model.base_url,
        }

    def manage(self, *arguments: str) -> str:
        return run(self.python, "manage.py", *arguments, cwd=self.folder, env=self.env)

    def script(self, code: str) -> Any:
        """Run the code in the host; it prints one JSON value."""
        return json.loads(self.manage("shell", "--verbosity=0", "--command", f"import json\n{code}"))

    @contextmanager
    def server(self) -> Iterator[str]:
        """The host's development server; gives its address."""
        log = self.folder / "server.log"
        command: list[str | Path] = [self.python, "-u", "manage.py", "runserver", "--noreload", "127.0.0.1:0"]
        with (
            log.open("wb") as errors,
            subprocess.Popen(
                command, cwd=self.folder, env=self.env, stdout=subprocess.PIPE, stderr=errors, text=True
            ) as process,
        ):
            try:
                assert process.stdout
                addresses = (line.split()[-1] for line in process.stdout if "development server at" in line)
                address = next(addresses, None)
                assert address, log.read_text()
                yield address.rstrip("/")
            finally:
                process.terminate()


@dataclass(frozen=True)
class Api:
    """The API below the host's prefix, as one user."""

    session: requests.Session
    memory: str

    def __call__(self, method: str, path: str, body: Any = None, **headers: str | None) -> requests.Response:
        """``path`` starts below the prefix; a header of None is left out."""
        return self.session.request(method, self.memory + path, json=body, headers=headers, timeout=10)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder, cwd=ROOT, env=outside())
    [wheel] = folder.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def host(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    folder = tmp_path_factory.mktemp("host")
    shutil.copytree(ROOT / "tests" / "host", folder, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
    environment = folder / "environment"
    python = environment / "bin" / "python"
    uv("venv", "--python", sys.executable, environment, cwd=folder)
    install: list[str | Path] = ["pip", "install", "--python", python]
    if os.environ.get("CI"):
        uv(*install, "--constraint", ROOT / "requirements.txt", wheel, cwd=folder)
    else:
        uv(*install, "--offline", "--no-deps", wheel, cwd=folder)
        [site] = environment.glob("lib/python*/site-packages")
        (site / "lent.pth").write_text(sysconfig.get_path("purelib"))
    with ScriptedModelServer() as model:
        host = Host(folder, python, model)
        host.manage("migrate")
        yield host


def uv(*arguments: str | Path, cwd: Path) -> None:
    run(sys.executable, "-m", "uv", *arguments, cwd=cwd, env=outside())


def outside() -> dict[str, str]:
    """The environment without what would point a tool at the checkout."""
    return {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}


@pytest.fixture(scope="module")
def address(host: Host) -> Iterator[str]:
    with host.server() as address:
        yield address


@pytest.fixture(scope="module")
def api(host: Host, address: str) -> Iterator[Api]:
    arguments = ("--tenant", "default", "--role", "admin", "--name", "host", "--json")
    key = json.loads(host.manage("create_api_key", *arguments))["key"]
    with requests.Session() as session:
        # No proxy of this machine stands between us.
        session.trust_env = False
        session.headers.update({"Authorization": f"Bearer {key}", "X-Memorygw-User": "ann"})
        yield Api(session, f"{address}/memory")


@pytest.fixture
def model(host: Host) -> ScriptedModelServer:
    """The host's model; the cheap one has nothing to remember until a test says otherwise."""
    host.model.reset()
    host.model.defaults[CHEAP] = {"operations": []}
    return host.model


# --- what is in the wheel


def test_the_wheel_has_our_packages_and_nothing_else(wheel: Path) -> None:
    with ZipFile(wheel) as archive:
        folders = {name.split("/")[0] for name in archive.namelist()}
    assert {folder for folder in folders if not folder.endswith(".dist-info")} == PACKAGES


def test_the_wheel_has_every_template_vocabulary_schema_translation_and_type_marker(wheel: Path) -> None:
    templates = {path.relative_to(ROOT): path for path in (ROOT / "templates").rglob("*") if path.is_file()}
    data = {
        path.relative_to(ROOT): path
        for folder in ("vocabularies", "schemas", "locale")
        for path in (ROOT / "memorygw" / folder).rglob("*")
        if path.is_file()
    }
    expected = {f"memorygw/{name.as_posix()}": path.read_bytes() for name, path in templates.items()}
    expected |= {name.as_posix(): path.read_bytes() for name, path in data.items()}
    expected["memorygw/py.typed"] = b""
    with ZipFile(wheel) as archive:
        assert {name: archive.read(name) for name in archive.namelist() if name in expected} == expected
    assert "memorygw/templates/memorygw/prompts/user_memory.txt" in expected
    assert "memorygw/vocabularies/o200k_base.tiktoken.xz" in expected
    assert "memorygw/schemas/export.schema.json" in expected
    assert "memorygw/locale/de/LC_MESSAGES/django.mo" in expected


def test_the_host_runs_what_is_in_its_environment(host: Host) -> None:
    files = host.script(
        f"import importlib; print(json.dumps([importlib.import_module(name).__file__ for name in {PACKAGES}]))"
    )
    assert all(Path(file).is_relative_to(host.folder / "environment") for file in files)


def test_every_module_imports_with_what_the_wheel_requires(host: Host) -> None:
    standalone = {f"memorygw.{name}" for name in ("settings", "urls", "celery", "wsgi", "asgi")}
    # They are for those who have the packages that they adapt to, or Django's admin.
    extras = ("memorygw.adapters.", "memorygw.admin.")
    code = f"""
import importlib, pkgutil
modules = [
    module.name
    for package in {PACKAGES}
    for module in pkgutil.walk_packages(importlib.import_module(package).__path__, package + ".")
    if module.name not in {standalone} and not module.name.startswith({extras})
]
for name in modules:
    importlib.import_module(name)
print(json.dumps(modules))
"""
    assert {"memorygw.gateway", "memorygw.testing", "memorygw.management.commands.serve"} <= set(host.script(code))


# --- the host's own project


def test_the_host_passes_its_checks_and_needs_no_migration(host: Host) -> None:
    assert "no issues" in host.manage("check", "--fail-level", "WARNING")
    assert "No changes detected" in host.manage("makemigrations", "--check", "--dry-run")
    host.manage("migrate", "--check")


def test_an_app_of_the_host_may_have_a_label_like_ours(host: Host) -> None:
    code = """
from django.apps import apps
models = [apps.get_model("threads", "Thread"), apps.get_model("memorygw_threads", "Thread")]
print(json.dumps([[model.__module__, model._meta.db_table, model.objects.count() >= 0] for model in models]))
"""
    assert host.script(code) == [
        ["forum.models", "threads_thread", True],
        ["threads.models", "memorygw_threads_thread", True],
    ]


def test_our_tasks_are_the_host_celery_apps_and_there_is_no_other(host: Host) -> None:
    code = """
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
import celery, celery._state
import memorygw.gateway, memorygw.api.urls, memorygw.tasks
from portal.celery import app
app.loader.import_default_modules()
print(json.dumps({
    "tasks": sorted(name for name in app.tasks if not name.startswith("celery.")),
    "apps": [known.main for known in celery._state._get_active_apps()],
    "in a thread": ThreadPoolExecutor().submit(lambda: celery.current_app.main).result(),
    "standalone": sorted({"memorygw.celery", "memorygw.settings"} & set(sys.modules)),
}))
"""
    assert host.script(code) == {
        "tasks": [
            "memorygw.tasks.scan",
            "memorygw.tasks.sweep",
            "memorygw.voice.learn_from_voice",
            "threads.tasks.write_title",
            "usermemory.tasks.embed_facts",
            "usermemory.tasks.extract_facts",
            "workingmemory.tasks.update_notes",
        ],
        "apps": ["portal"],
        "in a thread": "portal",
        "standalone": [],
    }


# --- in the host's code


def test_the_host_asks_in_code_and_the_sweep_learns_from_it(host: Host, model: ScriptedModelServer) -> None:
    model.reply("What a fine city.", model=MAIN)
    model.defaults[CHEAP] = lambda request: remember(request, "I live in Lisbon.", city="Lisbon")
    ask = """
from memorygw import gateway
print(json.dumps(gateway.ask("default", 7, "I live in Lisbon.").answer.content))
"""
    assert host.script(ask) == "What a fine city."
    assert "Idle" in host.manage("sweep", "--until-idle")
    asked = sorted(request.text for request in model.requests_for(CHEAP) if "I live in Lisbon." in request.text)
    title, extraction = asked
    assert title.startswith("Give this conversation a title")
    assert extraction.startswith("You keep the long-term memory of one user.")
    facts = """
from memorygw import gateway
print(json.dumps({fact.key: fact.value for fact in gateway.get_user_facts("default", 7)}))
"""
    assert host.script(facts) == {"city": "Lisbon"}


def test_a_worker_of_the_host_learns_from_what_it_is_sent(host: Host, model: ScriptedModelServer) -> None:
    model.defaults[CHEAP] = lambda request: remember(request, "I play the cello.", instrument="cello")
    code = """
import time
from celery.contrib.testing.worker import start_worker
from memorygw import gateway
from portal.celery import app
with start_worker(app, perform_ping_check=False):
    gateway.ask("default", "bob", "I play the cello.")
    deadline = time.monotonic() + 20
    while not (facts := gateway.get_user_facts("default", "bob")) and time.monotonic() < deadline:
        time.sleep(0.05)
print(json.dumps({fact.key: fact.value for fact in facts}))
"""
    assert host.script(code) == {"instrument": "cello"}


def remember(request: RecordedRequest, words: str, **facts: str) -> dict[str, Any]:
    """An extraction that sets the facts when it is shown the words, and nothing otherwise."""
    operations = [{"op": "SET", "key": key, "value": value} for key, value in facts.items()]
    return {"operations": operations if words in request.text else []}


# --- over HTTP, under the host's prefix


def test_a_fact_set_over_http_is_in_the_prompt_of_the_next_ask(api: Api, model: ScriptedModelServer) -> None:
    model.reply("Tea, then.", model=MAIN)
    assert api("PUT", "/api/v1/facts", {"key": "drink", "value": "green tea"}).status_code == 200
    answer = api("POST", "/api/v1/ask", {"content": "What shall I drink?"})
    assert (answer.status_code, answer.json()["answer"]["content"]) == (200, "Tea, then.")
    [request] = model.requests_for(MAIN)
    assert "drink: green tea" in request.system
    assert request.last_user == "What shall I drink?"


def test_while_the_model_thinks_the_host_can_write(api: Api, model: ScriptedModelServer) -> None:
    """ATOMIC_REQUESTS holds no transaction open around a model call."""

    def meanwhile(_: RecordedRequest) -> str:
        return str(api("PUT", "/api/v1/facts", {"key": "mood", "value": "curious"}).status_code)

    model.reply(meanwhile, model=MAIN)
    answer = api("POST", "/api/v1/ask", {"content": "How am I?"})
    assert (answer.status_code, answer.json()["answer"]["content"]) == (200, "200")


def test_errors_come_in_our_envelope(api: Api) -> None:
    refused = api("GET", "/api/v1/threads", Authorization="Bearer mgw_0123abcd_nothing")
    assert (refused.status_code, refused.json()["error"]["code"]) == (401, "unauthorized")
    missing = api("GET", f"/api/v1/threads/{uuid4()}")
    assert (missing.status_code, missing.json()["error"]["code"]) == (404, "thread_not_found")
    assert missing.json()["error"]["number"] == 5372567786151
    invalid = api("POST", "/api/v1/ask", {"content": "Hello", "metadata": 1})
    assert (invalid.status_code, list(invalid.json()["error"]["fields"])) == (400, ["metadata"])


def test_the_schema_is_of_our_api_alone(api: Api) -> None:
    for _ in range(2):
        answer = api("GET", "/api/v1/schema", Authorization=None)
        assert answer.status_code == 200, answer.text
    schema = answer.json()
    assert schema["servers"] == [{"url": "/memory"}]
    assert schema["info"]["title"] == "memorygw"
    assert {"/api/v1/ask", "/api/v1/threads", "/api/v1/facts"} <= set(schema["paths"])
    assert all(path.startswith(("/api/v1/", "/v1/")) for path in schema["paths"])


def test_the_docs_page_shows_our_schema(api: Api) -> None:
    for _ in range(2):
        answer = api("GET", "/api/v1/docs", Authorization=None)
        assert answer.status_code == 200, answer.text
    assert "/memory/api/v1/schema" in answer.text


def test_the_pages_are_there_under_the_hosts_prefix_and_in_its_language(host: Host) -> None:
    code = """
from django.contrib.auth.models import User
from django.contrib.staticfiles import finders
from django.test import Client
client = Client(SERVER_NAME="127.0.0.1", headers={"accept-language": "de"})
away = client.get("/mine/me/memory/")
client.force_login(User.objects.create_user("ann"))
page = client.get("/mine/me/memory/")
found = ["Mein Gedächtnis" in page.content.decode(), bool(finders.find("memorygw/pages.css"))]
print(json.dumps([away.headers["Location"], page.status_code, *found]))
"""
    assert host.script(code) == ["/accounts/login/?next=/mine/me/memory/", 200, True, True]


def test_it_is_alive_and_ready(api: Api) -> None:
    assert api("GET", "/livez").status_code == 200
    assert api("GET", "/readyz").status_code == 200


def test_it_is_alive_without_its_database(host: Host, api: Api) -> None:
    with closing(sqlite3.connect(host.database, isolation_level=None)) as database:
        database.execute("BEGIN EXCLUSIVE")
        assert api("GET", "/livez").status_code == 200


def test_the_hosts_own_api_keeps_its_own_ways(api: Api, address: str) -> None:
    answer = api.session.get(f"{address}/posts", timeout=10)
    assert (answer.status_code, answer.headers["Content-Type"]) == (418, "text/html; charset=utf-8")
