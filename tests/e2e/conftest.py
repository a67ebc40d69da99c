"""The system as it runs: a serving process, its worker, a database of its own, and a scripted model.

On SQLite the worker is embedded. With MEMORYGW_BROKER_URL a real Celery worker process listens on that broker; with a
PostgreSQL DATABASE_URL a fresh database is made there. A service that is named and missing fails here, it never skips.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit
from uuid import uuid4

import psycopg
import pytest
import redis
import requests
from redis.backoff import NoBackoff
from redis.retry import Retry

from memorygw.testing import ScriptedModelServer
from tests.conftest import cheap_default

ROOT = Path(__file__).resolve().parents[2]
PYTHON = [sys.executable, "-W", "error::DeprecationWarning"]
BROKER_URL = os.environ.get("MEMORYGW_BROKER_URL", "")

# Its tests break Redis; without it as the broker there is nothing to break.
collect_ignore = [] if BROKER_URL.startswith("redis") else ["test_redis.py"]


def clean_environment(**values: str) -> dict[str, str]:
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("MEMORYGW_", "OPENAI_", "DJANGO_"))
    }
    return kept | {"SECRET_KEY": "only for tests " * 5} | values


@contextmanager
def fresh_database(folder: Path) -> Iterator[str]:
    """The URL of a new database: on the PostgreSQL server that DATABASE_URL names, else a file of SQLite."""
    url = os.environ.get("DATABASE_URL", "")
    if not url.startswith("postgres"):
        yield f"sqlite:///{folder / 'memorygw.sqlite3'}"
        return
    name = f"memorygw_e2e_{uuid4().hex[:8]}"
    server = urlsplit(url)._replace(path="/postgres").geturl()
    with psycopg.connect(server, autocommit=True) as admin:
        admin.execute(f'CREATE DATABASE "{name}"')
    try:
        yield urlsplit(url)._replace(path=f"/{name}").geturl()
    finally:
        with psycopg.connect(server, autocommit=True) as admin:
            admin.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


@pytest.fixture(scope="session")
def database_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with fresh_database(tmp_path_factory.mktemp("e2e")) as url:
        yield url


@pytest.fixture(scope="session")
def scripted_model() -> Iterator[ScriptedModelServer]:
    with ScriptedModelServer() as server:
        yield server


@dataclass
class Gateway:
    """A running gateway: its processes, and a client of its API."""

    environment: dict[str, str]
    log: Path
    processes: list["subprocess.Popen[str]"] = field(default_factory=list)
    base_url: str = ""

    @property
    def brokered(self) -> bool:
        """Whether the background work is done by a process of its own."""
        return "MEMORYGW_BROKER_URL" in self.environment

    def manage(self, *arguments: str) -> str:
        done = subprocess.run(
            [*PYTHON, "manage.py", *arguments],
            cwd=ROOT,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def serve(self) -> "subprocess.Popen[str]":
        process = self._start(*PYTHON, "manage.py", "serve", "--port", "0", "--threads", "64")
        assert process.stdout is not None
        while "http://" not in (line := process.stdout.readline()):
            assert line, f"The server did not start:\n{self.log.read_text()}"
        self.base_url = line.split()[-1]
        return process

    def work(self, *, beat: bool = True) -> "subprocess.Popen[str]":
        """A real worker process, once it is ready, with or without the clock of periodic work."""
        clock = ["--beat", self._schedule] if beat else []
        ready_before = self.log.read_text().count(" ready.")
        alone = ["--without-mingle", "--without-gossip"]
        process = self._start(
            *PYTHON, "-m", "celery", "-A", "memorygw", "worker", "--concurrency=2", "--loglevel=INFO", *alone, *clock
        )
        wait_for(lambda: self.log.read_text().count(" ready.") > ready_before, "the worker")
        return process

    def tick(self) -> "subprocess.Popen[str]":
        """The clock of periodic work as a process of its own, which a dying worker does not take along."""
        return self._start(*PYTHON, "-m", "celery", "-A", "memorygw", "beat", self._schedule)

    @property
    def _schedule(self) -> str:
        return f"--schedule={self.log.with_name('beat-schedule')}"

    def _start(self, *command: str) -> "subprocess.Popen[str]":
        with self.log.open("a") as log:
            process = subprocess.Popen(
                command,
                cwd=ROOT,
                env=self.environment,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        self.processes.append(process)
        return process

    def stop(self) -> None:
        for process in self.processes:
            kill(process, signal.SIGTERM)
        for process in self.processes:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                kill(process, signal.SIGKILL)
            if process.stdout:
                process.stdout.close()

    def key(self, tenant: str, role: str = "service") -> "Caller":
        made = json.loads(self.manage("create_api_key", "--tenant", tenant, "--role", role, "--name", "e2e", "--json"))
        assert made["tenant"] == tenant
        return Caller(self, made["key"], tenant)

    def until_idle(self) -> None:
        self.manage("sweep", "--until-idle", "--timeout", "60")


@dataclass
class Caller:
    """A program with a key."""

    gateway: Gateway
    key: str
    tenant: str

    def __call__(self, method: str, path: str, body: Any = None, *, user: str, expect: int = 200) -> Any:
        response = self.send(method, path, body, user=user)
        assert response.status_code == expect, response.text
        return response.json() if response.content else None

    def send(self, method: str, path: str, body: Any = None, *, user: str) -> requests.Response:
        return requests.request(
            method,
            f"{self.gateway.base_url}/api/v1{path}?user={quote(user, safe='')}",
            json=body,
            headers={"Authorization": f"Bearer {self.key}"},
            timeout=60,
        )

    def ask(self, content: str, *, user: str, thread_id: str | None = None, expect: int = 200) -> Any:
        path = f"/threads/{thread_id}/ask" if thread_id else "/ask"
        return self("POST", path, {"content": content}, user=user, expect=expect)

    def turns(self, thread_id: str, *, user: str) -> list[dict[str, Any]]:
        return list(self("GET", f"/threads/{thread_id}/turns", user=user)["items"])

    def facts(self, user: str) -> dict[str, str]:
        return {fact["key"]: fact["value"] for fact in self("GET", "/facts", user=user)["items"]}


def tell(caller: Caller, model: ScriptedModelServer, said: str, user: str, **facts: str) -> str:
    """A user says something in a new thread, and facts are learned from it; the thread's id."""

    def known() -> Any:
        return caller("GET", "/memories/count", user=user)

    operations = [{"op": "SET", "key": key, "value": value, "evidence": said} for key, value in facts.items()]
    model.reply({"operations": operations}, model="cheap")
    before = known()
    thread_id: str = caller.ask(said, user=user)["thread_id"]
    wait_for(lambda: known() != before, "what is learned")
    return thread_id


