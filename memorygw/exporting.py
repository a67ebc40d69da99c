"""Everything that is stored about a person as one JSON document, for access and portability.

Its shape is ``memorygw/schemas/export.schema.json``. It is read from the shipped tables, in every state, also where a
host has marked a thread as deleted; what is derived (vectors, digests, the state of late work) is left out. It is no
snapshot: what is written or erased meanwhile may be in it or not. A host adds its own data by ``MEMORYGW_ERASERS``.
"""

import json
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import OuterRef, QuerySet, Subquery
from django.utils import timezone

from memorygw.database import release_connection
from memorygw.models import ModelCall, Persona, VoiceBatch, VoiceSession
from memorygw.purge import erasers
from memorygw.retention import policy
from memorygw.text import clean
from threads.models import Run, Thread, Turn
from usermemory.models import Fact, UserMemory
from workingmemory.models import WorkingMemoryState

FORMAT = "memorygw.export/1"

_CHUNK_CHARS = 64_000
_PAGE_ROWS = 1_000
_PAGE_CHARS = 1_000_000
_ROWS_AT_ONCE = 25

_RECORD = ("created_at", "memory_enabled", "cleared_at", "erasing_at")
_THREAD = ("id", "title", "status", "session_id", "turn_count", "created_at", "updated_at", "deleted_at")
_NOTES = ("summary", "facts", "covered", "updated_at")
_RUN = (
    *("id", "status", "error", "model", "tools", "pending", "memories", "warnings", "first_seq", "last_seq"),
    *("tool_steps", "prompt_tokens", "completion_tokens", "created_at", "finished_at"),
)
_TURN = (
    *("seq", "role", "content", "tool_calls", "tool_call_id", "refusal", "model", "status"),
    *("metadata", "extras", "client_view", "created_at", "stored_at"),
)
_FACT = (
    *("id", "key", "value", "kind", "status", "rejected", "scope", "operation", "origin", "confidence"),
    *("created_at", "updated_at"),
)
_VOICE_SESSION = ("id", "created_at", "heard_at", "closed_at")

Row = dict[str, Any]
Pieces = Iterable[str]
"""The text of one JSON value, in as many parts as it takes."""


def export_user(tenant_id: UUID, user_id: str) -> Iterator[str]:
    """The document, in chunks of at least `_CHUNK_CHARS` characters but for the last.

    Memory is that of a page of rows, however much there is. While the caller has a chunk, no connection is held.
    """
    chunk: list[str] = []
    chars = 0
    for piece in _document(tenant_id, user_id):
        chunk.append(piece)
        chars += len(piece)
        if chars >= _CHUNK_CHARS:
            release_connection()
            yield "".join(chunk)
            chunk, chars = [], 0
    release_connection()
    yield "".join(chunk)


def _document(tenant_id: UUID, user_id: str) -> Pieces:
    record = UserMemory.objects.filter(tenant_id=tenant_id, user_id=user_id).values(*_RECORD).first()
    head = {
        "format": FORMAT,
        "exported_at": timezone.now(),
        "user_id": user_id,
        "record": record,
        "retention": policy(tenant_id),
    }
    return _object(
        head,
        threads=_threads(tenant_id, user_id),
        facts=_facts(tenant_id, user_id),
        voice_sessions=_voice_sessions(tenant_id, user_id),
        recipients=([_json(recipient)] for recipient in recipients(tenant_id, user_id)),
        host_data=_host_data(tenant_id, user_id),
    )


def recipients(tenant_id: UUID, user_id: str) -> list[dict[str, str]]:
    """The models that the person's text went to, as ``{model, kind}`` with a `ModelCall.Kind`.

    Covered: every recorded call about a thread that is still stored, also one that failed, since it may have been read;
    the models that made the vectors of facts that are still stored. Not covered, as no row says whom they were about:
    learning from voice sessions and from messages of `learn_from_messages`, vectors of questions, calls about what has
    been deleted, clients that run a model of their own, and who operates a model.
    """
    threads = Thread.objects.filter(tenant_id=tenant_id, user_id=user_id)
    # One statement: it passes the tenant's calls once, however many threads there are.
    calls = ModelCall.objects.filter(tenant_id=tenant_id, thread_id__in=threads.values("pk"))
    embedded = Fact.objects.personal_to(tenant_id, user_id).exclude(embedding_model="")
    found = {
        *calls.values_list("model", "kind").distinct(),
        *((model, str(ModelCall.Kind.EMBEDDING)) for model in _distinct(embedded, "embedding_model")),
    }
    return [{"model": model, "kind": kind} for model, kind in sorted(found)]


# --- the parts


def _threads(tenant_id: UUID, user_id: str) -> Iterator[Pieces]:
    notes = {
        f"notes_{column}": Subquery(WorkingMemoryState.objects.filter(pk=OuterRef("pk")).values(column))
        for column in _NOTES
    }
    threads = Thread.objects.filter(tenant_id=tenant_id, user_id=user_id)
    for row in _rows(threads.values(*_THREAD, "persona__name", **notes)):
        head = {
            **_named(row, _THREAD),
            "persona": row["persona__name"],
            "notes": {
                "summary": row["notes_summary"] or "",
                "facts": row["notes_facts"] or [],
                "turn_count": row["notes_covered"] or 0,
                "updated_at": row["notes_updated_at"],
            },
        }
        turns = Turn.objects.filter(thread_id=row["id"]).values(*_TURN)
        yield _object(head, runs=_runs(row["id"]), turns=([_json(turn)] for turn in _rows(turns, "seq")))


