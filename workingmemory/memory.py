"""What the model should know from one thread: a window of turns, and notes on those before it.

Two strategies behind one interface (rows W1–W76): SLIDING_WINDOW gives the newest turns that fit a share of the budget;
SUMMARY_BUFFER gives the last turns and notes that the cheap model rewrites as the thread grows; switched off, the 20
newest turns and no notes. Nothing here ever changes a turn.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models.functions import Now

from memorygw.conf import component, conf
from memorygw.exceptions import ModelFailedError, ThreadNotFoundError, UsageRefusedError
from memorygw.llm.base import CompletionRequest
from memorygw.llm.calls import call_model
from memorygw.models import ModelCall
from memorygw.prompts import render_prompt
from memorygw.replies import json_values
from memorygw.text import clean, cut
from threads.turns import ThreadLike, TurnLike, to_transcript
from workingmemory.models import WorkingMemoryState

logger = logging.getLogger(__name__)

TURNS_WHEN_OFF = 20
BATCH_TURNS = 50
SLIDING_WINDOW = "SLIDING_WINDOW"
SUMMARY_BUFFER = "SUMMARY_BUFFER"

SCHEMA: dict[str, Any] = {
    "name": "conversation_notes",
    "strict": True,
    "schema": {
        "type": "object",
        "properties": {"summary": {"type": "string"}, "facts": {"type": "array", "items": {"type": "string"}}},
        "required": ["summary", "facts"],
        "additionalProperties": False,
    },
}


@dataclass(frozen=True)
class Notes:
    """What is kept of the turns up to ``turn_count``."""

    summary: str = ""
    facts: Sequence[str] = ()
    turn_count: int = 0

    @property
    def empty(self) -> bool:
        return not self.summary and not self.facts


@dataclass(frozen=True)
class Window:
    """The history part of one request. ``left_out`` turns were wanted but did not fit ``budget_tokens``.

    ``exact``: the budget is final, notes and overhead are not taken off it any more.
    """

    turns: Sequence[TurnLike]
    budget_tokens: int
    notes: Notes = Notes()
    left_out: int = 0
    exact: bool = False


class WorkingMemory:
    """The shipped implementation of ``MEMORYGW_WORKING_MEMORY_STORE``."""

    def strategy(self, persona_choice: str = "") -> str | None:
        """The persona's strategy, else the setting's; None when working memory is off (W2)."""
        return (persona_choice or conf.WORKING_MEMORY) if conf.WORKING_MEMORY_ENABLED else None

    def load(
        self,
        thread: ThreadLike,
        *,
        strategy: str | None,
        budget_tokens: int,
        upcoming_tokens: int | None = None,
        exact: bool = False,
    ) -> Window:
        """The window and the notes, sized for this call; no model call, no write; two queries at any length.

        ``upcoming_tokens`` is the cost of the user turn that is about to be stored; it takes a place in the window, and
        then the newest stored group need not be kept. ``exact`` says that ``budget_tokens`` is final.
        """
        notes = self.get_notes(thread.id) if strategy == SUMMARY_BUFFER else Notes()
        if strategy == SLIDING_WINDOW and not exact:
            budget_tokens = int(budget_tokens * conf.CHAT_HISTORY_RATIO)
        upcoming = upcoming_tokens is not None
        from_seq = self._from_seq(thread.turn_count + upcoming, strategy, notes)
        turns = component("THREAD_STORE").get_window(
            thread,
            budget_tokens=budget_tokens - (upcoming_tokens or 0),
            from_seq=from_seq,
            keep_newest=not upcoming,
        )
        wanted = 0 if strategy == SLIDING_WINDOW else thread.turn_count - from_seq + 1
        return Window(turns, budget_tokens, notes, left_out=max(wanted - len(turns), 0), exact=exact)

    def get_notes(self, thread_id: UUID) -> Notes:
        state = WorkingMemoryState.objects.filter(thread_id=thread_id).first()
        return Notes(state.summary, state.facts, state.covered) if state else Notes()

    def get_state(self, tenant_id: UUID, thread_id: UUID, *, user_id: str) -> WorkingMemoryState:
        """What is stored about the thread, whatever the strategy; the empty state when nothing is (W60–W67)."""
        thread = component("THREAD_STORE").get_thread(tenant_id, thread_id, user_id=user_id)
        return WorkingMemoryState.objects.filter(thread_id=thread.id).first() or WorkingMemoryState(thread_id=thread.id)

    def reset(self, tenant_id: UUID, thread_id: UUID, *, user_id: str) -> None:
        """Forget the notes and mark the turns so far as seen; a running update loses its claim (W58, W68–W74)."""
        store = component("THREAD_STORE")
        store.get_thread(tenant_id, thread_id, user_id=user_id)
        with transaction.atomic():
            thread = store.fence(tenant_id, thread_id, user_id)
            if thread is None:
                raise ThreadNotFoundError
            WorkingMemoryState.objects.update_or_create(
                thread_id=thread.id,
                defaults={
                    "summary": "",
                    "facts": [],
                    "covered": thread.turn_count,
                    "answered": thread.turn_count,
                    "updated_at": Now(),
                    "due_at": None,
                    "attempts": 0,
                    "last_error": "",
                    "claim_token": None,
                    "claim_expires_at": None,
                },
            )

    def note_answer(self, thread: ThreadLike, *, strategy: str | None) -> UUID | None:
        """Say that the thread was answered, in the transaction of the answer; the id to wake when notes are due."""
        if strategy != SUMMARY_BUFFER:
            return None
        return WorkingMemoryState.objects.note_answer(thread.id, thread.turn_count, due=_is_due)

    def rewind(self, thread: ThreadLike) -> None:
        """The thread lost its newest turn: notes that were made of it go, and are made anew of what is left."""
        empty = {"covered": 0, "summary": "", "facts": []}
        WorkingMemoryState.objects.rewind(thread.id, thread.turn_count, **empty)

    def reread(self, thread: ThreadLike, seq: int) -> None:
        """The turn of this number is no more what it was: notes that may be made of it go at once, in the caller's
        transaction, and are made anew of what is left (S12)."""
        empty = {"covered": 0, "summary": "", "facts": [], "updated_at": Now(), "attempts": 0}
        WorkingMemoryState.objects.filter(thread_id=thread.id, answered__gte=seq).update(
            **empty, due_at=Now(), claim_token=None, claim_expires_at=None
        )

    def save_context(self, state_id: UUID) -> None:
        """Rewrite the notes of one thread, if they are due: the late work behind an answer (W18–W22, W47–W59).

        A failed, empty, cut or malformed reply leaves the state as it was and is tried again later (K5).
        """
        while conf.WORKING_MEMORY_ENABLED and (token := WorkingMemoryState.objects.claim(state_id)):
            state = WorkingMemoryState.objects.select_related("thread__persona").filter(pk=state_id).first()
            if state is None:
                return
            try:
                self._update(state, token)
            except UsageRefusedError as error:
                WorkingMemoryState.objects.fail(state_id, token, error.reason)
            except ModelFailedError as error:
                logger.warning("Notes of thread %s were not updated: %s", state_id, error.reason)
                WorkingMemoryState.objects.fail(state_id, token, error.reason)

    def _update(self, state: WorkingMemoryState, token: UUID) -> None:
        thread, store = state.thread, component("THREAD_STORE")
        through = min(state.answered, state.covered + BATCH_TURNS)
        turns = store.get_turns_between(thread.tenant_id, thread.id, state.covered, through)
        transcript = to_transcript(turn for turn in turns if turn.learnable)
        notes = Notes(state.summary, state.facts, through)
        if transcript:
            notes = self._rewrite(state, transcript, through)
        with transaction.atomic():
            if store.fence(thread.tenant_id, thread.id, thread.user_id) is None:
                WorkingMemoryState.objects.settle(state.pk, token)
                return
            answered = WorkingMemoryState.objects.filter(pk=state.pk).values_list("answered", flat=True).first() or 0
            WorkingMemoryState.objects.settle(
                state.pk,
                token,
                covered=through,
                summary=notes.summary,
                facts=list(notes.facts),
                updated_at=Now(),
                due_at=Now() if _is_due(through, answered) else None,
            )

    def _rewrite(self, state: WorkingMemoryState, transcript: str, through: int) -> Notes:
        thread = state.thread
        known = "\n".join(f"- {fact}" for fact in state.facts)
        prompt = render_prompt("working_memory", summary=state.summary, facts=known, transcript=transcript)
        completion = call_model(
            CompletionRequest(
                kind=ModelCall.Kind.MEMORY_WORKING,
                model=(thread.persona and thread.persona.cheap_model) or conf.CHEAP_MODEL,
                messages=[{"role": "user", "content": prompt}],
                temperature=0,
                max_output_tokens=2_000,
                json_schema=SCHEMA,
            ),
            tenant_id=thread.tenant_id,
            thread_id=thread.id,
        )
        if completion.finish_reason == "length":
            raise ModelFailedError("reply_cut")
        return _parse(completion.content or "", through)

    def _from_seq(self, turn_count: int, strategy: str | None, notes: Notes) -> int:
        """The first turn the window wants: all for a sliding one; else the last N, and none lost to the notes (W23)."""
        if strategy == SLIDING_WINDOW:
            return 1
        if strategy is None:
            return max(turn_count - TURNS_WHEN_OFF + 1, 1)
        return max(min(turn_count - conf.RECENT_TURNS, notes.turn_count) + 1, 1)


def _is_due(covered: int, answered: int) -> bool:
    return answered - covered >= conf.UPDATE_EVERY_TURNS


def _parse(reply: str, through: int) -> Notes:
    """The last object of the shape {"summary": text, "facts": [texts]}, within the length bound (K5, W26)."""
    for value in reversed(json_values(reply)):
        if isinstance(value, dict) and isinstance(value.get("summary"), str) and isinstance(value.get("facts"), list):
            return _bounded(clean(value["summary"]).strip(), value["facts"], through)
    raise ModelFailedError("reply_malformed")


def _bounded(summary: str, facts: list[Any], through: int) -> Notes:
    """Notes of at most NOTES_MAX_CHARS: the summary first, then whole facts while they fit."""
    summary = cut(summary, conf.NOTES_MAX_CHARS)
    room, kept = conf.NOTES_MAX_CHARS - len(summary), []
    for fact in (clean(fact).strip() for fact in facts if isinstance(fact, str)):
        room -= len(fact)
        if room < 0:
            break
        if fact:
            kept.append(fact)
    if not summary and not kept:
        raise ModelFailedError("reply_empty")
    return Notes(summary, kept, through)
