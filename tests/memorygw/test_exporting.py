"""Everything about a person as one document: all of it, nothing of others, valid, and small in memory."""

import json
import tracemalloc
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import jsonschema
import pytest
from django.db import connection
from django.db.models import CharField, JSONField, Model, QuerySet, TextField
from django.test.utils import CaptureQueriesContext

import memorygw
from memorygw import gateway
from memorygw.exceptions import TenantNotFoundError, UserRequiredError
from memorygw.models import ModelCall, Tenant, VoiceBatch, VoiceSession
from memorygw.personal_data import CONTENT, personal_data
from memorygw.testing import ScriptedModelServer
from tests.api.worlds import World
from tests.conftest import learn
from threads.models import Run, Thread, Turn
from usermemory.models import Fact, UserMemory
from workingmemory.models import WorkingMemoryState

SCHEMA = json.loads((Path(memorygw.__file__).parent / "schemas" / "export.schema.json").read_bytes())
MEGABYTE = 1_000_000


def export(tenant: Any, user: str) -> dict[str, Any]:
    """The document, which fits its schema and can be sent."""
    document: dict[str, Any] = json.loads("".join(gateway.export_user(tenant, user)).encode())
    validate(document)
    return document


def validate(document: Any) -> None:
    validator = jsonschema.Draft202012Validator(SCHEMA, format_checker=jsonschema.FormatChecker())
    assert [error.message for error in validator.iter_errors(document)] == []


def objects(schema: Any) -> Iterator[dict[str, Any]]:
    """Every part of the schema that says which members an object has."""
    if isinstance(schema, dict) and isinstance(schema.get("properties"), dict):
        yield schema
    for inner in schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ():
        yield from objects(inner)


def test_the_schema_is_one_and_leaves_nothing_open() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    ours = list(objects(SCHEMA))
    assert len(ours) == 12
    for part in ours:
        assert part["additionalProperties"] is False
        assert part["required"] == list(part["properties"])


# --- what is in it


def canary(model: type[Model], column: str) -> str:
    return f"canary {model.__name__} {column} “ж”"


MEMORY_ID = str(uuid4())
SHAPES: dict[tuple[type[Model], str], Any] = {
    (Turn, "content"): [{"type": "text", "text": canary(Turn, "content")}],
    (Turn, "tool_calls"): [{"id": canary(Turn, "tool_calls")}],
    (WorkingMemoryState, "facts"): [canary(WorkingMemoryState, "facts")],
    (Run, "tools"): [{"name": canary(Run, "tools")}],
    (Run, "pending"): [{"arguments": canary(Run, "pending")}],
    (Run, "memories"): [MEMORY_ID],
    (Run, "warnings"): {canary(Run, "warnings"): 1},
    (VoiceBatch, "fragments"): json.dumps([["user", canary(VoiceBatch, "fragments")]]),
}
"""Columns that hold something else than text or any JSON; there the canary is inside."""
LEFT_OUT = {
    Fact: {"identity", "searchable", "owner_id", "user_id", "embedding_model"},
    WorkingMemoryState: {"last_error"},
    VoiceSession: {"last_error", "user_id"},
    Thread: {"user_id"},
    UserMemory: {"user_id"},
}
"""Codes, what is made of other columns, the user's id, which is there once, and a model, which is a recipient."""


def rows_of(tenant: Tenant, user: str) -> dict[type[Model], "QuerySet[Any]"]:
    """Every table of ours that says something about a person, and their rows in it."""
    owner = {"tenant": tenant, "user_id": user}
    threads = Thread.objects.filter(**owner)
    return {
        Thread: threads,
        Turn: Turn.objects.filter(thread__in=threads),
        Run: Run.objects.filter(thread__in=threads),
        WorkingMemoryState: WorkingMemoryState.objects.filter(thread__in=threads),
        Fact: Fact.objects.personal_to(tenant.pk, user),
        UserMemory: UserMemory.objects.filter(**owner),
        VoiceSession: VoiceSession.objects.filter(**owner),
        VoiceBatch: VoiceBatch.objects.filter(session__in=VoiceSession.objects.filter(**owner)),
    }


