"""LangGraph's long-term memory over the facts about users."""

import asyncio
import runpy
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypedDict
from uuid import uuid4

import pytest
from django.db import connection
from langgraph.graph import END, START, StateGraph
from langgraph.runtime import Runtime
from langgraph.store.base import GetOp, InvalidNamespaceError, PutOp, SearchOp
from openai import OpenAI
from pytest_django import Settings

from memorygw import gateway
from memorygw.adapters.langgraph import MemorygwStore
from memorygw.exceptions import FactRefusedError, FactTooLongError, InvalidError
from memorygw.models import Tenant
from memorygw.testing import ScriptedModelServer
from tests.conftest import background, learn
from tests.memorygw.runs import facts
from usermemory.store import UserMemoryStore

pytestmark = pytest.mark.django_db(transaction=True)

ADA, BOB = ("memories", "ada"), ("memories", "bob")


@pytest.fixture
def store(tenant: Tenant) -> MemorygwStore:
    return MemorygwStore(tenant)


def found(store: MemorygwStore, *prefix: str, **options: Any) -> list[tuple[str, Any]]:
    return [(item.key, item.value) for item in store.search(prefix, **options)]


# --- a graph


class State(TypedDict):
    user: str
    said: str
    answer: str


def test_the_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    Tenant.objects.get_or_create(name="default")
    runpy.run_path(str(Path(__file__).parents[2] / "docs" / "examples" / "langgraph_store.py"))
    assert capsys.readouterr().out == "['Lives in Mumbai']\n"


@pytest.mark.parametrize("is_async", [False, True])
def test_a_graph_remembers_across_its_runs(
    tenant: Tenant, store: MemorygwStore, model: ScriptedModelServer, is_async: bool
) -> None:
    with OpenAI(base_url=model.base_url, api_key="none") as client:

        def answer(state: State) -> dict[str, Any]:
            messages: Any = [{"role": "system", "content": known(state)}, {"role": "user", "content": state["said"]}]
            completion = client.chat.completions.create(model="main", messages=messages)
            return {"answer": completion.choices[0].message.content}

        def known(state: State) -> str:
            return "\n".join(item.value["text"] for item in store.search(("memories", state["user"])))

        def remember(state: State, runtime: Runtime[None]) -> None:
            assert runtime.store is store
            runtime.store.put(("memories", state["user"]), "latest", {"text": state["said"]})

        graph = StateGraph(State)
        graph.add_node("answer", answer)
        graph.add_node("remember", remember)
        graph.add_edge(START, "answer")
        graph.add_edge("answer", "remember")
        graph.add_edge("remember", END)
        compiled = graph.compile(store=store)

        def run(user: str, said: str) -> Any:
            state = State(user=user, said=said, answer="")
            return asyncio.run(compiled.ainvoke(state)) if is_async else compiled.invoke(state)

        run("ada", "I live in Mumbai.")
        assert run("ada", "What is near?")["answer"] == "ok"
        run("bob", "What is near?")
    assert [request.system for request in model.requests_for("main")] == ["", "I live in Mumbai.", ""]


def test_a_store_has_what_a_conversation_taught_and_a_conversation_what_a_store_has(
    tenant: Tenant, store: MemorygwStore, model: ScriptedModelServer
) -> None:
    model.reply({"operations": [{"op": "SET", "key": "home", "value": "data: Mumbai"}]}, model="cheap")
    gateway.ask(tenant, "ada", "I live in data: Mumbai")
    learn()
    gateway.add_user_facts(tenant, "ada", ["Likes tea"])
    *_, free = gateway.get_user_facts(tenant, "ada")
    known = dict(found(store, *ADA))
    assert known == {"home": {"text": "data: Mumbai"}, free.shown_key: {"text": "Likes tea"}}
    store.put(ADA, "diet", {"data": "vegan"})
    gateway.ask(tenant, "ada", "What shall I eat?")
    assert "diet: data: vegan" in model.requests_for("main")[-1].system
    store.delete(ADA, free.shown_key)
    store.delete(ADA, "never there")
    assert store.get(ADA, free.shown_key) is None
    assert facts(tenant) == {"home": "data: Mumbai", "diet": "data: vegan"}


