"""Voice sessions: fragments of speech as they come, messages when it is over, facts learned once (A88–A103, K20).

A session has no thread and no notes: the realtime model keeps its own context, and only facts outlive it (A101, A102).
"""

import json
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from itertools import groupby
from operator import itemgetter
from uuid import UUID

from django.db import transaction
from django.db.models import QuerySet
from django.db.models.functions import Now

from memorygw.claims import late_work, wake
from memorygw.conf import component, conf
from memorygw.context import ModelLimits, facts_block, system_prompt
from memorygw.database import after
from memorygw.exceptions import VoiceSessionClosedError, VoiceSessionNotFoundError
from memorygw.ids import new_id
from memorygw.learning import teaches_facts
from memorygw.llm.base import Message
from memorygw.models import Persona, VoiceBatch, VoiceSession
from memorygw.preparing import ContextQuery, injects, model_of
from memorygw.text import NOBODY, clean
from memorygw.tokens import count_tokens
from threads.turns import Said, to_transcript
from usermemory.learning import failures_kept
from usermemory.models import Fact, Owner
from usermemory.reading import Reading, memory_model

logger = logging.getLogger(__name__)

Fragment = tuple[str, str]
"""Role and text."""

_KEPT_SECONDS = 24 * 3600


@dataclass(frozen=True)
class OpenedSession:
    """A session that has begun, and what to tell the realtime model."""

    id: UUID
    instructions: str


def open_session(
    tenant_id: UUID, user_id: str, *, persona: Persona | None, instructions: str, session_id: UUID | None = None
) -> OpenedSession:
    """Begin a session. See `memorygw.gateway.open_voice_session` for the contract."""
    with transaction.atomic():
        remembers = component("USER_MEMORY_STORE").admit(tenant_id, user_id)
        session = VoiceSession.objects.create(
            pk=session_id or new_id(),
            tenant_id=tenant_id,
            user_id=user_id,
            persona=persona,
            teaches_facts=remembers and teaches_facts(persona),
        )
    return OpenedSession(session.pk, instructions_for(session, instructions))


def instructions_for(session: VoiceSession, instructions: str) -> str:
    """The session's instructions with what is known about the user behind them; nothing of what nobody named."""
    persona, model = session.persona, model_of(session.persona)
    query = ContextQuery(
        tenant_id=session.tenant_id,
        user_id=session.user_id,
        persona=persona,
        model=model,
        remembers=component("USER_MEMORY_STORE").remembers(session.tenant_id, session.user_id),
    )
    text = instructions or (persona.instructions if persona else "")
    if not injects(query):
        return text
    facts = component("USER_MEMORY_STORE").get_facts_in_reach(session.tenant_id, session.user_id, session.persona_id)
    return system_prompt(model, text, facts_block(facts).text).text


def find_session(tenant_id: UUID, user_id: str, session_id: UUID) -> VoiceSession:
    sessions = VoiceSession.objects.filter(tenant_id=tenant_id, user_id=user_id)
    session: VoiceSession | None = sessions.select_related("persona", "tenant").filter(pk=session_id).first()
    if session is None:
        raise VoiceSessionNotFoundError
    return session


def add_fragments(
    tenant_id: UUID, user_id: str, session_id: UUID, fragments: Sequence[Fragment], *, batch_id: UUID | None = None
) -> UUID:
    """Store fragments in their order, behind those that came before. `VoiceSessionClosedError` when it is over."""
    remembers = user_id == NOBODY or component("USER_MEMORY_STORE").remembers(tenant_id, user_id)
    with transaction.atomic():
        sessions = VoiceSession.objects.filter(tenant_id=tenant_id, user_id=user_id)
        session = sessions.select_for_update().filter(pk=session_id).first()
        if session is None:
            raise VoiceSessionNotFoundError
        if session.closed_at:
            raise VoiceSessionClosedError
        session.batch_count += 1
        session.heard_at = Now()
        session.save(update_fields=["batch_count", "heard_at"])
        batch = VoiceBatch.objects.create(
            pk=batch_id or new_id(),
            session=session,
            seq=session.batch_count,
            fragments=json.dumps(fragments),
            learnable=remembers,
        )
    return batch.pk


def close_session(tenant_id: UUID, user_id: str, session_id: UUID) -> list[Message]:
    """End a session and have it learned from, once, however often it is closed; its messages."""
    session = find_session(tenant_id, user_id, session_id)
    with transaction.atomic():
        if _close(VoiceSession.objects.filter(pk=session.pk)):
            transaction.on_commit(partial(wake, learn_from_voice, session.pk), robust=True)
    return consolidate(_fragments(session.batches.order_by("seq")))