def columns(model: type[Model]) -> list[str]:
    """Where it has text or JSON of no fixed set."""
    return [
        field.name
        for field in model._meta.concrete_fields
        if isinstance(field, CharField | TextField | JSONField) and not field.choices
    ]


def test_every_text_of_a_person_is_in_it_whatever_the_column(tenant: Tenant, model: ScriptedModelServer) -> None:
    World(tenant.name, "user-ada").fill(model)
    expected = {MEMORY_ID}
    for table, rows in rows_of(tenant, "user-ada").items():
        for column in set(columns(table)) - LEFT_OUT.get(table, set()):
            value = canary(table, column)
            table._base_manager.filter(pk=rows.order_by("pk")[0].pk).update(
                **{column: SHAPES.get((table, column), value)}
            )
            expected |= {value} - ({canary(Run, "memories")} if table is Run else set())
    text = json.dumps(export(tenant, "user-ada"), ensure_ascii=False)
    assert {value for value in expected if value not in text} == set()


def test_it_has_every_state_and_what_hangs_together(tenant: Tenant, model: ScriptedModelServer) -> None:
    ada = World(tenant.name, "user-ada").fill(model)
    document = export(tenant, "user-ada")
    threads = {thread["id"]: thread for thread in document["threads"]}
    assert set(ada.thread_ids) < set(threads)
    assert set(threads) == {str(pk) for pk in Thread.objects.values_list("pk", flat=True)}
    open_, waiting, _, deleted = (threads[thread_id] for thread_id in ada.thread_ids)
    assert (deleted["deleted_at"] is None, open_["deleted_at"]) == (False, None)
    assert open_["title"] == ada.mark
    assert {**open_["notes"], "updated_at": None} == {
        "summary": ada.mark,
        "facts": [ada.mark],
        "turn_count": 0,
        "updated_at": None,
    }
    assert deleted["notes"] == {"summary": "", "facts": [], "turn_count": 0, "updated_at": None}
    assert [(turn["seq"], turn["role"], turn["content"]) for turn in open_["turns"]] == [
        (1, "user", ada.mark),
        (2, "assistant", "ok"),
    ]
    assert (waiting["status"], waiting["runs"][0]["status"]) == ("AWAITING_HUMAN", "awaiting_human")
    assert waiting["runs"][0]["pending"][0]["tool_call_id"] == ada.call_id
    assert {fact["status"] for fact in document["facts"]} == {"active", "pending_review"}
    [session] = document["voice_sessions"]
    assert [(item["role"], item["text"]) for item in session["fragments"]] == [("user", ada.mark)]
    assert document["record"]["erasing_at"] is None
    assert document["retention"] == {}


def test_nobody_elses_is_in_it(tenant: Tenant, other_tenant: Tenant, model: ScriptedModelServer) -> None:
    worlds = [World(tenant.name, "user-ada"), World(tenant.name, "user-bob"), World(other_tenant.name, "user-ada")]
    for world in worlds:
        world.fill(model)
    for mine in worlds:
        text = "".join(gateway.export_user(mine.tenant_id, mine.user))
        assert mine.mark in text
        for other in worlds:
            assert other is mine or not [secret for secret in other.secrets_from(mine) if secret in text]


def test_a_person_of_whom_nothing_is_stored_has_the_same_document_with_empty_lists(tenant: Tenant) -> None:
    document = export(tenant, "zoe")
    assert list(document) == list(SCHEMA["properties"])
    del document["exported_at"]
    assert document == {
        "format": "memorygw.export/1",
        "user_id": "zoe",
        "record": None,
        "retention": {},
        "threads": [],
        "facts": [],
        "voice_sessions": [],
        "recipients": [],
        "host_data": [],
    }


