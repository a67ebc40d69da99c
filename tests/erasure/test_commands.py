"""The commands of a data protection officer: what they print, and their exit codes."""

import json
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from memorygw import gateway
from memorygw.models import Tenant
from memorygw.testing import ScriptedModelServer

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def ada(tenant: Tenant, model: ScriptedModelServer) -> None:
    gateway.ask(tenant, "ada", "Hello")
    gateway.upsert_user_fact(tenant, "ada", "city", "Turin")


def run(name: str, *arguments: str, tenant: str = "acme", user: str = "ada") -> str:
    out = StringIO()
    call_command(name, "--tenant", tenant, "--user", user, *arguments, stdout=out)
    return out.getvalue()


@pytest.mark.parametrize(("name", "mode"), [("forget_user", "delete"), ("anonymize_user", "anonymize")])
def test_a_dry_run_and_then_the_same_for_good(name: str, mode: str) -> None:
    dry: dict[str, Any] = json.loads(run(name, "--dry-run", "--json"))
    assert (dry["mode"], dry["status"], dry["counts"]["turns"], dry["counts"]["facts"]) == (mode, "dry_run", 2, 1)
    done = json.loads(run(name, "--json"))
    assert (done["mode"], done["status"], done["requested_by"]) == (mode, "done", "command")
    assert done["counts"] == dry["counts"]


def test_what_a_person_reads_is_a_table() -> None:
    lines = run("forget_user").splitlines()
    assert any("turns" in line and "2" in line for line in lines)
    assert lines[-1].endswith("number 1; verified: True.")
    assert max(map(len, lines)) <= 100


def test_a_busy_thread_has_an_exit_code_of_its_own(tenant: Tenant) -> None:
    thread = gateway.list_threads(tenant, "ada").items[0]
    gateway.acquire_lease(tenant, "ada", thread.pk)
    with pytest.raises(CommandError, match="Nothing is erased") as busy:
        run("forget_user")
    assert busy.value.returncode == 3
    assert json.loads(run("forget_user", "--force", "--json"))["verified"] is True


@pytest.mark.parametrize("arguments", [{"tenant": "nobody's"}, {"user": "*"}, {"user": ""}], ids=str)
def test_who_is_not_there_is_said(arguments: dict[str, str]) -> None:
    with pytest.raises(CommandError) as refused:
        run("forget_user", **arguments)
    assert refused.value.returncode == 1
