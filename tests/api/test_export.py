"""The export over REST, and by the command."""

import json
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from django.core.management import CommandError, call_command
from django.test import Client

from memorygw import gateway
from memorygw.models import Tenant
from memorygw.testing import ScriptedModelServer
from tests.conftest import Api
from tests.memorygw.test_exporting import make_turns, validate


def without_time(document: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in document.items() if name != "exported_at"}


def test_an_admin_key_gets_a_file_that_nobody_keeps(api: Api, model: ScriptedModelServer) -> None:
    assert api.ask("I am Ада.").status == 200
    answer = api("GET", "/users/ada/export", user="bob")
    assert answer.status == 200
    assert answer.headers["Content-Type"] == "application/json"
    assert answer.headers["Content-Disposition"] == 'attachment; filename="export.json"'
    assert answer.headers["Cache-Control"] == "no-store"
    validate(answer.body)
    assert [turn["content"] for turn in answer.body["threads"][0]["turns"]] == ["I am Ада.", "ok"]
    assert without_time(api("GET", "/users/export").body) == without_time(answer.body)
    assert api("GET", "/users/export", user="bob").body["threads"] == []


@pytest.mark.parametrize("user", ["a/b", "export", "export/export", "Ада?&#", "../ada"])
def test_any_user_id_can_be_exported(api: Api, user: str) -> None:
    api("PUT", "/facts", {"key": "name", "value": user}, user=user)
    anybody = Api(api.key, None)
    for answer in (
        api("GET", "/users/export", user=user),
        anybody("GET", f"/users/{quote(user, safe='')}/export"),
    ):
        assert (answer.status, answer.body["user_id"], answer.body["facts"][0]["value"]) == (200, user, user)


def test_what_cannot_be_exported_has_a_status_of_its_own(api: Api, service_api: Api) -> None:
    assert service_api("GET", "/users/ada/export").error["code"] == "forbidden"
    assert Api(api.key, None)("GET", "/users/export").error["code"] == "user_required"
    assert api("GET", "/users/*/export").error["code"] == "user_required"


def test_it_is_sent_as_it_is_read(api: Api, tenant: Tenant) -> None:
    make_turns(tenant, 2_000, "Hello")
    response = Client().get("/api/v1/users/ada/export", headers={"Authorization": f"Bearer {api.key}"})
    assert response.streaming
    chunks = list(response)
    assert len(chunks) > 2
    assert len(json.loads(b"".join(chunks))["threads"][0]["turns"]) == 2_000


# --- the command


def run(*arguments: object) -> None:
    call_command("export_user", *map(str, arguments))


def test_the_command_writes_the_document(tenant: Tenant, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    gateway.upsert_user_fact(tenant, "Ада", "city", "Zürich")
    run("--tenant", "acme", "--user", "Ада")
    printed = capsys.readouterr().out
    file = tmp_path / "ada.json"
    run("--tenant", "acme", "--user", "Ада", "--output", file)
    assert capsys.readouterr() == ("", "")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    document = json.loads(file.read_bytes())
    validate(document)
    assert document["facts"][0]["value"] == "Zürich"
    assert without_time(json.loads(printed)) == without_time(document)
    assert printed.endswith("}\n")


def test_the_command_refuses_what_it_cannot_do(tenant: Tenant, tmp_path: Path) -> None:
    file = tmp_path / "ada.json"
    file.write_text("kept")
    for arguments, words in (
        (("--tenant", "acmee", "--user", "ada"), "tenant"),
        (("--tenant", "acme", "--user", " "), "user id"),
        (("--tenant", "acme", "--user", "ada", "--output", file), "exists"),
        (("--tenant", "acme", "--user", "ada", "--output", tmp_path / "no" / "ada.json"), "No such file"),
    ):
        with pytest.raises(CommandError, match=words):
            run(*arguments)
    assert file.read_text() == "kept"
    assert list(tmp_path.iterdir()) == [file]


def test_a_script_sees_it_in_the_exit_code(tmp_path: Path) -> None:
    environment = {"DEBUG": "true", "SECRET_KEY": "only for tests " * 5, "LC_ALL": "C", "PYTHONUTF8": "0"}
    environment |= {"DATABASE_URL": f"sqlite:///{tmp_path / 'db.sqlite3'}"}

    def manage(*arguments: str) -> "subprocess.CompletedProcess[bytes]":
        command = [sys.executable, "manage.py", *arguments]
        return subprocess.run(command, env=environment, capture_output=True, timeout=60, check=False)

    assert manage("migrate", "--verbosity", "0").returncode == 0
    done = manage("export_user", "--tenant", "default", "--user", "ada")
    assert (done.returncode, done.stderr) == (0, b"")
    validate(json.loads(done.stdout))
    refused = manage("export_user", "--tenant", "acme", "--user", "ada")
    assert (refused.returncode, refused.stdout) == (1, b"")
    assert b"no such tenant" in refused.stderr.lower()
    assert manage("export_user", "--tenant", "default").returncode == 2
