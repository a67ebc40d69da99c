"""The commands, as a shell and its scripts see them."""

import io
import json

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone
from pytest_django import Settings

from memorygw import gateway, keys, sweep
from memorygw.models import ApiKey, Tenant
from memorygw.testing import ScriptedModelServer
from tests.conftest import extractions, note_updates
from threads.models import Thread
from usermemory.models import ExtractionState


def run(*arguments: str) -> tuple[str, str]:
    out, err = io.StringIO(), io.StringIO()
    call_command(*arguments, stdout=out, stderr=err)
    return out.getvalue(), err.getvalue()


def test_a_key_is_printed_once_as_one_document(db: None) -> None:
    out, err = run("create_api_key", "--tenant", "acme", "--role", "admin", "--name", "laptop", "--json")
    made = json.loads(out)
    key = ApiKey.objects.get()
    assert made == {"id": str(key.pk), "tenant": "acme", "role": "admin", "name": "laptop", "key": made["key"]}
    assert keys.matches(made["key"], key.digest)
    assert err == ""
    out, err = run("create_api_key", "--tenant", "acme", "--role", "service", "--name", "phone")
    assert keys.prefix_of(out.strip())
    assert "never shown again" in err
    assert Tenant.objects.filter(name="acme").count() == 1
    for wrong in (["--role", "owner"], ["--role", "admin", "--tenant", " "]):
        with pytest.raises(CommandError):
            run("create_api_key", "--tenant", "acme", "--name", "x", *wrong)


def test_a_key_shows_nothing_of_itself(db: None) -> None:
    key, text = gateway.create_api_key("acme", role="admin", name="laptop")
    assert text.split("_")[2] not in str(key)
    assert str(key).startswith("mgw_")


@pytest.mark.rows("W57")
def test_a_sweep_does_what_is_due_and_says_how_much(tenant: Tenant, model: ScriptedModelServer) -> None:
    thread_id = gateway.ask(tenant, "ada", "Hello").thread_id
    for _ in range(2):
        gateway.ask(tenant, "ada", "Hello", thread_id=thread_id)
    assert run("sweep", "--json")[0] == '{"found": 2}\n'
    assert (len(extractions(model)), len(note_updates(model))) == (1, 1)
    assert run("sweep")[0] == "Found 0 due.\n"
    assert run("sweep", "--until-idle", "--json")[0] == '{"idle": true}\n'


def test_late_work_on_a_thread_that_a_host_deleted_is_given_up(
    tenant: Tenant, model: ScriptedModelServer, settings: Settings
) -> None:
    settings.MEMORYGW_TITLES_ENABLED, settings.MEMORYGW_UPDATE_EVERY_TURNS = True, 2
    thread_id = gateway.ask(tenant, "ada", "Hello").thread_id
    assert len(list(sweep.due())) == 3
    Thread.objects.filter(pk=thread_id).update(deleted_at=timezone.now())
    assert sweep.until_idle(5)
    assert model.requests_for("cheap") == []


def test_waiting_for_idle_ends_in_an_error_when_time_runs_out(tenant: Tenant, model: ScriptedModelServer) -> None:
    thread_id = gateway.ask(tenant, "ada", "Hello").thread_id
    token = ExtractionState.objects.claim(thread_id)
    assert token is not None
    with pytest.raises(CommandError, match="Still not idle"):
        run("sweep", "--until-idle", "--timeout", "0.3")
    ExtractionState.objects.fail(thread_id, token, "timeout")
    assert run("sweep", "--until-idle")[0] == "Idle.\n"
    assert extractions(model) == []
