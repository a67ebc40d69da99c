"""Receipts prove what was done, and a restored backup brings nobody back."""

import json
import shutil
from io import StringIO
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from django.core.checks import run_checks
from django.core.management import CommandError, call_command
from django.test import Client
from pytest_django import Settings

from memorygw import gateway, ledger, receipts, replay
from memorygw.models import ErasureReceipt, Tenant
from memorygw.personal_data import personal_data
from memorygw.testing import ScriptedModelServer
from tests.conftest import Api

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def folder(settings: Settings, tmp_path: Path) -> Path:
    settings.MEMORYGW_ERASURE_LEDGER = str(tmp_path / "ledger")
    return tmp_path / "ledger"


@pytest.fixture
def three(tenant: Tenant, other_tenant: Tenant) -> list[ErasureReceipt]:
    made = [gateway.forget_user(tenant, user) for user in ("ada", "bob", "eve")]
    gateway.forget_user(other_tenant, "ada")
    return made


def run(name: str, *arguments: str) -> Any:
    out = StringIO()
    call_command(name, *arguments, "--json", stdout=out)
    return json.loads(out.getvalue())


def problems_of(*arguments: str) -> list[str]:
    out = StringIO()
    with pytest.raises(CommandError):
        call_command("verify_receipts", *arguments, "--json", stdout=out)
    return [problem["problem"] for problem in json.loads(out.getvalue())["problems"]]


def ready() -> tuple[int, str]:
    answer = Client().get("/readyz")
    return answer.status_code, answer.json()["checks"].get("erasures", "")


# --- the chain


def test_receipts_of_a_tenant_are_numbered_and_each_has_the_seal_before_it(three: list[ErasureReceipt]) -> None:
    assert [receipt.number for receipt in three] == [1, 2, 3]
    assert [receipt.previous for receipt in three] == ["", three[0].seal, three[1].seal]
    assert run("verify_receipts") == {"receipts": 4, "problems": []}


def test_a_receipt_names_nobody(three: list[ErasureReceipt], tenant: Tenant) -> None:
    told = json.dumps([receipts.document(receipt) for receipt in [*three, gateway.forget_user(tenant, "Grace H.")]])
    assert "Grace" not in told


@pytest.mark.parametrize(
    "change",
    [
        {"counts": {"turns": 1}}, {"verified": False}, {"mode": "anonymize"}, {"requested_by": "nobody"},
        {"subject": "0" * 64}, {"version": "9"}, {"number": 9}, {"found": {"turns": 3}},
    ],
    ids=lambda change: next(iter(change)),
)  # fmt: skip
def test_one_altered_field_shows(three: list[ErasureReceipt], change: dict[str, Any]) -> None:
    ErasureReceipt.objects.filter(pk=three[1].pk).update(**change)
    assert "altered" in problems_of()


def test_a_receipt_that_is_missing_shows(three: list[ErasureReceipt]) -> None:
    ErasureReceipt.objects.filter(pk=three[1].pk).delete()
    assert problems_of() == ["neighbour_missing", "only_in_ledger"]


def test_the_last_one_missing_shows_by_the_ledger(three: list[ErasureReceipt]) -> None:
    ErasureReceipt.objects.filter(pk=three[2].pk).delete()
    assert problems_of() == ["only_in_ledger"]


def test_a_new_pepper_takes_nothing_from_the_old_receipts(
    three: list[ErasureReceipt], tenant: Tenant, settings: Settings
) -> None:
    settings.MEMORYGW_PEPPER = "2:another secret,1:only for tests"
    assert gateway.forget_user(tenant, "ada").pepper_version == "2"
    assert run("verify_receipts") == {"receipts": 5, "problems": []}
    settings.MEMORYGW_PEPPER = "2:another secret"
    assert problems_of().count("pepper_missing") == 4


# --- the ledger, and what it is for


def forget_the_database(tenant: Tenant, *users: str, numbers_above: int = 0) -> None:
    """As a backup from before the erasures has it: the people are there, the receipts are not."""
    ErasureReceipt.objects.filter(tenant_id=tenant.pk, number__gt=numbers_above).delete()
    for user in users:
        gateway.upsert_user_fact(tenant, user, "city", f"The home of {user}")
        gateway.create_thread(tenant, user, title=f"With {user}")