def test_facts_have_their_kind_scope_persona_and_turn(tenant: Tenant, model: ScriptedModelServer) -> None:
    persona = gateway.create_persona(tenant, "tutor")
    gateway.set_persona_fact(tenant, persona.id, "motto", "of everybody")
    evidence = {"op": "SET", "key": "home", "value": "Turin", "evidence": "I live in Turin."}
    model.reply({"operations": [evidence]}, model="cheap")
    thread_id = gateway.ask(tenant, "ada", "I live in Turin.").thread_id
    learn()
    [text] = gateway.add_user_facts(tenant, "ada", ["Likes tea."])
    Fact.objects.create(
        tenant=tenant,
        scope="persona_user",
        owner_id=str(persona.id),
        user_id="ada",
        key="level",
        value="B2",
        origin="tool",
    )
    archived = gateway.upsert_user_fact(tenant, "ada", "pet", "cat")
    Fact.objects.filter(pk=archived.pk).update(status="archived", rejected=True)
    facts = {fact["value"]: fact for fact in export(tenant, "ada")["facts"]}
    assert set(facts) == {"Turin", "Likes tea.", "B2", "cat"}
    assert facts["Turin"]["provenance"] == {"thread_id": str(thread_id), "seq": 1}
    assert (facts["Likes tea."]["kind"], facts["Likes tea."]["key"]) == ("text", text.shown_key)
    assert facts["Likes tea."]["provenance"] == {"thread_id": None, "seq": None}
    assert (facts["B2"]["scope"], facts["B2"]["persona"], facts["Turin"]["persona"]) == ("persona_user", "tutor", None)
    assert (facts["cat"]["status"], facts["cat"]["rejected"]) == ("archived", True)


def test_the_models_that_got_the_persons_text_are_named_once_each(tenant: Tenant, model: ScriptedModelServer) -> None:
    for user in ("ada", "bob", "ada"):
        gateway.ask(tenant, user, "Hello")
    learn()
    bobs = Thread.objects.get(user_id="bob")
    ModelCall.objects.create(tenant=tenant, thread_id=bobs.pk, kind="CHAT", model="bob's", outcome="ok")
    fact = gateway.upsert_user_fact(tenant, "ada", "pet", "cat")
    Fact.objects.filter(pk=fact.pk).update(embedding=b"\0\0\0\0", embedding_model="vectors")
    assert export(tenant, "ada")["recipients"] == [
        {"model": "cheap", "kind": "MEMORY_USER"},
        {"model": "main", "kind": "CHAT"},
        {"model": "vectors", "kind": "EMBEDDING"},
    ]


@pytest.mark.parametrize(
    ("sent", "told"),
    [
        (['ж\u2028😀"\\', " né"], ['ж\u2028😀"\\', " né"]),
        (["a\ud83d", "\ude00b"], ["a😀", "b"]),
        (["\ud83d", "\ude00", "c"], ["😀", "", "c"]),
        (["\ude00a\ud83d", "b\x00"], ["\ufffda\ufffd", "b"]),
        # Its other half is the assistant's.
        (["a\ud83d"], ["a\ufffd"]),
    ],
)
def test_speech_is_told_as_it_came_in_whole_characters(
    tenant: Tenant, sent: Sequence[str], told: Sequence[str]
) -> None:
    session_id = gateway.open_voice_session(tenant, "ada").id
    for text in sent:
        gateway.add_voice_fragments(tenant, "ada", session_id, [("user", text)])
    gateway.add_voice_fragments(tenant, "ada", session_id, [("assistant", "\ude00")])
    [session] = export(tenant, "ada")["voice_sessions"]
    assert [item["text"] for item in session["fragments"]] == [*told, "\ufffd"]


