"""The server of a run, in a process of its own on the run's database, and what a client of it needs."""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import requests
from django.contrib.auth.models import User
from django.db import connection
from rest_framework.authtoken.models import Token

from memorygw import gateway
from memorygw.models import Tenant

ROOT = Path(__file__).resolve().parent.parent
_TIMEOUT_SECONDS = 60


@dataclass(frozen=True)
class Client:
    """One user of one of the two APIs, over the kept connection of ``session``."""

    session: requests.Session
    address: str
    headers: Mapping[str, str]

    def get(self, path: str, **query: Any) -> Any:
        return self._send("GET", path, params=query)

    def post(self, path: str, body: Any) -> Any:
        return self._send("POST", path, json=body)

    def _send(self, method: str, path: str, **options: Any) -> Any:
        """The answer's JSON; `requests.HTTPError` for any but a success."""
        url = f"{self.address}{path}"
        response = self.session.request(method, url, headers=self.headers, timeout=_TIMEOUT_SECONDS, **options)
        response.raise_for_status()
        return response.json()


@dataclass(frozen=True)
class Site:
    """Where the server listens, and the credentials of both APIs: one key of ours, one token a user by hand."""

    address: str
    key: str
    tokens: Mapping[str, str]

    def ours(self, user: str, session: requests.Session) -> Client:
        headers = {"Authorization": f"Bearer {self.key}", "X-Memorygw-User": user}
        return Client(session, f"{self.address}/api/v1", headers)

    def by_hand(self, user: str, session: requests.Session) -> Client:
        return Client(session, f"{self.address}/by-hand", {"Authorization": f"Token {self.tokens[user]}"})


def kept_connection() -> requests.Session:
    """A session that asks neither for proxies nor for passwords in files, which takes its time on each request."""
    session = requests.Session()
    session.trust_env = False
    return session


@contextmanager
def serving(users: Sequence[str]) -> Iterator[Site]:
    _, key = gateway.create_api_key(Tenant.DEFAULT, role="service", name="benchmarks")
    tokens = {user: Token.objects.create(user=User.objects.create(username=user)).key for user in users}
    with _process() as (_, address):
        yield Site(address, key, tokens)


@contextmanager
def serving_model(base_url: str, *, threads: int) -> "Iterator[tuple[subprocess.Popen[str], str, str]]":
    """A server in front of that model: its process, address and a key of its default tenant."""
    _, key = gateway.create_api_key(Tenant.DEFAULT, role="service", name="benchmarks")
    more = {"MEMORYGW_LLM_BASE_URL": base_url, "MEMORYGW_DB_POOL_SIZE": "10", "MEMORYGW_EXTRACTION_ENABLED": "false"}
    with _process("--threads", str(threads), **more) as (process, address):
        yield process, address, key


@contextmanager
def _process(*arguments: str, **more: str) -> "Iterator[tuple[subprocess.Popen[str], str]]":
    """`manage.py serve` on a free port; gives the process and the address."""
    environment = os.environ | {
        "DATABASE_URL": _database_url(),
        # What a sweep finds is no part of any request; no request needs a model, and nothing listens here.
        "MEMORYGW_SWEEP_EVERY_SECONDS": "3600",
        "MEMORYGW_THROTTLE_KEY": "",
        "MEMORYGW_THROTTLE_USER": "",
        "MEMORYGW_LLM_BASE_URL": "http://127.0.0.1:9/v1",
        **more,
    }
    with subprocess.Popen(
        [sys.executable, "manage.py", "serve", "--port", "0", *arguments],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        # An interrupt from the keyboard is ours to handle.
        start_new_session=True,
    ) as process:
        try:
            yield process, _address(process)
        finally:
            _stop(process)


def _address(process: "subprocess.Popen[str]") -> str:
    assert process.stdout
    line = process.stdout.readline()
    if "http://" not in line:
        raise RuntimeError("The server did not start.")
    return line.split()[-1]


def _stop(process: "subprocess.Popen[str]") -> None:
    process.terminate()
    try:
        process.wait(_TIMEOUT_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()


def _database_url() -> str:
    name = connection.settings_dict["NAME"]
    if connection.vendor == "sqlite":
        return f"sqlite:///{name}"
    return urlsplit(os.environ["DATABASE_URL"])._replace(path=f"/{name}").geturl()
