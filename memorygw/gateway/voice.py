"""Voice sessions: facts go into the instructions, and are learned when the conversation is over."""

from collections.abc import Sequence
from uuid import UUID

from memorygw import voice
from memorygw.exceptions import InvalidError, VoiceSessionNotFoundError
from memorygw.gateway.arguments import TenantLike, UserLike, refuse_unstorable, tenant_id, user_or_nobody, uuid_of
from memorygw.llm.base import Message
from memorygw.models import Persona
from memorygw.preparing import find_persona

MAX_FRAGMENTS = 10_000
VOICE_ROLES = ("user", "assistant")


def open_voice_session(
    tenant: TenantLike,
    user_id: UserLike | None,
    *,
    persona: str | Persona = "",
    instructions: str = "",
    session_id: UUID | None = None,
) -> voice.OpenedSession:
    """Begin a session: ``id``, and the ``instructions`` (by default the persona's) with what is known about the user
    behind them (A89). Without a user (None) nothing is told and nothing learned (A99)."""
    tenant_pk = tenant_id(tenant)
    refuse_unstorable("instructions", instructions)
    return voice.open_session(
        tenant_pk,
        user_or_nobody(user_id),
        persona=find_persona(tenant_pk, persona) if persona else None,
        instructions=instructions,
        session_id=session_id,
    )


def get_voice_session(
    tenant: TenantLike, user_id: UserLike | None, session_id: UUID | str, *, instructions: str = ""
) -> voice.OpenedSession:
    """A session as `open_voice_session` gave it, with what is known by now. `VoiceSessionNotFoundError`."""
    session = voice.find_session(tenant_id(tenant), user_or_nobody(user_id), _session_id(session_id))
    return voice.OpenedSession(session.pk, voice.instructions_for(session, instructions))


def add_voice_fragments(
    tenant: TenantLike,
    user_id: UserLike | None,
    session_id: UUID | str,
    fragments: Sequence[voice.Fragment],
    *,
    batch_id: UUID | None = None,
) -> UUID:
    """Keep fragments (role and text) in the order in which they came; the id of the batch.

    A text may be part of a word or of a character (K20). Raises `InvalidError`, `VoiceSessionNotFoundError`,
    `VoiceSessionClosedError`.
    """
    if len(fragments) > MAX_FRAGMENTS:
        raise InvalidError(fields={"items": [f"At most {MAX_FRAGMENTS}."]})
    for index, (role, text) in enumerate(fragments):
        if role not in VOICE_ROLES:
            raise InvalidError(fields={f"items[{index}].role": [f"One of {', '.join(VOICE_ROLES)}."]})
        if not isinstance(text, str):
            raise InvalidError(fields={f"items[{index}].text": ["Needs text."]})
    pk = _session_id(session_id)
    return voice.add_fragments(tenant_id(tenant), user_or_nobody(user_id), pk, fragments, batch_id=batch_id)


def get_voice_batch(tenant: TenantLike, user_id: UserLike | None, session_id: UUID | str, batch_id: UUID) -> UUID:
    """The id of a batch that was stored. `VoiceSessionNotFoundError` when it was not."""
    session = voice.find_session(tenant_id(tenant), user_or_nobody(user_id), _session_id(session_id))
    if not session.batches.filter(pk=batch_id).exists():
        raise VoiceSessionNotFoundError
    return batch_id


def close_voice_session(tenant: TenantLike, user_id: UserLike | None, session_id: UUID | str) -> list[Message]:
    """End a session: its messages. Facts are learned from it afterwards, once, however often it is closed (A97)."""
    return voice.close_session(tenant_id(tenant), user_or_nobody(user_id), _session_id(session_id))


def _session_id(value: UUID | str) -> UUID:
    return uuid_of(value, VoiceSessionNotFoundError)
