"""O28 and S15, with real processes: erasing while work is in flight, and after a backup was restored.

What is looked for is looked for in the whole database as the database itself dumps it, in Redis, and in the logs.
"""

import shutil
import signal
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import psycopg
import pytest
import redis
import requests

from memorygw.testing import RecordedRequest, ScriptedModelServer
from tests.conftest import NO_OPERATIONS
from tests.e2e.conftest import PYTHON, Caller, Gateway, kill, own_gateway, wait_for

MARKER = "MARKER-9F3A"


def dump(gateway: Gateway) -> str:
    """Every row of every table, by the database's own means."""
    url = gateway.environment["DATABASE_URL"]
    if url.startswith("postgres"):
        return subprocess.run(["pg_dump", "--inserts", url], capture_output=True, text=True, check=True).stdout
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as database:
        return "\n".join(database.iterdump())


def redis_text(gateway: Gateway) -> str:
    """Every key of the broker and what it holds."""
    if not gateway.brokered:
        return ""
    client = redis.Redis.from_url(gateway.environment["MEMORYGW_BROKER_URL"])
    keys = list(client.scan_iter())
    return repr([(key, client.dump(key)) for key in keys])


def everywhere(gateway: Gateway) -> str:
    files = [gateway.log, *(file for file in gateway.log.parent.rglob("*.json"))]
    return dump(gateway) + redis_text(gateway) + "".join(file.read_text() for file in files)


def answers(request: RecordedRequest) -> dict[str, Any]:
    if '"operations"' not in request.text:
        return {"summary": f"About {MARKER}.", "facts": [MARKER]}
    if MARKER not in request.text:
        return NO_OPERATIONS
    return {"operations": [{"op": "SET", "key": "city", "value": MARKER}]}


def live(caller: Caller, user: str) -> list[str]:
    """Two threads, facts in every state, notes, an idempotent request."""
    threads = [caller.ask(f"I live in {MARKER}.", user=user)["thread_id"] for _ in range(2)]
    for number in range(3):
        caller("PUT", "/facts", {"key": f"fact {number}", "value": f"{MARKER} {number}"}, user=user)
    caller("POST", "/facts", {"facts": [f"Once went to {MARKER}."]}, user=user, expect=201)
    headers = {"Authorization": f"Bearer {caller.key}", "Idempotency-Key": uuid4().hex}
    url = f"{caller.gateway.base_url}/api/v1/threads?user={user}"
    assert requests.post(url, json={"title": MARKER}, headers=headers, timeout=60).status_code == 201
    return threads


@pytest.fixture
def gateway(model: ScriptedModelServer, tmp_path: Path) -> Iterator[Gateway]:
    values = {"MEMORYGW_ERASURE_LEDGER": str(tmp_path / "ledger"), "MEMORYGW_UPDATE_EVERY_TURNS": "2"}
    with own_gateway(model, tmp_path, **values) as own:
        own.serve()
        if own.brokered:
            own.work()
        yield own


def forget(caller: Caller, user: str, **options: object) -> dict[str, int]:
    receipt = caller("POST", f"/users/{user}/forget", {"mode": "delete", **options}, user=user)
    assert receipt["verified"] is True, receipt["found"]
    counts: dict[str, int] = receipt["counts"]
    return counts


def everything_of(caller: Caller, user: str) -> object:
    exported = caller("GET", f"/users/{user}/export", user=user)
    del exported["exported_at"]
    return exported


@pytest.mark.rows("U11", "U69", "T99")
def test_a_person_is_erased_while_something_is_learned_of_them(gateway: Gateway, model: ScriptedModelServer) -> None:
    caller = gateway.key("acme", role="admin")
    model.defaults["cheap"] = answers
    live(caller, "e-10")
    gateway.until_idle()
    before = everything_of(caller, "e-10")
    live(caller, "e-9")
    gateway.until_idle()
    assert MARKER in dump(gateway)
    with model.hold("cheap"):
        caller.ask(f"And now {MARKER} again.", user="e-9")
        seen = len(model.requests_for("cheap"))
        wait_for(lambda: len(model.requests_for("cheap")) > seen - 1, "the extraction")
        counts = forget(caller, "e-9")
    assert (counts["threads"], counts["facts"]) == (4, 5)
    gateway.until_idle()
    assert set(forget(caller, "e-9").values()) == {0}
    caller("PUT", "/facts", {"key": "new", "value": "start"}, user="e-9")
    assert caller.facts("e-9") == {"new": "start"}
    assert everything_of(caller, "e-10") == before
    forget(caller, "e-10")
    assert MARKER not in everywhere(gateway)


