"""A title for a thread that has none, by the helper model, after its first answer (T23, T24)."""

import logging
from uuid import UUID

from django.db import transaction
from django.db.models.functions import Now

from memorygw.conf import component, conf
from memorygw.exceptions import ModelFailedError, UsageRefusedError
from memorygw.llm.base import CompletionRequest
from memorygw.llm.calls import call_model
from memorygw.models import ModelCall
from memorygw.prompts import render_prompt
from memorygw.text import cut, one_line
from threads.models import Thread
from threads.models import TitleState as TitleState
from threads.turns import ThreadLike, to_transcript

logger = logging.getLogger(__name__)

MAX_TITLE_CHARS = 80
_TURNS_READ = 4


def note_answer(thread: ThreadLike) -> UUID | None:
    """Say that the thread was answered, in the transaction of the answer; the id to wake when it wants a title."""
    if not conf.TITLES_ENABLED or thread.title:
        return None
    return TitleState.objects.note_answer(thread.id, thread.turn_count, due=lambda covered, _: covered == 0)


def forget_title(thread: ThreadLike, seq: int) -> None:
    """Have the title made anew that was made of the turn of this number; one that a person gave is theirs."""
    if seq > _TURNS_READ:
        return
    states, anew = TitleState.objects.filter(pk=thread.id), {"due_at": Now(), "claim_token": None, "covered": 0}
    states.filter(claim_token__isnull=False).update(**anew, claim_expires_at=None)
    if states.filter(covered__gte=1).update(**anew, claim_expires_at=None):
        Thread.objects.filter(pk=thread.id).update(title="")


def write_title(state_id: UUID) -> None:
    """Write the title, if it is due and there is still none: one that a person gave meanwhile is never overwritten."""
    token = TitleState.objects.claim(state_id) if conf.TITLES_ENABLED else None
    state = TitleState.objects.select_related("thread__persona").filter(pk=state_id).first()
    if token is None or state is None:
        return
    try:
        title = "" if state.thread.title else _ask(state.thread)
    except UsageRefusedError as error:
        TitleState.objects.fail(state_id, token, error.reason)
    except ModelFailedError as error:
        logger.warning("Thread %s got no title: %s", state_id, error.reason)
        TitleState.objects.fail(state_id, token, error.reason)
    else:
        _settle(state, token, title)


@transaction.atomic
def _settle(state: TitleState, token: UUID, title: str) -> None:
    thread = component("THREAD_STORE").fence(state.thread.tenant_id, state.pk, state.thread.user_id)
    settled = TitleState.objects.settle(state.pk, token, covered=state.answered)
    # The thread's time of change stays: a title that nobody gave is no activity.
    if thread and settled and not thread.title:
        Thread.objects.filter(pk=state.pk).update(title=title)


def _ask(thread: Thread) -> str:
    turns = component("THREAD_STORE").get_turns_between(thread.tenant_id, thread.pk, 0, _TURNS_READ)
    transcript = to_transcript(turns)
    if not transcript:
        return ""
    completion = call_model(
        CompletionRequest(
            kind=ModelCall.Kind.THREAD_TITLE,
            model=(thread.persona and thread.persona.cheap_model) or conf.CHEAP_MODEL,
            messages=[{"role": "user", "content": render_prompt("thread_title", transcript=transcript)}],
            temperature=0,
            max_output_tokens=50,
        ),
        tenant_id=thread.tenant_id,
        thread_id=thread.pk,
    )
    title = cut(one_line(completion.content or "").strip(" \"'“”«»`.#*"), MAX_TITLE_CHARS)
    if not title:
        raise ModelFailedError("empty")
    return title