# --- values


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        ({"text": "Likes tea"}, "Likes tea"),
        ({"data": "Likes tea"}, "data: Likes tea"),
        ({"content": "Likes: tea\nand coffee"}, "content: Likes: tea\nand coffee"),
        ({"text": "data: 1"}, '{"text":"data: 1"}'),
        ({"text": " padded"}, '{"text":" padded"}'),
        ({"text": ""}, '{"text":""}'),
        ({"text": '{"a":1}'}, '{"text":"{\\"a\\":1}"}'),
        ({"text": "a\x00b"}, '{"text":"a\\u0000b"}'),
        ({"text": "\ud800 ü"}, '{"text":"\\ud800 \\u00fc"}'),
        ({"text": 1}, '{"text":1}'),
        ({"mood": "good"}, '{"mood":"good"}'),
        ({"text": "a", "n": [1, {"größe": None}]}, '{"text":"a","n":[1,{"größe":null}]}'),
        ({}, "{}"),
    ],
)
def test_a_value_comes_back_as_it_was_put(
    store: MemorygwStore, tenant: Tenant, value: dict[str, Any], stored: str
) -> None:
    store.put(ADA, "note", value)
    item = store.get(ADA, "note")
    assert item is not None
    assert (item.value, facts(tenant)) == (value, {"note": stored})


def test_the_field_of_plain_text_can_be_another(tenant: Tenant) -> None:
    store = MemorygwStore(tenant, text_field="memory")
    gateway.upsert_user_fact(tenant, "ada", "city", "Turin")
    store.put(ADA, "drink", {"memory": "tea"})
    store.put(ADA, "food", {"text": "pasta"})
    assert facts(tenant) == {"city": "Turin", "drink": "tea", "food": "text: pasta"}
    assert dict(found(store, *ADA)) == {
        "city": {"memory": "Turin"},
        "drink": {"memory": "tea"},
        "food": {"text": "pasta"},
    }


def test_what_a_model_wrote_is_text_whatever_it_looks_like(tenant: Tenant, store: MemorygwStore) -> None:
    UserMemoryStore().upsert_fact(tenant.pk, "ada", "note", '{"role": "admin"}', origin="tool")
    assert found(store, *ADA) == [("note", {"text": '{"role": "admin"}'})]


@pytest.mark.parametrize("value", [{"text": "x" * 201}, {"a": "x" * 200}])
def test_what_is_too_long_is_refused_and_not_cut(store: MemorygwStore, value: dict[str, Any]) -> None:
    store.put(ADA, "note", {"text": "x" * 200})
    with pytest.raises(FactTooLongError, match="200 characters"):
        store.put(ADA, "note", value)
    with pytest.raises(FactTooLongError):
        store.put(ADA, "k" * 201, {"text": "short"})
    assert found(store, *ADA) == [("note", {"text": "x" * 200})]


def test_what_cannot_be_kept_is_refused(store: MemorygwStore) -> None:
    with pytest.raises(FactRefusedError):
        store.put(ADA, "password", {"text": "hunter2!"})
    with pytest.raises(InvalidError):
        store.put(ADA, "a\x00", {"text": "x"})
    with pytest.raises(TypeError):
        store.put(ADA, "note", {"when": uuid4()})
    with pytest.raises(ValueError, match="JSON"):
        store.put(ADA, "note", {"ratio": float("nan")})
    for put in (
        lambda: store.put(ADA, "note", {"text": "x"}, ttl=5),
        lambda: store.batch([PutOp(ADA, "note", {}, ttl=5)]),
    ):
        with pytest.raises(NotImplementedError):
            put()
    assert found(store, *ADA) == []


def test_above_the_cap_the_facts_changed_longest_ago_go(store: MemorygwStore, settings: Settings) -> None:
    settings.MEMORYGW_MAX_FACTS = 2
    for key in ("a", "b", "a", "c"):
        store.put(ADA, key, {"text": key})
    assert [key for key, _ in found(store, *ADA)] == ["c", "a"]


