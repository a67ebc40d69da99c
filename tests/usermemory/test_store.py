"""What is known about a user: edits, caps, and the merging of what a model proposes."""

from datetime import timedelta
from uuid import uuid4

import pytest
from django.db import IntegrityError, transaction
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries, Settings

from memorygw import gateway
from memorygw.exceptions import BlankFactError, ErasureRunningError, FactTooLongError
from memorygw.models import Tenant
from memorygw.testing import ScriptedModelServer
from tests.conftest import Api, learn
from threads.store import ThreadStore
from usermemory.extraction import Operation
from usermemory.models import Fact, Owner, UserMemory, identity
from usermemory.store import UserMemoryStore

store = UserMemoryStore()


@pytest.fixture
def thread_id(tenant: Tenant) -> object:
    return ThreadStore().create_thread(tenant.pk, "ada").pk


def facts(tenant: Tenant, user: str = "ada") -> dict[str, str]:
    return {fact.key: fact.value for fact in store.get_facts(tenant.pk, user)}


def put(tenant: Tenant, *pairs: str, user: str = "ada") -> None:
    """Set facts given as "key=value", in this order."""
    for pair in pairs:
        store.upsert_fact(tenant.pk, user, *pair.split("=", 1))


def merge(tenant: Tenant, thread_id: object, *lines: str) -> tuple[int, list[str]]:
    """Apply "key=value" (SET) and "-key" (DELETE), as an extraction does."""
    operations = []
    for line in lines:
        key, _, value = line.partition("=")
        operations.append(Operation("DELETE", key[1:]) if key.startswith("-") else Operation("SET", key, value))
    done = store.merge(tenant.pk, Owner.user("ada"), operations, thread_id=thread_id)  # type: ignore[arg-type]
    return done.applied, done.skipped


# --- reading


@pytest.mark.rows("U2", "U3", "U4", "U26", "U27", "U29", "U32", "U33", "U34", "U35", "U36")
def test_facts_belong_to_one_user_of_one_tenant(tenant: Tenant, other_tenant: Tenant) -> None:
    assert facts(tenant) == {}
    assert not UserMemory.objects.exists()
    put(tenant, "city=Oslo", "lang=de")
    put(other_tenant, "city=Quito")
    assert facts(tenant) == {"city": "Oslo", "lang": "de"}
    assert facts(tenant, "bob") == {}
    assert facts(other_tenant) == {"city": "Quito"}
    put(tenant, "city=Bergen")
    assert list(facts(tenant)) == ["city", "lang"]


def test_reading_facts_is_one_query(tenant: Tenant, django_assert_num_queries: DjangoAssertNumQueries) -> None:
    put(tenant, *(f"key{n}=value" for n in range(20)))
    with django_assert_num_queries(1):
        store.get_facts(tenant.pk, "ada")


@pytest.mark.rows("U28")
def test_reading_facts_calls_no_model(api: Api, tenant: Tenant, model: ScriptedModelServer) -> None:
    api.ask("Hello")
    learn()
    assert [request.model for request in model.requests] == ["main", "cheap"]
    put(tenant, "city=Oslo")
    assert facts(tenant) == {"city": "Oslo"}
    assert [fact.value for fact in gateway.get_user_facts(tenant, "ada")] == ["Oslo"]
    assert "city: Oslo" in gateway.get_facts_text(tenant, "ada")
    assert api.facts() == {"city": "Oslo"}
    assert "city: Oslo" in str(api("GET", "/facts/context").body)
    learn()
    assert len(model.requests) == 2


def test_facts_without_tenant_or_user_fail_closed(tenant: Tenant) -> None:
    for user in ("", None):
        with pytest.raises(ValueError, match="required"):
            store.get_facts(tenant.pk, user)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="required"):
        store.get_facts(None, "ada")  # type: ignore[arg-type]


# --- edits by hand


@pytest.mark.rows("U37", "U38", "U39", "U41", "U42", "U43", "U44")
def test_a_fact_set_by_hand_replaces_the_one_of_its_key(tenant: Tenant, thread_id: object) -> None:
    merge(tenant, thread_id, "Lang=en")
    [before] = store.get_facts(tenant.pk, "ada")
    assert before.source_thread_id == thread_id
    store.upsert_fact(tenant.pk, "ada", "  lang ", " de ")
    [fact] = store.get_facts(tenant.pk, "ada")
    assert (fact.key, fact.value, fact.origin, fact.source_thread_id) == ("lang", "de", "manual", None)
    assert fact.pk == before.pk


@pytest.mark.rows("U40")
def test_by_hand_the_date_moves_even_when_the_value_is_the_same(tenant: Tenant) -> None:
    put(tenant, "lang=de")
    Fact.objects.update(updated_at=timezone.now() - timedelta(days=1))
    put(tenant, "lang=de")
    assert timezone.now() - store.get_facts(tenant.pk, "ada")[0].updated_at < timedelta(minutes=1)