def test_erased_people_who_are_back_are_erased_again(tenant: Tenant, model: ScriptedModelServer) -> None:
    for user, mode in (("ada", "delete"), ("bob", "anonymize")):
        gateway.forget_user(tenant, user, mode=mode)
    assert ready() == (200, "ok")
    forget_the_database(tenant, "ada", "bob", "somebody else", numbers_above=1)
    assert ready() == (503, "to be replayed")
    assert run("replay_erasures", "--dry-run") == {"people": 1}
    assert ready() == (503, "to be replayed")
    [again] = run("replay_erasures")["receipts"]
    assert (again["mode"], again["counts"]["threads"], again["verified"]) == ("anonymize", 1, True)
    assert ErasureReceipt.objects.get(pk=again["replays"]).mode == "anonymize"
    assert ready() == (200, "ok")
    assert gateway.list_threads(tenant, "bob").items == []
    assert [fact.value for fact in gateway.get_user_facts(tenant, "ada")] == ["The home of ada"], "She came back."
    assert [fact.value for fact in gateway.get_user_facts(tenant, "somebody else")] == ["The home of somebody else"]
    assert run("verify_receipts") == {"receipts": 3, "problems": []}
    assert run("replay_erasures")["receipts"] == []


def test_a_restore_after_new_erasures_keeps_both_histories(tenant: Tenant) -> None:
    for user in ("ada", "bob"):
        gateway.forget_user(tenant, user)
    forget_the_database(tenant, "ada", "bob")
    # Nobody has looked at readyz.
    gateway.forget_user(tenant, "eve")
    run("replay_erasures")
    assert run("verify_receipts")["problems"] == []
    assert not any(table.rows(tenant.pk, user).exists() for table in personal_data() for user in ("ada", "bob"))