def keep_house() -> None:
    """Close what was abandoned, so that it is learned from; drop what was closed a day ago and is done with."""
    _close(VoiceSession.objects.filter(heard_at__lte=after(-conf.VOICE_IDLE_SECONDS)))
    done = VoiceSession.objects.filter(closed_at__lte=after(-_KEPT_SECONDS))
    (done.filter(due_at__isnull=True) if conf.EXTRACTION_ENABLED else done).delete()


def _close(sessions: "QuerySet[VoiceSession]") -> int:
    return sessions.filter(closed_at__isnull=True).update(closed_at=Now(), due_at=Now())


def consolidate(fragments: Iterable[Fragment]) -> list[Message]:
    """Fragments as messages: neighbours of one role are one, joined as they are; a blank one is dropped, and still
    keeps its neighbours apart (A92–A95, K20). One pass, whatever their number."""
    merged = ((role, _joined(text for _, text in neighbours)) for role, neighbours in groupby(fragments, itemgetter(0)))
    return [{"role": role, "content": said} for role, text in merged if (said := text.strip())]


def _joined(texts: Iterable[str]) -> str:
    """One text, as it may be stored; halves of a character that came in two fragments are whole again (K1)."""
    units = "".join(texts).encode("utf-16-le", "surrogatepass")
    return clean(units.decode("utf-16-le", "replace"))


def _fragments(batches: "QuerySet[VoiceBatch]") -> Iterable[Fragment]:
    for stored in batches.values_list("fragments", flat=True).iterator():
        yield from json.loads(stored)


# --- what is learned


@late_work
def learn_from_voice(session_id: str) -> None:
    """Learn from one closed session: the late work behind it, done once, whoever and however many try (A96–A99)."""
    pk = UUID(session_id)
    token = VoiceSession.objects.claim(pk) if conf.EXTRACTION_ENABLED else None
    session = VoiceSession.objects.select_related("persona", "tenant").filter(pk=pk).first()
    if token and session:
        with failures_kept(VoiceSession.objects, pk, token):
            _learn(session, token)


def _learn(session: VoiceSession, token: UUID) -> None:
    """One request for a session that anybody spoke in; none without a user or without text."""
    store, persona = component("USER_MEMORY_STORE"), session.persona
    if session.user_id == NOBODY or not (session.teaches_facts and teaches_facts(persona)):
        VoiceSession.objects.settle(session.pk, token)
        return
    if not session.tenant.memory_extraction_enabled:
        # Read later, if it is switched on again soon.
        VoiceSession.objects.fail(session.pk, token, "extraction_off")
        return
    watermark = store.watermark(session.tenant_id, session.user_id)
    reading = Reading(
        tenant_id=session.tenant_id,
        owner=Owner.user(session.user_id),
        transcript=_transcript(session, watermark.cleared_at),
        kind=persona.fact_kind if persona else Fact.Kind.TEXT,
        persona=persona,
    )
    store.learn(reading, watermark=watermark, settle=partial(_settle, session.pk, token))


def _settle(pk: UUID, token: UUID) -> bool:
    """Behind the session's lock, as its person may be erased meanwhile."""
    VoiceSession.objects.select_for_update().filter(pk=pk).first()
    return VoiceSession.objects.settle(pk, token)


def _transcript(session: VoiceSession, watermark: datetime | None) -> str:
    """What was said since the user cleared their facts; of a very long session the newest half of what fits a model."""
    batches = session.batches.filter(learnable=True).order_by("seq")
    if watermark:
        batches = batches.filter(stored_at__gt=watermark)
    messages = consolidate(_fragments(batches))
    newest = _newest(messages, memory_model(session.persona))
    return to_transcript(Said(message["role"], message["content"], session.created_at) for message in newest)


def _newest(messages: Sequence[Message], model: str) -> Sequence[Message]:
    room = ModelLimits.of(model).prompt_tokens // 2
    for index in range(len(messages) - 1, -1, -1):
        said: str = messages[index]["content"]
        tokens = count_tokens(said, model)
        if tokens > room:
            logger.warning("A voice session is too long for the model: %d messages were not read whole.", index + 1)
            end = said[len(said) - len(said) * room // tokens :]
            return [{**messages[index], "content": end}, *messages[index + 1 :]]
        room -= tokens
    return messages