@pytest.mark.rows("U14", "U15", "U16", "U45", "U46", "U47", "U48", "U49", "U50")
def test_blank_and_too_long_facts_are_refused_and_change_nothing(tenant: Tenant, settings: Settings) -> None:
    settings.MEMORYGW_MAX_FACT_CHARS = 20
    put(tenant, "lang=de")
    for key, value in (("", "x"), (" ", "x"), ("\u200b", "x"), ("x", ""), ("x", " \n")):
        with pytest.raises(BlankFactError) as blank:
            store.upsert_fact(tenant.pk, "ada", key, value)
        assert blank.value.number == 5372597957094
    for key, value in (("k" * 21, "x"), ("lang", "v" * 21)):
        with pytest.raises(FactTooLongError) as long:
            store.upsert_fact(tenant.pk, "ada", key, value)
        assert (long.value.number, bool(long.value.user_message)) == (5377210486159, True)
    assert facts(tenant) == {"lang": "de"}
    put(tenant, f"lang=  {'😀' * 20}  ")
    assert facts(tenant) == {"lang": "😀" * 20}


def test_a_limit_of_zero_is_no_limit(tenant: Tenant, settings: Settings) -> None:
    settings.MEMORYGW_MAX_FACT_CHARS = settings.MEMORYGW_MAX_FACTS = 0
    put(tenant, f"{'k' * 10_000}={'v' * 100_000}", *(f"key{n}=value" for n in range(150)))
    assert len(facts(tenant)) == 151


@pytest.mark.rows("U12", "U13", "U51", "U52")
def test_at_the_cap_the_fact_changed_longest_ago_goes(tenant: Tenant, thread_id: object, settings: Settings) -> None:
    settings.MEMORYGW_MAX_FACTS = 3
    put(tenant, "a=1", "b=1", "c=1", "a=2")
    assert facts(tenant) == {"a": "2", "b": "1", "c": "1"}
    put(tenant, "d=1")
    assert facts(tenant) == {"a": "2", "c": "1", "d": "1"}
    merge(tenant, thread_id, "p=1", "q=1", "r=1", "s=1", "t=1")
    assert facts(tenant) == {"r": "1", "s": "1", "t": "1"}
    settings.MEMORYGW_MAX_FACTS = 1
    put(tenant, "only=1")
    assert facts(tenant) == {"only": "1"}


@pytest.mark.rows("U12")
def test_pending_and_archived_facts_do_not_count_for_the_cap(tenant: Tenant, settings: Settings) -> None:
    settings.MEMORYGW_MAX_FACTS = 2
    for status in (Fact.Status.PENDING_REVIEW, Fact.Status.ARCHIVED):
        Fact.objects.create(
            tenant=tenant, owner_id="ada", key="x", value="y", identity=identity("x"), status=status, origin="auto"
        )
    put(tenant, "a=1", "b=1", "c=1")
    assert facts(tenant) == {"b": "1", "c": "1"}
    assert Fact.objects.exclude(status="active").count() == 2


@pytest.mark.rows("U58", "U59", "U60", "U63")
def test_removing_takes_one_fact_and_does_nothing_for_an_unknown_key(tenant: Tenant) -> None:
    put(tenant, "lang=de", "city=Oslo")
    before = {fact.key: fact.updated_at for fact in store.get_facts(tenant.pk, "ada")}
    store.remove_fact(tenant.pk, "ada", " Lang ")
    store.remove_fact(tenant.pk, "ada", "*")
    [left] = store.get_facts(tenant.pk, "ada")
    assert (left.key, left.updated_at) == ("city", before["city"])


@pytest.mark.rows("U64", "U65", "U67")
def test_clearing_takes_all_facts_and_keeps_the_record(tenant: Tenant) -> None:
    put(tenant, "lang=de")
    put(tenant, "lang=fr", user="bob")
    store.clear(tenant.pk, "ada")
    store.clear(tenant.pk, "nobody")
    assert facts(tenant) == {}
    assert facts(tenant, "bob") == {"lang": "fr"}
    assert UserMemory.objects.filter(tenant=tenant, user_id="ada").exists()


@pytest.mark.rows("U69", "U70", "U71", "U73")
def test_erasing_takes_facts_and_record_of_one_user(tenant: Tenant, other_tenant: Tenant) -> None:
    put(tenant, "a=1", "b=2", "c=3")
    put(tenant, "a=1", user="bob")
    put(other_tenant, "a=1")
    assert gateway.forget_user(tenant, "ada").counts["facts"] == 3
    assert gateway.forget_user(tenant, "ada").counts["facts"] == 0
    assert not UserMemory.objects.filter(tenant=tenant, user_id="ada").exists()
    assert (facts(tenant, "bob"), facts(other_tenant)) == ({"a": "1"}, {"a": "1"})


def test_nothing_is_written_for_a_user_who_is_being_erased(tenant: Tenant) -> None:
    store.open_record(tenant.pk, "ada")
    UserMemory.objects.update(erasing_at=timezone.now())
    with pytest.raises(ErasureRunningError):
        put(tenant, "a=1")
    UserMemory.objects.update(erasing_at=None)
    put(tenant, "a=1")
    assert facts(tenant) == {"a": "1"}


# --- merging