def test_a_wrong_name_is_refused_before_the_first_chunk(tenant: Tenant) -> None:
    with pytest.raises(TenantNotFoundError):
        gateway.export_user("nobody", "ada")
    with pytest.raises(UserRequiredError):
        gateway.export_user(tenant, "*")


# --- how it is read


def make_turns(tenant: Tenant, count: int, content: Any) -> Thread:
    thread = Thread.objects.create(tenant=tenant, user_id="ada", turn_count=count)
    for start in range(1, count + 1, 5_000):
        Turn.objects.bulk_create(
            [
                Turn(thread=thread, seq=seq, role="user", content=content, tokens_through=seq)
                for seq in range(start, min(start + 5_000, count + 1))
            ],
            batch_size=500,
        )
    return thread


def measured(tenant: Tenant) -> tuple[int, int, int]:
    """Characters of ada's document, most bytes that it took at a time, and queries."""
    with CaptureQueriesContext(connection) as queries:
        tracemalloc.start()
        try:
            chars = sum(map(len, gateway.export_user(tenant, "ada")))
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    return chars, peak, len(queries)


def test_a_hundred_thousand_turns_take_the_memory_of_a_page_and_a_query_per_page(tenant: Tenant) -> None:
    words = "Слово за слово. " * 10
    make_turns(tenant, 5_000, words)
    _, small_peak, few = measured(tenant)
    make_turns(tenant, 95_000, words)
    chars, peak, many = measured(tenant)
    assert chars > 100_000 * len(words)
    assert peak < 10 * MEGABYTE
    assert peak < 2 * small_peak
    # Two more for the other thread: its runs, and the page of turns that says there are no more.
    assert many - few == 95 + 2


def test_long_turns_are_read_a_few_at_a_time(tenant: Tenant) -> None:
    image = [{"type": "image_url", "image_url": {"url": f"data:image/png;base64,{'A' * MEGABYTE}"}}]
    make_turns(tenant, 100, image)
    chars, peak, _ = measured(tenant)
    assert chars > 100 * MEGABYTE
    assert peak < 80 * MEGABYTE


@pytest.mark.parametrize("count", [999, 1_000, 1_001])
def test_no_turn_is_lost_or_doubled_between_two_pages(tenant: Tenant, count: int) -> None:
    make_turns(tenant, count, "Hello")
    [thread] = export(tenant, "ada")["threads"]
    assert [turn["seq"] for turn in thread["turns"]] == list(range(1, count + 1))


def test_more_threads_facts_and_runs_than_a_page_has(tenant: Tenant) -> None:
    threads = Thread.objects.bulk_create([Thread(tenant=tenant, user_id="ada") for _ in range(1_100)])
    Run.objects.bulk_create([Run(thread=threads[0], first_seq=1, last_seq=1) for _ in range(1_100)])
    Fact.objects.bulk_create(
        [
            Fact(tenant=tenant, owner_id="ada", key=f"k{n}", value="v", identity=str(n), origin="manual")
            for n in range(1_100)
        ]
    )
    document = export(tenant, "ada")
    assert len({thread["id"] for thread in document["threads"]}) == len(document["threads"]) == 1_100
    assert sum(len(thread["runs"]) for thread in document["threads"]) == 1_100
    assert len({fact["key"] for fact in document["facts"]}) == len(document["facts"]) == 1_100


@pytest.mark.django_db(transaction=True)
def test_no_connection_is_held_while_a_chunk_is_sent(tenant: Tenant) -> None:
    make_turns(tenant, 2_000, "Hello")
    chunks = 0
    for _ in gateway.export_user(tenant, "ada"):
        assert connection.connection is None
        chunks += 1
    assert chunks > 2


def test_every_table_with_what_a_person_said_is_exported() -> None:
    """A new one fails here, until `memorygw.exporting` knows it."""
    said = {table.name for table in personal_data() if CONTENT in table.columns.values()}
    assert said == {"turns", "runs", "threads", "facts", "notes", "voice_batches"}
