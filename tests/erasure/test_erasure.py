"""Forgetting a person, whole: in both modes, behind a fence, in batches, once."""

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from django.apps import apps
from django.contrib.admin.models import LogEntry
from django.db import connection, models
from django.utils import timezone
from pytest_django import Settings

from memorygw import gateway, purge, sweep
from memorygw.exceptions import ErasureRunningError, LeaseLostError, ThreadBusyError, ThreadNotFoundError
from memorygw.models import ErasureReceipt, ModelCall, Tenant
from memorygw.personal_data import CONTENT, PersonalData, personal_data
from memorygw.testing import ScriptedModelServer
from tests.conftest import background, learn
from tests.erasure.people import live_a_life
from threads.models import Thread, Turn
from threads.turns import TurnDraft
from usermemory.models import Fact, UserMemory

pytestmark = pytest.mark.django_db(transaction=True)

WORD, OTHERS_WORD = "Zanzibarwort", "Quagmirewort"


def tables(tenant: Tenant, user: str) -> dict[str, int]:
    return {table.name: table.rows(tenant.pk, user).count() for table in personal_data()}


def columns_without(word: str, tenant: Tenant, user: str) -> list[str]:
    """Columns for content in which none of a person's rows has the word."""
    return [
        f"{table.name}.{column}"
        for table in personal_data()
        for column, holds in table.columns.items()
        if holds == CONTENT and column != "embedding"
        if word.lower() not in repr(list(table.rows(tenant.pk, user).values_list(column, flat=True))).lower()
    ]


def dump() -> str:
    """Every row of every table, as text in small letters."""
    rows: list[Any] = []
    for model in apps.get_models():
        rows += [repr(row) for row in model._base_manager.values_list()]
    return "\n".join(rows).lower()


@pytest.fixture(autouse=True)
def everything_on(settings: Settings, model: ScriptedModelServer) -> None:
    settings.MEMORYGW_TITLES_ENABLED = True
    settings.MEMORYGW_EMBEDDING_MODEL = "vectors"
    settings.MEMORYGW_EMBEDDING_BASE_URL = model.base_url


@pytest.fixture
def ada(tenant: Tenant, model: ScriptedModelServer) -> str:
    live_a_life(tenant, "ada", model, WORD)
    return "ada"


@pytest.fixture
def others(tenant: Tenant, other_tenant: Tenant, model: ScriptedModelServer) -> list[tuple[Tenant, str]]:
    live_a_life(tenant, "bob", model, OTHERS_WORD)
    live_a_life(other_tenant, "ada", model, OTHERS_WORD)
    return [(tenant, "bob"), (other_tenant, "ada")]


def rows_of(people: list[tuple[Tenant, str]]) -> list[Any]:
    """All of what others have, to the last byte."""
    return [
        list(table.rows(tenant.pk, user).order_by("pk").values_list())
        for tenant, user in people
        for table in personal_data()
    ]


@pytest.mark.rows("U11", "U72", "T111", "T113")
@pytest.mark.parametrize("mode", ["delete", "anonymize"])
def test_nothing_readable_is_left_and_nothing_of_others_is_touched(
    tenant: Tenant, ada: str, others: list[tuple[Tenant, str]], mode: str
) -> None:
    before, expected = rows_of(others), tables(tenant, ada)
    assert all(expected.values()), "Something is in every table."
    assert not columns_without(WORD, tenant, ada), "The word is in every column that can hold one."
    assert gateway.count_user_data(tenant, ada) == {name: n for name, n in expected.items() if name != "records"}
    receipt = gateway.forget_user(tenant, ada, mode=mode, requested_by="tests")
    assert receipt.counts == {name: count for name, count in expected.items() if name != "records"}
    assert (receipt.verified, receipt.found, receipt.status) == (True, {}, "done")
    assert not any(tables(tenant, ada).values())
    assert WORD.lower() not in dump()
    assert rows_of(others) == before
    assert LogEntry.objects.count() == 4
    assert list(receipt.phases) == ["fenced", "purged", "verified"]


@pytest.mark.rows("T114")
def test_a_second_time_finds_nothing(tenant: Tenant, ada: str) -> None:
    first, second = (gateway.forget_user(tenant, ada) for _ in range(2))
    assert first.pk != second.pk
    assert not any(second.counts.values())
    assert second.verified