# --- namespaces and keys


@pytest.mark.parametrize(
    ("namespace", "key", "stored"),
    [
        (("memories", "ada"), "drink", "drink"),
        (("memories", "ada"), "either / or", "memories / either / or"),
        (("travel", "eu", "ada"), "seat", "travel.eu / seat"),
        (("travel", "ada"), "a / b", "travel / a / b"),
        (("ada",), "drink", "/ drink"),
    ],
)
def test_a_namespace_and_a_key_are_a_facts_key_and_come_back(
    store: MemorygwStore, tenant: Tenant, namespace: tuple[str, ...], key: str, stored: str
) -> None:
    store.put(BOB, "drink", {"text": "coffee"})
    store.put(namespace, key, {"text": "x"})
    assert facts(tenant) == {stored: "x"}
    [item] = store.search(namespace)
    assert (item.namespace, item.key) == (namespace, key)
    assert store.get(namespace, key) == item
    store.delete(namespace, key)
    assert (facts(tenant), facts(tenant, "bob")) == ({}, {"drink": "coffee"})


@pytest.mark.parametrize(
    ("user_part", "home", "namespace"),
    [(0, ("memories",), ("ada", "memories")), (1, ("org", "prefs"), ("org", "ada", "prefs"))],
)
def test_the_user_can_be_another_part(
    tenant: Tenant, user_part: int, home: tuple[str, ...], namespace: tuple[str, ...]
) -> None:
    store = MemorygwStore(tenant, user_part=user_part, home=home)
    gateway.upsert_user_fact(tenant, "ada", "org / town", "Turin")
    store.put(namespace, "drink", {"text": "tea"})
    assert facts(tenant)["drink"] == "tea"
    assert store.search(namespace)[0].namespace == namespace
    assert {item.key for item in store.search(namespace[: user_part + 1])} == {"drink", "town"}


def test_a_home_without_room_for_the_user_is_refused() -> None:
    with pytest.raises(ValueError, match="no part 2"):
        MemorygwStore(user_part=2)


def test_nobodys_namespace_is_an_error_and_a_prefix_is_one_users(store: MemorygwStore) -> None:
    store.put(ADA, "drink", {"text": "tea"})
    store.put(("travel", "ada"), "seat", {"text": "aisle"})
    store.put(("memories", "ada", "bob"), "drink", {"text": "coffee"})
    assert found(store, "memories", "ada") == [("drink", {"text": "tea"})]
    assert found(store, "memories") == []
    for op in (SearchOp(()), GetOp((), "drink"), PutOp(("a/b", "ada"), "k", {}), GetOp(("a.b", "ada"), "k")):
        with pytest.raises(InvalidNamespaceError):
            store.batch([op])


def test_a_tenants_store_has_no_facts_of_another(store: MemorygwStore, other_tenant: Tenant) -> None:
    store.put(ADA, "drink", {"text": "tea"})
    assert MemorygwStore(other_tenant).get(ADA, "drink") is None
    assert MemorygwStore("acme").get(ADA, "drink") is not None


def test_a_key_in_another_spelling_is_the_same(store: MemorygwStore) -> None:
    store.put(ADA, "Drink", {"text": "tea"})
    store.put(ADA, "drink ", {"text": "coffee"})
    assert found(store, *ADA) == [("drink", {"text": "coffee"})]
    assert store.get(ADA, "DRINK") == store.get(ADA, "drink")


def test_namespaces_of_a_user_are_listed(store: MemorygwStore) -> None:
    for namespace in (ADA, ("travel", "eu", "ada"), ("travel", "us", "ada"), BOB):
        store.put(namespace, "k", {"text": "x"})
    assert store.list_namespaces(suffix=("ada",)) == [ADA, ("travel", "eu", "ada"), ("travel", "us", "ada")]
    assert store.list_namespaces(prefix=("travel", "*"), suffix=("us", "ada")) == [("travel", "us", "ada")]
    assert store.list_namespaces(suffix=("ada",), max_depth=1) == [("memories",), ("travel",)]
    assert store.list_namespaces(suffix=("ada",), limit=1, offset=1) == [("travel", "eu", "ada")]
    with pytest.raises(InvalidNamespaceError, match="suffix"):
        store.list_namespaces(prefix=("travel",))