def test_a_replay_that_died_is_finished_by_the_next(tenant: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    for user in ("ada", "bob"):
        gateway.forget_user(tenant, user)
    forget_the_database(tenant, "ada", "bob")
    for entry in ledger.missing():
        replay._take_in(entry)
    assert ready() == (503, "to be replayed")
    assert len(run("replay_erasures")["receipts"]) == 2
    assert ready() == (200, "ok")
    assert run("verify_receipts")["problems"] == []


def test_an_erasure_that_had_only_begun_is_done_after_a_restore(tenant: Tenant, folder: Path) -> None:
    gateway.forget_user(tenant, "ada")
    for done in folder.glob("*.done.json"):
        done.unlink()
    forget_the_database(tenant, "ada")
    assert len(run("replay_erasures")["receipts"]) == 1
    assert not any(table.rows(tenant.pk, "ada").exists() for table in personal_data())
    assert run("verify_receipts")["problems"] == []


def test_without_the_pepper_of_that_time_nobody_is_found_and_it_says_so(tenant: Tenant, settings: Settings) -> None:
    gateway.forget_user(tenant, "ada")
    forget_the_database(tenant, "ada")
    settings.MEMORYGW_PEPPER = "2:another secret"
    with pytest.raises(CommandError, match="MEMORYGW_PEPPER"):
        call_command("replay_erasures")
    assert ready()[0] == 503


def test_a_ledger_may_be_one_of_djangos_storages(tenant: Tenant, settings: Settings, tmp_path: Path) -> None:
    location = {"location": tmp_path / "elsewhere"}
    backend = "django.core.files.storage.FileSystemStorage"
    settings.STORAGES = settings.STORAGES | {"ledger": {"BACKEND": backend, "OPTIONS": location}}
    settings.MEMORYGW_ERASURE_LEDGER = "ledger"
    receipt = gateway.forget_user(tenant, "ada")
    names = sorted(file.name for file in (tmp_path / "elsewhere").iterdir())
    assert names == [f"{receipt.pk}.done.json", f"{receipt.pk}.running.json"]


def test_a_ledger_that_cannot_be_written_stops_the_erasure(
    tenant: Tenant, settings: Settings, tmp_path: Path, folder: Path
) -> None:
    gateway.upsert_user_fact(tenant, "ada", "city", "Turin")
    (tmp_path / "file").write_text("")
    settings.MEMORYGW_ERASURE_LEDGER = str(tmp_path / "file" / "below")
    with pytest.raises(NotADirectoryError):
        gateway.forget_user(tenant, "ada")
    settings.MEMORYGW_ERASURE_LEDGER = str(folder)
    receipt = gateway.forget_user(tenant, "ada")
    assert (receipt.counts["facts"], receipt.verified) == (1, True)


def test_a_deep_look_finds_who_survived_and_nobody_who_came_back(tenant: Tenant) -> None:
    gateway.upsert_user_fact(tenant, "ada", "city", "Turin")
    fact = next(table for table in personal_data() if table.name == "facts").rows(tenant.pk, "ada").get()
    gateway.forget_user(tenant, "ada")
    gateway.upsert_user_fact(tenant, "ada", "city", "Rome")
    assert run("verify_receipts", "--deep")["problems"] == []
    fact.identity = "another"
    fact.save(force_insert=True)
    assert problems_of("--deep") == ["found:facts"]


# --- over REST


def test_receipts_are_listed_newest_first_and_are_the_tenants_own(
    api: Api, other_api: Api, three: list[ErasureReceipt]
) -> None:
    page = api("GET", "/erasures?limit=2").body
    assert [item["id"] for item in page["items"]] == [str(three[2].pk), str(three[1].pk)]
    assert page["has_more"] is True
    assert api("GET", f"/erasures/{three[0].pk}").body["number"] == 1
    assert other_api("GET", f"/erasures/{three[0].pk}").error["code"] == "receipt_not_found"
    assert api("GET", "/erasures/none").status == 404
    assert "subject" not in page["items"][0]


@pytest.mark.parametrize(
    "change",
    [
        {"number": None},
        {"status": "running"},
        {"status": "restored", "counts": {}},
        {"verified": False, "number": None},
    ],
    ids=str,
)
def test_the_last_receipt_cannot_be_altered_either(three: list[ErasureReceipt], change: dict[str, Any]) -> None:
    ErasureReceipt.objects.filter(pk=three[2].pk).update(**change)
    assert problems_of()


def test_a_receipt_that_was_made_up_shows(three: list[ErasureReceipt], tenant: Tenant) -> None:
    ErasureReceipt.objects.create(
        tenant_id=tenant.pk, subject="0" * 64, pepper_version="1", mode="delete", status="done", seal="made up"
    )
    assert problems_of() == ["altered"]


def test_the_same_version_with_another_secret_finds_nobody_and_says_so(tenant: Tenant, settings: Settings) -> None:
    gateway.forget_user(tenant, "ada")
    forget_the_database(tenant, "ada")
    settings.MEMORYGW_PEPPER = "1:another secret"
    with pytest.raises(CommandError, match="is another"):
        call_command("replay_erasures")
    assert ready()[0] == 503
    assert gateway.get_user_facts(tenant, "ada")


def test_an_entry_that_was_half_written_is_read_by_its_earlier_state(tenant: Tenant, folder: Path) -> None:
    gateway.forget_user(tenant, "ada")
    [done] = folder.glob("*.done.json")
    done.write_text(done.read_text()[:40])
    (folder / "notes.json").write_text("Not ours.")
    forget_the_database(tenant, "ada")
    assert ready()[0] == 503
    assert len(run("replay_erasures")["receipts"]) == 1
    assert ready() == (200, "ok")


def test_an_entry_under_another_name_erases_nobody(tenant: Tenant, folder: Path) -> None:
    gateway.forget_user(tenant, "ada")
    gateway.upsert_user_fact(tenant, "ada", "city", "Rome")
    [done] = folder.glob("*.done.json")
    (folder / f"{uuid4()}.done.json").write_text(done.read_text())
    with pytest.raises(CommandError, match="not as it was written"):
        call_command("replay_erasures")
    assert gateway.get_user_facts(tenant, "ada")


@pytest.mark.parametrize(
    ("pepper", "problem"),
    [
        ("secret", 'must be "1:secret"'), ("v1:secret", 'must be "1:secret"'), ("2:new,1:", 'must be "1:secret"'),
        ("1:a,1:b", "names a version twice"), ("2:new,", 'must be "1:secret"'),
    ],
)  # fmt: skip
def test_a_pepper_that_is_none_is_refused_at_start(pepper: str, problem: str, settings: Settings) -> None:
    settings.MEMORYGW_PEPPER = pepper
    [found] = run_checks(tags=["memorygw"])
    assert found.id == "memorygw.E007"
    assert problem in found.msg


def test_the_ledger_can_be_lost_and_nothing_else_is(tenant: Tenant, folder: Path) -> None:
    gateway.forget_user(tenant, "ada")
    shutil.rmtree(folder)
    assert ready() == (200, "ok")
    assert run("verify_receipts")["problems"] == []


@pytest.mark.parametrize("microsecond", [0, 400, 1_000, 999_999])
def test_a_receipt_comes_back_from_the_ledger_as_it_was_sealed(three: list[ErasureReceipt], microsecond: int) -> None:
    receipt = three[0]
    receipt.created_at = receipt.finished_at = receipt.created_at.replace(microsecond=microsecond)
    sealed = receipts.document(receipt)
    assert receipts.document(receipts.from_document(sealed)) == sealed