@pytest.mark.rows("T103", "T104", "T105", "T106", "T107", "T108", "T109", "T110", "T115")
def test_an_anonymous_thread_is_a_skeleton(tenant: Tenant, ada: str) -> None:
    kept = ("id", "turn_count", "token_count", "created_at", "updated_at", "persona_id")
    before = list(Thread.objects.order_by("pk").values_list(*kept))
    receipt = gateway.forget_user(tenant, ada, mode="anonymize")
    assert (receipt.counts["threads"], receipt.counts["turns"]) == (4, sum(count for _, count, *_ in before))
    threads = Thread.objects.order_by("pk")
    assert list(threads.values_list(*kept)) == before
    assert {(thread.title, thread.status, thread.session_id, thread.history) for thread in threads} == {
        ("", "CLOSED", None, None)
    }
    [pseudonym] = {thread.user_id for thread in threads}
    assert pseudonym.startswith("anonymous-")
    assert gateway.list_threads(tenant, ada).items == []
    notes = gateway.get_thread_memory(tenant, pseudonym, threads[0].pk)
    assert (notes.summary, notes.facts) == ("", [])


def test_two_runs_give_two_pseudonyms(tenant: Tenant, model: ScriptedModelServer) -> None:
    for _ in range(2):
        gateway.ask(tenant, "ada", "Hello")
        gateway.forget_user(tenant, "ada", mode="anonymize")
    assert len({thread.user_id for thread in Thread.objects.all()}) == 2


def test_what_was_used_stays_and_leads_to_nobody(tenant: Tenant, ada: str) -> None:
    columns = ("kind", "model", "prompt_tokens", "completion_tokens")
    before = sorted(ModelCall.objects.values_list(*columns))
    gateway.forget_user(tenant, ada)
    assert sorted(ModelCall.objects.values_list(*columns)) == before
    assert not ModelCall.objects.filter(thread_id__isnull=False).exists()


# --- the fence


@pytest.mark.rows("T112", "T100")
def test_a_thread_that_is_busy_stops_it_and_everything_is_as_before(tenant: Tenant, ada: str) -> None:
    thread = Thread.objects.order_by("pk")[1]
    gateway.acquire_lease(tenant, ada, thread.pk)
    before = dump()
    with pytest.raises(ThreadBusyError) as busy:
        gateway.forget_user(tenant, ada)
    assert busy.value.details["thread_ids"] == [thread.pk]
    assert dump() == before


def test_with_force_the_call_that_runs_loses_its_thread(tenant: Tenant, ada: str, model: ScriptedModelServer) -> None:
    thread = Thread.objects.order_by("pk")[0]
    with ThreadPoolExecutor(1) as pool:
        with model.hold(model="main"):
            asked = background(pool, gateway.ask, tenant, ada, f"More of {WORD}", thread_id=thread.pk)
            model.wait_for_requests(len(model.requests_for("main")) + 1, model="main")
            assert gateway.forget_user(tenant, ada, force=True).verified
        with pytest.raises((LeaseLostError, ThreadNotFoundError)):
            asked.result()
    assert WORD.lower() not in dump()


@pytest.mark.parametrize("way_in", ["ask", "thread", "session", "voice", "fact", "append"])
def test_nothing_begins_while_a_person_is_erased(tenant: Tenant, ada: str, way_in: str) -> None:
    thread = Thread.objects.order_by("pk")[0]
    UserMemory.objects.filter(user_id=ada).update(erasing_at=timezone.now())
    before = dump()
    ways: dict[str, Callable[[], object]] = {
        "ask": lambda: gateway.ask(tenant, ada, "Hello"),
        "thread": lambda: gateway.create_thread(tenant, ada),
        "session": lambda: gateway.open_session(tenant, ada, "s"),
        "voice": lambda: gateway.open_voice_session(tenant, ada),
        "fact": lambda: gateway.upsert_user_fact(tenant, ada, "a", "b"),
        "append": lambda: gateway.append_turns(tenant, ada, thread.pk, [TurnDraft(role="user", content="Hello")]),
    }
    with pytest.raises(ErasureRunningError):
        ways[way_in]()
    assert dump() == before


# --- once, whole, whatever happens