@pytest.mark.rows("U8", "U90", "U91", "U94", "U95", "U96", "U97")
def test_operations_are_applied_in_their_order(tenant: Tenant, thread_id: object) -> None:
    put(tenant, "diet=beef", "team=Reds")
    assert merge(tenant, thread_id, "-diet", "diet=vegetarian") == (1, ["replaced"])
    assert merge(tenant, thread_id, "x=1", "-x", "-unknown", "-*", "-di%") == (2, ["unknown_key"] * 3)
    assert merge(tenant, thread_id, "team=Blues", "team=Greens") == (2, [])
    assert facts(tenant) == {"team": "Greens", "diet": "vegetarian"}
    team = next(fact for fact in store.get_facts(tenant.pk, "ada") if fact.key == "team")
    assert (team.origin, team.source_thread_id) == ("auto", thread_id)


@pytest.mark.rows("U92", "U93", "U98")
def test_an_equal_value_leaves_date_and_source_alone(tenant: Tenant, thread_id: object, settings: Settings) -> None:
    settings.MEMORYGW_MAX_FACT_CHARS = 5
    put(tenant, "lang=de", "long=abcde")
    before = list(store.get_facts(tenant.pk, "ada"))
    assert merge(tenant, thread_id, "lang=de", "long=abcdefghi") == (0, ["unchanged", "unchanged"])
    for was, now in zip(before, store.get_facts(tenant.pk, "ada"), strict=True):
        assert (was.updated_at, now.source_thread_id, now.origin) == (now.updated_at, None, "manual")


@pytest.mark.rows("U16", "U99", "U100")
def test_what_a_model_says_too_long_is_cut(tenant: Tenant, thread_id: object, settings: Settings) -> None:
    settings.MEMORYGW_MAX_FACT_CHARS = 4
    assert merge(tenant, thread_id, "abcdef=123456", "\u200b=x") == (1, ["no_key"])
    assert facts(tenant) == {"abcd": "1234"}


def test_a_pending_or_archived_fact_does_not_stand_in_the_way(tenant: Tenant, thread_id: object) -> None:
    for status in (Fact.Status.PENDING_REVIEW, Fact.Status.ARCHIVED):
        Fact.objects.create(
            tenant=tenant, owner_id="ada", key="a", value="old", identity=identity("a"), status=status, origin="auto"
        )
    merge(tenant, thread_id, "a=new")
    assert facts(tenant) == {"a": "new"}
    assert Fact.objects.count() == 3


@pytest.mark.rows("U113")
def test_deleting_the_source_thread_keeps_the_fact(tenant: Tenant, thread_id: object) -> None:
    merge(tenant, thread_id, "a=1")
    ThreadStore().delete(tenant.pk, [thread_id])  # type: ignore[list-item]
    [fact] = store.get_facts(tenant.pk, "ada")
    assert (fact.value, fact.source_thread_id) == ("1", None)


# --- when to learn


@pytest.mark.rows("U74", "U75", "U76", "U77", "U78", "U79", "U80", "U82")
@pytest.mark.parametrize(
    ("before", "now", "due"),
    [
        (0, 2, True),
        (0, 0, False),
        (2, 2, False),
        (2, 3, False),
        (2, 4, True),
        (4, 6, False),
        (2, 7, True),
        (2, 13, True),
    ],
)
def test_learning_is_due_after_the_first_answer_and_on_every_beat(
    settings: Settings, before: int, now: int, due: bool
) -> None:
    settings.MEMORYGW_EXTRACT_EVERY_TURNS = 4
    assert store.is_extract_due(before, now) is due


@pytest.mark.rows("U81")
def test_learning_is_never_due_while_it_is_off(settings: Settings) -> None:
    settings.MEMORYGW_EXTRACTION_ENABLED = False
    assert store.is_extract_due(0, 2) is False


# --- what the database refuses


@pytest.mark.rows("R20")
@pytest.mark.parametrize(
    "wrong",
    [
        {"scope": "user", "user_id": "ada"},
        {"scope": "persona", "user_id": "ada"},
        {"scope": "persona_user", "user_id": ""},
        {"owner_id": ""},
        {"key": ""},
        {"kind": "text"},
        {"confidence": 1.5},
        {"confidence": -0.1},
    ],
)
def test_the_database_refuses_a_fact_of_no_form(tenant: Tenant, wrong: dict[str, object]) -> None:
    good = {"owner_id": "ada", "key": "k", "value": "v", "identity": identity("k"), "origin": "manual"}
    Fact.objects.create(tenant=tenant, **good)
    with pytest.raises(IntegrityError), transaction.atomic():
        Fact.objects.create(tenant=tenant, **{**good, "identity": uuid4().hex, **wrong})


def test_the_database_refuses_a_second_active_fact_of_one_key(tenant: Tenant) -> None:
    good = {"owner_id": "ada", "key": "k", "value": "v", "identity": identity("k"), "origin": "manual"}
    Fact.objects.create(tenant=tenant, **good)
    with pytest.raises(IntegrityError), transaction.atomic():
        Fact.objects.create(tenant=tenant, **good)