def kill(process: "subprocess.Popen[str]", number: int) -> None:
    """Signal the process and everything it started."""
    if process.poll() is None:
        os.killpg(process.pid, number)


def wait_for(condition: Callable[[], bool], what: str, seconds: float = 40) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"Waited {seconds} seconds for {what}."
        time.sleep(0.05)


def environment(database_url: str, model: ScriptedModelServer, **more: str) -> dict[str, str]:
    values = {
        "DATABASE_URL": database_url,
        "MEMORYGW_LLM_BASE_URL": model.base_url,
        "MEMORYGW_MODEL": "main",
        "MEMORYGW_CHEAP_MODEL": "cheap",
        "MEMORYGW_LLM_RETRIES": "0",
        "MEMORYGW_SWEEP_EVERY_SECONDS": "1",
        "MEMORYGW_TITLES_ENABLED": "false",
        "MEMORYGW_THROTTLE_KEY": "",
        "MEMORYGW_THROTTLE_USER": "",
        "MEMORYGW_BREAKER_FAILURES": "0",
        "MEMORYGW_PEPPER": "1:only for tests",
    }
    if BROKER_URL:
        values["MEMORYGW_BROKER_URL"] = BROKER_URL
    return clean_environment(**values | more)


@pytest.fixture(scope="session")
def running(
    database_url: str, scripted_model: ScriptedModelServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Gateway]:
    gateway = Gateway(
        environment(database_url, scripted_model, MEMORYGW_DB_POOL_SIZE="5", MEMORYGW_LEASE_SECONDS="3"),
        tmp_path_factory.mktemp("logs") / "log.txt",
    )
    gateway.log.touch()
    gateway.manage("migrate", "--verbosity", "0")
    try:
        gateway.serve()
        if gateway.brokered:
            gateway.work()
        yield gateway
    finally:
        gateway.stop()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class OwnRedis:
    """A redis-server that a test may stop; what it held is gone then."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self.client = redis.Redis(port=self.port, retry=Retry(NoBackoff(), 0))
        self.start()

    def start(self) -> None:
        options = {"port": self.port, "bind": "127.0.0.1", "save": "", "appendonly": "no", "dir": self.folder}
        command = ["redis-server", *(str(part) for name, value in options.items() for part in (f"--{name}", value))]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True, text=True)
        wait_for(self._answers, "Redis")

    def stop(self) -> None:
        kill(self.process, signal.SIGKILL)
        self.process.wait(10)

    def hush(self) -> None:
        """Take connections and requests, and answer nothing."""
        kill(self.process, signal.SIGSTOP)

    def resume(self) -> None:
        kill(self.process, signal.SIGCONT)

    def _answers(self) -> bool:
        with suppress(redis.ConnectionError):
            return bool(self.client.ping())
        return False


@contextmanager
def own_redis(folder: Path) -> Iterator[OwnRedis]:
    server = OwnRedis(folder)
    try:
        yield server
    finally:
        server.client.close()
        server.stop()


@contextmanager
def own_gateway(model: ScriptedModelServer, folder: Path, **values: str) -> Iterator[Gateway]:
    """A gateway apart from the running one, with a database and a broker of its own: a test may kill what it starts.

    ``values`` are for its environment; a test that breaks the broker makes one itself and names it there.
    """
    with ExitStack() as stack:
        if BROKER_URL.startswith("redis") and "MEMORYGW_BROKER_URL" not in values:
            values["MEMORYGW_BROKER_URL"] = stack.enter_context(own_redis(folder)).url
        url = stack.enter_context(fresh_database(folder))
        gateway = Gateway(environment(url, model, **values), folder / "log.txt")
        stack.callback(gateway.stop)
        gateway.log.touch()
        gateway.manage("migrate", "--verbosity", "0")
        yield gateway


@pytest.fixture
def e2e_model(running: Gateway, scripted_model: ScriptedModelServer) -> ScriptedModelServer:
    """The model of the running gateway, with nothing left to do from an earlier test."""
    scripted_model.reset()
    scripted_model.defaults["cheap"] = cheap_default
    running.until_idle()
    scripted_model.reset()
    scripted_model.defaults["cheap"] = cheap_default
    return scripted_model