@pytest.mark.parametrize("mode", ["delete", "anonymize"])
def test_it_may_die_anywhere_and_is_finished_by_the_sweep(
    tenant: Tenant, model: ScriptedModelServer, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S9: at every statement, one after the other; what all of them counted is what there was."""
    monkeypatch.setattr(purge, "BATCH_ROWS", 3)

    class Died(BaseException):
        pass

    for at in range(0, 400, 7):
        live_a_life(tenant, "ada", model, WORD) if at == 0 else gateway.ask(tenant, "ada", f"{WORD} again")
        learn()
        expected = gateway.count_user_data(tenant, "ada")
        statements = iter(range(10_000))

        def die(execute: Any, *arguments: Any, at: int = at, statements: Iterator[int] = statements) -> Any:
            if next(statements) >= at:
                raise Died
            return execute(*arguments)

        died = False
        try:
            with connection.execute_wrapper(die):
                gateway.forget_user(tenant, "ada", mode=mode)
        except Died:
            died = True
            connection.close()
        ago = timezone.now() - timedelta(minutes=2)
        UserMemory.objects.filter(erasing_at__isnull=False).update(erasing_at=ago)
        ErasureReceipt.objects.filter(status="running").update(touched_at=ago)
        sweep.keep_house()
        if gateway.count_user_data(tenant, "ada")["threads"]:
            assert died
            gateway.forget_user(tenant, "ada", mode=mode)
        receipt = ErasureReceipt.objects.order_by("-number").first()
        assert receipt
        assert receipt.counts == expected
        assert receipt.verified
        assert WORD.lower() not in dump()
        assert not ErasureReceipt.objects.filter(status="running").exists()
        if not died:
            return
    pytest.fail("It never came to its end.")


def test_requests_at_once_have_one_receipt(tenant: Tenant, ada: str) -> None:
    with ThreadPoolExecutor(8) as pool:
        asked = [background(pool, gateway.forget_user, tenant, ada) for _ in range(8)]
        receipts = [request.result() for request in asked]
    whole = [receipt for receipt in ErasureReceipt.objects.all() if any(receipt.counts.values())]
    assert len(whole) == 1
    assert {receipt.pk for receipt in receipts} <= set(ErasureReceipt.objects.values_list("pk", flat=True))
    assert all(receipt.verified for receipt in receipts)
    assert WORD.lower() not in dump()


# --- the list of what is personal


def test_a_table_or_a_column_that_is_not_declared_is_refused_at_start(monkeypatch: pytest.MonkeyPatch) -> None:
    from django.core.checks import run_checks

    from memorygw import personal_data as registry

    declared = dict(registry._declared)
    monkeypatch.setattr(registry, "_declared", declared)
    facts = declared[Fact]
    assert isinstance(facts, PersonalData)
    columns = {name: holds for name, holds in facts.columns.items() if name != "value"}
    declared[Fact] = PersonalData(model=Fact, name="facts", rows=facts.rows, columns=columns)
    del declared[Turn]
    problems = [problem for problem in run_checks(tags=["memorygw"]) if problem.id == "memorygw.E006"]
    assert sorted(problem.msg for problem in problems) == [
        "Nobody says what memorygw_threads.Turn holds.",
        "Nobody says what memorygw_usermemory.Fact.value holds.",
    ]


def test_what_refers_to_a_table_is_taken_away_before_it() -> None:
    order = [table.model for table in personal_data()]
    for table in personal_data():
        for field in table.model._meta.concrete_fields:
            if isinstance(field, models.ForeignKey) and field.related_model in order:
                assert order.index(table.model) < order.index(field.related_model)


def test_a_hosts_own_data_goes_too(tenant: Tenant, settings: Settings) -> None:
    settings.MEMORYGW_ERASERS = ["tests.erasure.test_erasure.Notebook"]
    Notebook.pages = {"ada": 3, "bob": 1}
    exported = json.loads("".join(gateway.export_user(tenant, "ada")))
    assert exported["host_data"] == [{"name": "notebook_pages", "data": [{"page": n} for n in range(3)]}]
    receipt = gateway.forget_user(tenant, "ada")
    assert receipt.counts["notebook_pages"] == 3
    assert Notebook.pages == {"ada": 0, "bob": 1}


class Notebook:
    name = "notebook_pages"
    pages: dict[str, int] = {}

    def erase(self, tenant_id: Any, user_id: str, limit: int) -> int:
        gone = min(self.pages[user_id], 2)
        self.pages[user_id] -= gone
        return gone

    def export(self, tenant_id: Any, user_id: str) -> list[Any]:
        return [{"page": number} for number in range(self.pages.get(user_id, 0))]
