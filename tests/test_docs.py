"""The documentation says what is so: its tables agree with the code, its links lead somewhere, its quickstart runs."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, Literal, get_args, get_origin

import pytest
from django.test import Client
from django.urls import URLPattern
from prometheus_client.parser import text_string_to_metric_families
from pytest_django import Settings

from memorygw.api import urls
from memorygw.checks import check_tools
from memorygw.conf import MODEL_VARIABLES, Conf, Range, Rate, kinds, plain_type
from memorygw.conf import Path as DottedPath
from memorygw.exceptions import ExtractionError, MemorygwError
from memorygw.testing import ScriptedModelServer
from tests.conftest import Api, learn
from threads.store import ThreadStore
from usermemory.store import UserMemoryStore
from workingmemory.memory import WorkingMemory

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
OURS = ("MEMORYGW_", "CELERY_", "OPENAI_", "DJANGO_")


def page(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def rows(name: str, columns: int) -> Iterator[list[str]]:
    """The cells of every table row of a page that begins with code and has so many columns."""
    for line in page(name).splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if len(cells) == columns and cells[0].startswith("`"):
            yield cells


# --- tables


def test_every_setting_is_documented_with_its_values_and_default() -> None:
    documented = {cells[0]: cells[1:3] for cells in rows("docs/reference/settings.md", 4)}
    assert documented == {
        f"`MEMORYGW_{name}`": [values(kind), spelt(getattr(Conf, name))] for name, kind in kinds().items()
    }


def values(kind: Any) -> str:
    """What a setting may be, in the words of the page."""
    if kind == DottedPath:
        return "dotted path"
    if get_origin(kind) is Literal:
        return "one of " + ", ".join(f"`{choice}`" for choice in get_args(kind))
    words = {str: "text", int: "whole number", float: "number", bool: "true or false", dict: "object", list: "list"}
    bounds = [
        str(bounds)
        for bounds in get_args(kind)[1:]
        if get_origin(kind) is Annotated and isinstance(bounds, Range | Rate)
    ]
    return ", ".join([words[plain_type(kind)], *bounds])


def spelt(default: Any) -> str:
    """A default as an environment variable would spell it."""
    if default == "":
        return "empty"
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    return f"`{default:g}`" if isinstance(default, float) else f"`{default}`"


def test_every_other_variable_that_is_read_is_documented() -> None:
    read = set(re.findall(r'\benv\.\w+\(\s*"([A-Z_]+)"', page("memorygw/settings.py"))) | {
        "OPENAI_API_KEY",
        "PROMETHEUS_MULTIPROC_DIR",
    }
    other = page("docs/reference/settings.md").partition("## Other variables")[2]
    assert read == set(re.findall(r"^\| `([A-Z_]+)` \|", other, re.MULTILINE))


def test_every_error_is_documented_with_its_status_and_number() -> None:
    documented = {cells[0].strip("`"): cells[1:3] for cells in rows("docs/reference/api.md", 4)}
    expected = {
        error.code: ["–" if issubclass(error, ExtractionError) else str(error.status), str(error.number or "")]
        for error in subclasses(MemorygwError)
        if "code" in vars(error)
    }
    assert {code: documented.get(code) for code in expected} == expected


def subclasses(base: type[MemorygwError]) -> Iterator[type[MemorygwError]]:
    for child in base.__subclasses__():
        yield child
        yield from subclasses(child)


def test_every_endpoint_is_documented_and_no_other() -> None:
    documented = [
        call for cells in rows("docs/reference/api.md", 2) for call in re.findall(r"^`([A-Z]+ /\S+)`$", cells[0])
    ]
    expected = {call for pattern in urls.api for call in calls(pattern)}
    assert sorted(documented) == sorted(expected - {"PUT /facts/context", "DELETE /facts/context"})


def calls(pattern: URLPattern) -> Iterator[str]:
    path = re.sub(r"<\w+:(\w+)>", r"{\1}", str(pattern.pattern))
    return (f"{method.upper()} /{path}" for method in getattr(pattern.callback, "actions", {}) if method != "head")


@pytest.mark.parametrize("store", [UserMemoryStore, WorkingMemory, ThreadStore])
def test_every_method_of_a_replaceable_store_is_documented(store: type) -> None:
    text = page("docs/how-to/host-project.md").partition(f"Shipped: `{store.__module__}.{store.__name__}`")[2]
    documented = re.findall(r"^\| `(\w+)\(", text.partition("###")[0], re.MULTILINE)
    assert sorted(documented) == sorted(name for name in dir(store) if not name.startswith("_"))


@pytest.mark.django_db
def test_every_metric_is_documented_with_its_labels(client: Client, api: Api, model: ScriptedModelServer) -> None:
    api.ask()
    learn()
    documented = {cells[0]: set(re.findall(r"`(\w+)`", cells[1])) for cells in rows("docs/how-to/production.md", 3)}
    told: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(client.get("/metrics").content.decode()):
        if not family.name.endswith("_created"):
            labels = {label for sample in family.samples for label in sample.labels if label != "le"}
            told[f"`{family.name}{'_total' if family.type == 'counter' else ''}`"] = labels
    assert documented == told


def test_every_command_is_documented() -> None:
    files = (ROOT / "memorygw" / "management" / "commands").glob("[!_]*.py")
    headings = re.findall(r"^### (\w+)$", page("docs/reference/commands.md"), re.MULTILINE)
    assert sorted(headings) == sorted(file.stem for file in files)
    targets = re.findall(r"^(\w+):", page("Makefile"), re.MULTILINE)
    assert sorted(targets) == sorted(re.findall(r"`make (\w+)` \|", page("docs/reference/commands.md")))


# --- every page


@pytest.mark.parametrize("file", PAGES, ids=lambda file: str(file.relative_to(ROOT)))
def test_links_lead_somewhere(file: Path) -> None:
    prose = re.sub(r"^```.*?^```$", "", file.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    links = [link for link in re.findall(r"\]\(([^)\s]+)\)", prose) if not re.match(r"[a-z]+:", link)]
    assert [link for link in links if not (file.parent / link.partition("#")[0]).is_file()] == []


@pytest.mark.parametrize("file", PAGES, ids=lambda file: str(file.relative_to(ROOT)))
def test_nothing_is_left_to_do_and_no_machine_is_named(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    assert re.findall(r"\b(?:TODO|FIXME|XXX|TBD)\b", text) == []
    assert re.findall(r"(?<![\w.}])(?:~|/(?:home|root|Users|tmp|var|opt|srv|mnt|work|workspace))/\S*", text) == []


def test_every_page_is_reached_from_the_index() -> None:
    index = ROOT / "docs" / "index.md"
    linked = {(index.parent / link).resolve() for link in re.findall(r"\]\(([^)\s]+)\)", index.read_text("utf-8"))}
    assert linked == {file for file in PAGES if file.is_relative_to(index.parent)} - {index}


@pytest.mark.parametrize("file", sorted((ROOT / "docs" / "examples").glob("*.py")), ids=lambda file: file.name)
def test_every_example_is_shown_as_it_is(file: Path) -> None:
    example = file.read_text(encoding="utf-8")
    assert any(example in blocks("python", page.read_text(encoding="utf-8")) for page in PAGES)


# --- the quickstart


def test_the_quickstart_runs(tmp_path: Path) -> None:
    assert shutil.which("curl"), "The quickstart of README.md needs curl, and this machine has none."
    [script] = blocks("bash", page("README.md"))
    done = play(script, tmp_path)
    assert '"content":"I remember this about you: name: Ada; home: Turin.' in done
    assert '"key":"home","value":"Turin"' in done
    assert '"system":"<user_memory>' in done
    assert '"threads":2' in done
    assert '"verified":true' in done
    assert done.endswith('{"items":[]}\n')


def test_the_examples_of_runs_and_tools_run(tmp_path: Path) -> None:
    [quickstart] = blocks("bash", page("README.md"))
    opening = quickstart.partition("# Learning goes on")[0]
    done = play("\n".join([opening, *blocks("bash", page("docs/how-to/tools.md"))]), tmp_path)
    assert '"status":"awaiting_human","pending":[{"tool_call_id":"call_' in done
    assert '"key":"favourite tea","value":"Assam"' in done
    assert '"status":"cancelled"' in done
    assert '{"content":"Remembered."}' in done
    assert '"content":"Where am I?"' in done


def test_the_examples_of_review_run(tmp_path: Path) -> None:
    [quickstart] = blocks("bash", page("README.md"))
    opening = quickstart.partition("# Ada says something")[0]
    done = play("\n".join([opening, *blocks("bash", page("docs/how-to/review.md"))]), tmp_path)
    assert done.count('"status":"pending_review"') == 2
    listed = json.loads(done.splitlines()[-1])["data"]
    assert [(memory["key"], memory["value"], memory["status"]) for memory in listed] == [("home", "Turin", "active")]


def test_the_examples_of_chat_by_curl_run(tmp_path: Path) -> None:
    [quickstart] = blocks("bash", page("README.md"))
    opening = quickstart.partition("# Ada says something")[0]
    whole, streamed = play("\n".join([opening, *blocks("bash", page("docs/how-to/openai.md"))]), tmp_path).split(
        "data: ", 1
    )
    assert '"object":"chat.completion"' in whole
    chunks = [line.removeprefix("data: ") for line in f"data: {streamed}".splitlines() if line.startswith("data: ")]
    assert chunks.pop() == "[DONE]"
    assert "Turin" in "".join(json.loads(chunk)["choices"][0]["delta"].get("content") or "" for chunk in chunks)


@pytest.mark.django_db
def test_the_python_examples_of_tools_run(
    model: ScriptedModelServer, settings: Settings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shop, setting, client = blocks("python", page("docs/how-to/tools.md"))
    module = ModuleType("shop.tools")
    exec(shop, vars(module))  # noqa: S102  the page is ours
    monkeypatch.setitem(sys.modules, "shop", ModuleType("shop"))
    monkeypatch.setitem(sys.modules, "shop.tools", module)
    values: dict[str, Any] = {}
    exec(setting, values)  # noqa: S102
    settings.MEMORYGW_TOOLS = values["MEMORYGW_TOOLS"]
    assert check_tools() == []
    calls = [
        {"id": name, "type": "function", "function": {"name": name, "arguments": arguments}}
        for name, arguments in {"get_order_status": '{"order": "A7"}', "get_time": "{}"}.items()
    ]
    model.reply(None, model="main", tool_calls=calls)
    model.reply("It is noon.", model="main")
    exec(client, {})  # noqa: S102
    assert capsys.readouterr().out == "It is noon.\n"
    results = [message["content"] for message in model.requests[-1].messages if message["role"] == "tool"]
    assert results == ['{"order": "A7", "user": "ada", "status": "shipped"}', "12:00"]


def blocks(language: str, text: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def play(script: str, folder: Path) -> str:
    """What a script of the documentation prints, against a server as `make serve` starts it."""
    # A variable that is set and empty wins over a developer's .env.
    nothing = dict.fromkeys((*MODEL_VARIABLES, "MEMORYGW_BROKER_URL", "CELERY_BROKER_URL"), "")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
    own = {"DEBUG": "true", "SECRET_KEY": "only for tests " * 5, "DATABASE_URL": f"sqlite:///{folder / 'db.sqlite3'}"}
    environment = {**kept, **nothing, **own, "no_proxy": "127.0.0.1"}
    with server(environment, folder / "log.txt") as address:
        script = script.replace("http://127.0.0.1:8000", address).replace(".venv/bin/python", sys.executable)
        assert address in script
        return run(environment, "bash", "-e", "-u", "-o", "pipefail", "-c", script)


@contextmanager
def server(environment: dict[str, str], log: Path) -> Iterator[str]:
    """What `make serve` does, on a free port; gives the address."""
    manage = [sys.executable, "manage.py"]
    run(environment, *manage, "migrate", "--verbosity", "0")
    with (
        log.open("w") as errors,
        subprocess.Popen(
            [*manage, "serve", "--port", "0"],
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        ) as process,
    ):
        assert process.stdout
        try:
            line = process.stdout.readline()
            assert "http://" in line, log.read_text()
            yield line.split()[-1]
        finally:
            process.terminate()


def run(environment: dict[str, str], *command: str) -> str:
    """What the command prints. A failure shows everything it said."""
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout
