"""What the demo stands on: a server of its own, for as long as it lasts, and a client of its API."""

import os
import re
import secrets
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Timer
from typing import Any
from urllib.parse import quote

import requests
from django.core.management.base import CommandError

from memorygw.conf import MODEL_VARIABLES

OFFLINE_CLIENT = "memorygw.llm.offline.OfflineClient"
_START_SECONDS, _END_SECONDS, _COMMAND_SECONDS = 60, 20, 120
# As long as a real model may take, with its retries.
_ANSWER_SECONDS = 300
_TAIL_LINES = 15

# The model is the environment's choice; the rest is as the story needs it, whatever the environment or .env says.
_FIXED = {
    "DJANGO_SETTINGS_MODULE": "memorygw.settings",
    "DEBUG": "true",
    "ALLOWED_HOSTS": "127.0.0.1",
    "MEMORYGW_HTTPS": "false",
    "MEMORYGW_BROKER_URL": "",
    "CELERY_BROKER_URL": "",
    "MEMORYGW_EXTRACTION_ENABLED": "true",
    "MEMORYGW_EXTRACT_EVERY_TURNS": "10",
    "MEMORYGW_INJECTION_ENABLED": "true",
    "MEMORYGW_WORKING_MEMORY_ENABLED": "true",
    "MEMORYGW_WORKING_MEMORY": "SUMMARY_BUFFER",
    "MEMORYGW_UPDATE_EVERY_TURNS": "6",
}


def is_offline() -> bool:
    """Whether the offline model answers: the rule of `memorygw.settings` for a process that runs with DEBUG."""
    chosen = os.environ.get("MEMORYGW_LLM_CLIENT") == OFFLINE_CLIENT
    return chosen or not any(os.environ.get(name) for name in MODEL_VARIABLES)


class Stage:
    """A folder with a database and the log of the server that runs on it."""

    def __init__(self, folder: Path) -> None:
        self._log = folder / "server.log"
        self._environment = {
            **os.environ,
            **_FIXED,
            "DATABASE_URL": f"sqlite:///{quote(str(folder / 'demo.sqlite3'))}",
            "SECRET_KEY": secrets.token_urlsafe(50),
        }

    def manage(self, *arguments: str) -> str:
        """Run a management command; its standard output."""
        done = subprocess.run(  # noqa: S603  our own manage.py
            self._command(arguments),
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_COMMAND_SECONDS,
        )
        if done.returncode:
            raise CommandError(f"`manage.py {arguments[0]}` ended with {done.returncode}:\n{_tail(done.stderr)}")
        return done.stdout

    @contextmanager
    def server(self) -> Iterator[str]:
        """The address of a running server, which is ended when the block is left."""
        with (
            self._log.open("w") as log,
            subprocess.Popen(  # noqa: S603  our own manage.py
                self._command(["serve", "--port", "0"]),
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            ) as process,
        ):
            try:
                yield _address(process)
            finally:
                _end(process)

    def log_tail(self) -> str:
        return _tail(self._log.read_text()) if self._log.exists() else ""

    def _command(self, arguments: Sequence[str]) -> list[str]:
        return [sys.executable, str(Path(sys.argv[0]).resolve()), *arguments]


def _address(process: "subprocess.Popen[str]") -> str:
    # A server that does not come up must not be waited for: killed, it ends its output and so the reading below.
    watchdog = Timer(_START_SECONDS, process.kill)
    watchdog.start()
    try:
        found = (re.search(r"listens on (http://\S+)", line) for line in process.stdout or ())
        address = next(filter(None, found), None)
    finally:
        watchdog.cancel()
    if address is None:
        raise CommandError("The server did not start.")
    return address[1]


def _end(process: "subprocess.Popen[str]") -> None:
    process.terminate()
    try:
        process.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()


def _tail(text: str) -> str:
    return "\n".join(text.rstrip().splitlines()[-_TAIL_LINES:])


class Client:
    """The API as one user's application calls it."""

    def __init__(self, address: str, key: str, user: str) -> None:
        self.user = user
        self._root = f"{address}/api/v1/"
        self._session = requests.Session()
        # No proxy and no .netrc: the server is on this machine and has its own key.
        self._session.trust_env = False
        self._session.headers.update({"Authorization": f"Bearer {key}", "X-Memorygw-User": user})

    def get(self, path: str) -> Any:
        return self._json("GET", path)

    def post(self, path: str, **body: Any) -> Any:
        return self._json("POST", path, body)

    def status(self, path: str) -> int:
        return self._send("GET", path).status_code

    def _json(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        response = self._send(method, path, body)
        if not response.ok:
            raise CommandError(f"{method} /api/v1/{path} was answered with {response.status_code}: {response.text}")
        return response.json()

    def _send(self, method: str, path: str, body: dict[str, Any] | None = None) -> requests.Response:
        try:
            return self._session.request(method, self._root + path, json=body, timeout=_ANSWER_SECONDS)
        except requests.RequestException as error:
            raise CommandError(f"{method} /api/v1/{path} had no answer: {type(error).__name__}.") from error


@dataclass
class Thread:
    """A thread, and what its asks have cost so far. Without an id the first ask makes it."""

    label: str
    client: Client
    id: str = ""
    asks: int = 0
    usage: dict[str, int] = field(default_factory=lambda: {"prompt_tokens": 0, "completion_tokens": 0})

    def create(self) -> None:
        self.id = self.client.post("threads", title=self.label)["id"]

    def ask(self, content: str) -> list[dict[str, Any]]:
        """The two new turns: question and answer."""
        answer = self.client.post(f"threads/{self.id}/ask" if self.id else "ask", content=content)
        self.id = answer["thread_id"]
        self.asks += 1
        self.usage = {name: tokens + answer["usage"][name] for name, tokens in self.usage.items()}
        turns: list[dict[str, Any]] = answer["turns"]
        return turns

    def turns(self) -> list[dict[str, Any]]:
        turns: list[dict[str, Any]] = self.client.get(f"threads/{self.id}/turns")["items"]
        return turns

    def turn_that_says(self, value: str) -> int | None:
        """The number of the first turn in which the user says this."""
        said = (turn for turn in self.turns() if turn["role"] == "user")
        return next((turn["seq"] for turn in said if value.casefold() in str(turn["content"]).casefold()), None)