def _runs(thread_id: UUID) -> Iterator[Pieces]:
    for row in _rows(Run.objects.filter(thread_id=thread_id).values(*_RUN, "persona__name")):
        yield [_json({**_named(row, _RUN), "persona": row["persona__name"]})]


def _facts(tenant_id: UUID, user_id: str) -> Iterator[Pieces]:
    facts = Fact.objects.personal_to(tenant_id, user_id)
    personas = Persona.objects.filter(
        tenant_id=tenant_id, pk__in=_distinct(facts.filter(scope=Fact.Scope.PERSONA_USER), "owner_id")
    )
    names = {str(pk): name for pk, name in personas.values_list("pk", "name")}
    for row in _rows(facts.values(*_FACT, "owner_id", "source_thread_id", "source_seq")):
        fact = {
            **_named(row, _FACT),
            # As the API shows it: a free text has no key of its own.
            "key": Fact(id=row["id"], key=row["key"]).shown_key,
            "persona": names.get(row["owner_id"]) if row["scope"] == Fact.Scope.PERSONA_USER else None,
            "provenance": {"thread_id": row["source_thread_id"], "seq": row["source_seq"]},
        }
        yield [_json(fact)]


def _voice_sessions(tenant_id: UUID, user_id: str) -> Iterator[Pieces]:
    sessions = VoiceSession.objects.filter(tenant_id=tenant_id, user_id=user_id)
    for row in _rows(sessions.values(*_VOICE_SESSION, "persona__name")):
        head = {**_named(row, _VOICE_SESSION), "persona": row["persona__name"]}
        yield _object(head, fragments=([_json(fragment)] for fragment in _whole(_fragments(row["id"]))))


def _fragments(session_id: UUID) -> Iterator[Row]:
    batches = VoiceBatch.objects.filter(session_id=session_id)
    for batch in _rows(batches.values("seq", "fragments", "stored_at"), "seq"):
        for role, text in json.loads(batch["fragments"]):
            yield {"role": role, "text": text, "stored_at": batch["stored_at"]}


def _whole(fragments: Iterable[Row]) -> Iterator[Row]:
    """The fragments as they came; but the halves of a character that came in two are both in the first of them (K1)."""
    held: Row | None = None
    for fragment in fragments:
        text = fragment["text"]
        if held:
            if held["role"] == fragment["role"] and _is_cut(held["text"], text):
                held["text"], text = held["text"] + text[0], text[1:]
            yield {**held, "text": _characters(held["text"])}
        held = {**fragment, "text": text}
    if held:
        yield {**held, "text": _characters(held["text"])}


def _is_cut(before: str, after: str) -> bool:
    return "\ud800" <= before[-1:] <= "\udbff" and "\udc00" <= after[:1] <= "\udfff"


def _characters(text: str) -> str:
    """Two halves beside each other as their character; what is half for good, and U+0000, as everywhere (K1)."""
    return clean(text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace"))


def _host_data(tenant_id: UUID, user_id: str) -> Iterator[Pieces]:
    for eraser in erasers():
        yield _object({"name": eraser.name}, data=([_json(item)] for item in eraser.export(tenant_id, user_id)))


# --- reading


def _rows(found: "QuerySet[Any, Any]", by: str = "id") -> Iterator[Row]:
    """What was found, in the order of a column that tells the rows apart. A page is a query, which is over when the
    first of its rows is given."""
    rest = found.order_by(by)
    while True:
        page, is_last = _page(rest)
        yield from page
        if is_last:
            return
        rest = found.filter(**{f"{by}__gt": page[-1][by]}).order_by(by)


def _page(rows: "QuerySet[Any, Any]") -> tuple[list[Row], bool]:
    """The first `_PAGE_ROWS`, or fewer when they are long; and whether these are all."""
    page: list[Row] = []
    chars = 0
    # A turn can have megabytes: taken from the database a few at a time, so that no page has a thousand such.
    for row in rows[:_PAGE_ROWS].iterator(chunk_size=_ROWS_AT_ONCE):
        page.append(row)
        chars += sum(len(str(value)) for value in row.values())
        if chars >= _PAGE_CHARS:
            return page, False
    return page, len(page) < _PAGE_ROWS


def _distinct(rows: "QuerySet[Any]", column: str) -> list[str]:
    return list(rows.order_by(column).values_list(column, flat=True).distinct())


def _named(row: Row, columns: Iterable[str]) -> Row:
    return {column: row[column] for column in columns}


# --- writing


def _object(head: Row, **lists: Iterable[Pieces]) -> Pieces:
    """A JSON object of the members in ``head``, of which there is one at least, and the lists."""
    yield _json(head)[:-1]
    for name, items in lists.items():
        yield f', "{name}": ['
        for number, item in enumerate(items):
            yield ",\n" if number else "\n"
            yield from item
        yield "]"
    yield "}"


def _json(value: Any) -> str:
    # SQLite keeps half a character that a host put into JSON itself; as UTF-8 it could not be sent.
    return clean(json.dumps(value, ensure_ascii=False, default=_plain))


def _plain(value: object) -> str:
    """A time or an id as REST answers have it."""
    return value.isoformat().replace("+00:00", "Z") if isinstance(value, datetime) else str(value)