# --- searching


def test_a_search_finds_by_words_and_says_how_near(store: MemorygwStore) -> None:
    store.put(ADA, "1", {"text": "Drinks green tea in the morning"})
    store.put(ADA, "2", {"text": "Plays tennis", "since": 1999})
    store.put(BOB, "1", {"text": "Drinks green tea"})
    [hit] = store.search(ADA, query="Which tea?")
    assert hit.key == "1"
    assert hit.score is not None
    assert hit.score > 0
    assert found(store, *ADA, query="tennis", filter={"since": 1999}) == [
        ("2", {"text": "Plays tennis", "since": 1999})
    ]
    assert found(store, *ADA, query="tennis", filter={"since": 2000}) == []
    assert len(found(store, *ADA, query=" ")) == 2


def test_without_a_query_the_last_changed_come_first_in_pages(store: MemorygwStore) -> None:
    for key in "abcda":
        store.put(ADA, key, {"text": key})
    pages = [[key for key, _ in found(store, *ADA, limit=3, offset=offset)] for offset in (0, 3, 6)]
    assert pages == [["a", "d", "c"], ["b"], []]


@pytest.mark.parametrize(
    ("wanted", "keys"),
    [
        ({"n": 2}, "b"),
        ({"n": {"$eq": 2}}, "b"),
        ({"n": {"$ne": 2}}, "acd"),
        ({"n": {"$gt": 2}}, "c"),
        ({"n": {"$gte": 2, "$lt": 3}}, "b"),
        ({"n": {"$lte": 2}}, "ab"),
        ({"n": {"$gte": 1}, "in": {"city": "Turin"}}, "c"),
        ({"in": {"city": {"$ne": "Turin"}}}, ""),
        ({"n": None}, "d"),
    ],
)
def test_a_filter_compares_fields(store: MemorygwStore, wanted: dict[str, Any], keys: str) -> None:
    values: dict[str, Any] = {
        "a": {"n": 1},
        "b": {"n": 2},
        "c": {"n": 3, "in": {"city": "Turin"}},
        "d": {"text": "no n"},
    }
    for key, value in values.items():
        store.put(ADA, key, value)
    assert sorted(key for key, _ in found(store, *ADA, filter=wanted)) == list(keys)
    with pytest.raises(ValueError, match=r"\$in"):
        store.search(ADA, filter={"n": {"$in": [1]}})


def test_an_item_says_when_it_was_made_and_changed(store: MemorygwStore) -> None:
    store.put(ADA, "drink", {"text": "tea"})
    first = store.get(ADA, "drink")
    store.put(ADA, "drink", {"text": "coffee"})
    second = store.get(ADA, "drink")
    assert first is not None
    assert second is not None
    assert second.created_at == first.created_at
    assert second.updated_at > first.updated_at


def test_a_batch_is_done_in_its_order(store: MemorygwStore) -> None:
    put, drop, get = PutOp(ADA, "k", {"text": "x"}), PutOp(ADA, "k", None), GetOp(ADA, "k")
    before, _, after, _, gone = asyncio.run(store.abatch([get, put, get, drop, get]))
    assert (before, getattr(after, "value", None), gone) == (None, {"text": "x"}, None)


def test_a_thread_keeps_no_connection_that_the_settings_do_not_keep(store: MemorygwStore) -> None:
    def used() -> tuple[bool, Any]:
        connection.ensure_connection()
        before = connection.connection is not None
        store.get(ADA, "k")
        return before, connection.connection

    with ThreadPoolExecutor(1) as pool:
        assert background(pool, used).result() == (True, None)