def test_a_restored_backup_is_noticed_and_set_right(
    gateway: Gateway, model: ScriptedModelServer, tmp_path: Path
) -> None:
    caller = gateway.key("acme", role="admin")
    model.defaults["cheap"] = answers
    live(caller, "ada")
    gateway.until_idle()
    backup = back_up(gateway, tmp_path)
    caller("PUT", "/facts", {"key": "city", "value": "Rome"}, user="somebody else")
    forget(caller, "ada")
    assert ready(gateway) == 200
    gateway.stop()
    restore(gateway, backup)
    gateway.processes.clear()
    gateway.serve()
    caller("PUT", "/facts", {"key": "city", "value": "Oslo"}, user="a new person")
    assert MARKER in dump(gateway)
    assert ready(gateway) == 503
    assert '"people": 1' in gateway.manage("replay_erasures", "--dry-run", "--json")
    gateway.manage("replay_erasures")
    assert ready(gateway) == 200
    backup.unlink()
    assert MARKER not in everywhere(gateway)
    assert caller.facts("a new person") == {"city": "Oslo"}
    gateway.manage("verify_receipts", "--deep")


def ready(gateway: Gateway) -> int:
    return requests.get(f"{gateway.base_url}/readyz", timeout=30).status_code


def back_up(gateway: Gateway, folder: Path) -> Path:
    url, file = gateway.environment["DATABASE_URL"], folder / "backup"
    if url.startswith("postgres"):
        subprocess.run(["pg_dump", "--format=custom", f"--file={file}", url], check=True)
    else:
        database = sqlite3.connect(url.removeprefix("sqlite:///"))
        with closing(database), closing(sqlite3.connect(file)) as copy:
            database.backup(copy)
    return file


def restore(gateway: Gateway, backup: Path) -> None:
    url = gateway.environment["DATABASE_URL"]
    if url.startswith("postgres"):
        name = urlsplit(url).path[1:]
        with psycopg.connect(urlsplit(url)._replace(path="/postgres").geturl(), autocommit=True) as admin:
            admin.execute(f'DROP DATABASE "{name}" WITH (FORCE)')
            admin.execute(f'CREATE DATABASE "{name}"')
        subprocess.run(["pg_restore", f"--dbname={url}", str(backup)], check=True)
        return
    database = Path(url.removeprefix("sqlite:///"))
    for suffix in ("-wal", "-shm"):
        database.with_name(database.name + suffix).unlink(missing_ok=True)
    shutil.copy(backup, database)


def test_an_erasure_whose_process_is_killed_is_finished_by_the_sweep(
    gateway: Gateway, model: ScriptedModelServer
) -> None:
    """S9: a row at a time, and killed between two of them."""
    caller = gateway.key("acme", role="admin")
    for _ in range(3):
        live(caller, "ada")
    gateway.until_idle()
    expected = caller("POST", "/users/ada/forget", {"mode": "delete", "dry_run": True}, user="ada")["counts"]
    slow = "from memorygw import gateway, purge; purge.BATCH_ROWS = 1; gateway.forget_user('acme', 'ada')"
    process = gateway._start(*PYTHON, "manage.py", "shell", "-c", slow)
    wait_for(lambda: _rows_gone(caller, expected) >= 5, "the first rows to go")
    kill(process, signal.SIGKILL)
    process.wait(10)
    left = caller("POST", "/users/ada/forget", {"mode": "delete", "dry_run": True}, user="ada")["counts"]
    assert left["threads"], "It was killed before its end."
    # What would take a minute: it counts as left by its process then.
    ago = "timezone.now() - timedelta(minutes=2)"
    imports = (
        "from datetime import timedelta; from django.utils import timezone; from usermemory.models import UserMemory"
    )
    more = "from memorygw.models import *"
    aged = f"UserMemory.objects.update(erasing_at={ago}); ErasureReceipt.objects.update(touched_at={ago})"
    gateway.manage("shell", "-c", f"{imports}; {more}; {aged}")
    wait_for(lambda: bool(_receipts(caller)) and _receipts(caller)[0]["status"] == "done", "the sweep")
    [receipt] = _receipts(caller)
    assert receipt["counts"] == expected
    assert receipt["verified"] is True
    assert MARKER not in everywhere(gateway)


def _rows_gone(caller: Caller, expected: dict[str, int]) -> int:
    left = caller("POST", "/users/ada/forget", {"mode": "delete", "dry_run": True}, user="ada")["counts"]
    return sum(expected.values()) - int(sum(left.values()))


def _receipts(caller: Caller) -> list[dict[str, Any]]:
    return list(caller("GET", "/erasures", user="ada")["items"])
