"""A person with something in every table, made through public ways in as far as there are any."""

from typing import Any
from uuid import UUID

from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.auth.models import User
from django.contrib.contenttypes.models import ContentType

from memorygw import gateway
from memorygw.models import IdempotencyKey, Tenant
from memorygw.testing import ScriptedModelServer
from tests.conftest import learn
from tests.memorygw.runs import call
from threads.models import Thread
from threads.turns import TurnDraft
from usermemory.models import Fact


def live_a_life(tenant: Tenant, user: str, model: ScriptedModelServer, word: str) -> list[UUID]:
    """Threads with turns, runs, notes and a title; facts in every state; a voice session, a key, a log entry. ``word``
    is in every text."""
    persona = gateway.create_persona(tenant, f"coach of {user}").pk
    threads = [gateway.ask(tenant, user, f"I live in {word}, and I like it there.").thread_id for _ in range(2)]
    gateway.append_turns(tenant, user, threads[0], _appended(word))
    gateway.rename_thread(tenant, user, threads[1], f"On {word}")
    model.defaults["cheap"] = lambda request: _learned(request, word)
    learn()
    gateway.upsert_user_fact(tenant, user, f"city of {word}", f"{word} is where I live.")
    gateway.add_user_facts(tenant, user, [f"Once went to {word}."])
    fact = Fact.objects.filter(tenant=tenant, owner_id=user).first()
    assert fact
    for status in (Fact.Status.PENDING_REVIEW, Fact.Status.ARCHIVED):
        _copy(fact, key=f"{status} {word}", status=status)
    _copy(fact, key=f"with coach {word}", scope="persona_user", owner_id=str(persona), user_id=user)
    gateway.open_session(tenant, user, f"session of {word}")
    _wait_for_the_client(tenant, user, model, word)
    session = gateway.open_voice_session(tenant, user)
    gateway.add_voice_fragments(tenant, user, session.id, [("user", f"I said {word}.")])
    IdempotencyKey.objects.create(tenant=tenant, user_id=user, digest=f"{user}{word}", fingerprint="f")
    _log(Thread.objects.get(pk=threads[0]), word)
    _log(fact, word)
    return threads


def _wait_for_the_client(tenant: Tenant, user: str, model: ScriptedModelServer, word: str) -> None:
    """A run that waits with a call of a tool of the client's own."""
    look = {"type": "function", "function": {"name": "look", "description": word, "parameters": {"type": "object"}}}
    model.reply(None, model="main", tool_calls=[call("look", "c1", at=word)])
    answer = gateway.ask(tenant, user, f"Look at {word}.", tools=[look])
    assert answer.run.status == "awaiting_human"


def _appended(word: str) -> list[TurnDraft]:
    made = call("look", f"c {word}", at=word)
    return [
        TurnDraft(role="user", content=[{"type": "text", "text": word}], metadata={"where": word}),
        TurnDraft(role="assistant", content=None, tool_calls=[made], extras={"reasoning": word}),
        TurnDraft(role="tool", content=word, tool_call_id=f"c {word}"),
        TurnDraft(
            role="assistant",
            content=None,
            refusal=f"Not about {word}.",
            client_view={"role": "assistant", "content": word},
        ),
    ]


def _learned(request: Any, word: str) -> Any:
    if '"operations"' in request.text:
        return {"operations": [{"op": "SET", "key": f"home {word}", "value": word}]}
    return {"summary": f"About {word}.", "facts": [word]}


def _copy(fact: Fact, **columns: Any) -> None:
    values = {field.attname: getattr(fact, field.attname) for field in Fact._meta.concrete_fields if field.name != "id"}
    Fact.objects.create(**values | {"identity": f"{columns['key']}"[:64]} | columns)


def _log(row: Any, word: str) -> None:
    operator, _ = User.objects.get_or_create(username="operator")
    LogEntry.objects.create(
        user=operator,
        content_type=ContentType.objects.get_for_model(row),
        object_id=str(row.pk),
        object_repr=f"{word}",
        action_flag=CHANGE,
        change_message=f"Changed {word}.",
    )
