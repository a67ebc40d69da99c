"""What must be true of one thread and its user, kept in plain Python beside the stores; and what the stores say."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import count
from time import sleep
from typing import Any
from uuid import UUID

from django.db import connection
from django.utils import timezone

from memorygw.models import ModelCall
from tests.memorygw.machine.script import FORGET, REMEMBER
from threads.models import Run, Thread, Turn
from threads.titles import TitleState
from threads.turns import TurnDraft
from usermemory.models import ExtractionState, Fact, UserMemory
from workingmemory.models import WorkingMemoryState

ADA = "ada"


@dataclass(frozen=True)
class Snapshot:
    """Every row that is about the thread and its user."""

    thread: Thread
    turns: Sequence[Turn]
    runs: Sequence[Run]
    extraction: ExtractionState
    notes: WorkingMemoryState
    title: TitleState
    facts: dict[str, str]
    fact_count: int

    @classmethod
    def of(cls, tenant_id: UUID, thread_id: UUID) -> "Snapshot":
        facts = list(Fact.objects.filter(tenant_id=tenant_id, owner_id=ADA).values_list("key", "value"))
        return cls(
            Thread.objects.get(pk=thread_id),
            list(Turn.objects.filter(thread_id=thread_id).order_by("seq")),
            list(Run.objects.filter(thread_id=thread_id).order_by("created_at", "pk")),
            ExtractionState.objects.filter(pk=thread_id).first() or ExtractionState(pk=thread_id),
            WorkingMemoryState.objects.filter(pk=thread_id).first() or WorkingMemoryState(pk=thread_id),
            TitleState.objects.filter(pk=thread_id).first() or TitleState(pk=thread_id),
            dict(facts),
            len(facts),
        )

    @property
    def user_seqs(self) -> list[int]:
        return [turn.seq for turn in self.turns if turn.role == "user"]

    @property
    def has_live_lease(self) -> bool:
        expires_at = self.thread.lease_expires_at
        return expires_at is not None and expires_at > timezone.now()

    @property
    def waiting(self) -> list[UUID]:
        return [run.pk for run in self.runs if run.status == "awaiting_human"]

    def results(self) -> Iterator[tuple[Turn, dict[str, Any] | None]]:
        """Every tool turn with the call that it answers, None where no call is open under its id."""
        open_calls: dict[str, dict[str, Any]] = {}
        for turn in self.turns:
            open_calls |= {call["id"]: call for call in turn.tool_calls or ()}
            if turn.role == "tool":
                yield turn, open_calls.pop(turn.tool_call_id or "", None)


class Others:
    """Every row that is about another thread, or another user of this or another tenant; compiled once, read often."""

    def __init__(self, tenant_id: UUID, thread_id: UUID) -> None:
        by_thread = [model.objects.exclude(thread_id=thread_id) for model in (Turn, Run, ModelCall)]
        states = [model.objects.exclude(pk=thread_id) for model in (ExtractionState, WorkingMemoryState, TitleState)]
        facts = Fact.objects.exclude(tenant_id=tenant_id, owner_id=ADA)
        records = UserMemory.objects.exclude(tenant_id=tenant_id, user_id=ADA)
        querysets: list[Any] = [Thread.objects.exclude(pk=thread_id), facts, records, *by_thread, *states]
        self._queries = [queryset.order_by("pk").query.sql_with_params() for queryset in querysets]

    def rows(self) -> list[Any]:
        found = []
        with connection.cursor() as cursor:
            for query in self._queries:
                cursor.execute(*query)
                found.append(cursor.fetchall())
        return found


@dataclass
class Ledger:
    """``said`` and ``unsaid`` are texts that must be, or never be, among the turns; ``closing`` the last texts of
    appended batches that an assistant ends; ``leases`` the tokens that a host got, ``dead`` those of dead calls.

    ``holder`` (with a ``live`` lease or one that ran out) and ``waiting`` say who has the thread. ``edits`` are facts
    set by hand, ``gone`` keys removed by hand, ``dropped`` keys that the cap took, ``known`` those of the last step,
    ``values`` facts as first seen, ``carried`` what requests were last seen to be made of.
    """

    tenant_id: UUID
    thread_id: UUID
    stored: list[tuple[str, ...]] = field(default_factory=list)
    said: set[str] = field(default_factory=set)
    unsaid: set[str] = field(default_factory=set)
    closing: set[str] = field(default_factory=set)
    leases: list[UUID] = field(default_factory=list)
    dead: set[UUID] = field(default_factory=set)
    holder: UUID | None = None
    live: bool = False
    waiting: UUID | None = None
    cleared_at: datetime | None = None
    cleared_through: int = 0
    reset_at: datetime | None = None
    reset_through: int = 0
    edits: dict[str, str] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)
    dropped: set[str] = field(default_factory=set)
    values: dict[str, str] = field(default_factory=dict)
    known: set[str] = field(default_factory=set)
    carried: Any = None
    numbers: Iterator[int] = field(default_factory=lambda: count(1))

    def snapshot(self) -> Snapshot:
        return Snapshot.of(self.tenant_id, self.thread_id)

    # --- who has the thread

    @property
    def refusal(self) -> str:
        """The code with which the thread refuses a call of anybody, or an empty string."""
        if self.waiting:
            return "thread_awaiting_human"
        return "thread_busy" if self.live else ""

    def freed(self, waiting: UUID | None = None) -> None:
        """A call that held the thread is over, or waits."""
        self.holder, self.live, self.waiting = None, False, waiting

    def held(self, token: UUID) -> None:
        self.leases.append(token)
        self.holder, self.live = token, True

    def read_holder(self, *, died: bool) -> None:
        """Who has the thread after a step that was disturbed, by its row: nobody, a host, or a call that died."""
        rows = self.snapshot()
        token = rows.thread.lease_token
        if died and token:
            self.dead.add(token)
        assert token in (None, *self.leases, *self.dead), "A call that is over holds the thread."
        self.holder, self.live = token, rows.has_live_lease
        self.waiting = rows.waiting[0] if rows.waiting else None

    def results_problem(self, drafts: Sequence[TurnDraft]) -> str:
        """The code with which these turns are refused for the results among them, or an empty string."""
        turns: list[Any] = [*self.snapshot().turns, *drafts]
        is_open: dict[str, bool] = {}
        for turn in turns:
            is_open |= {call["id"]: True for call in turn.tool_calls or ()}
            if turn.role == "tool":
                if not is_open.get(turn.tool_call_id):
                    return "double_result" if turn.tool_call_id in is_open else "invalid"
                is_open[turn.tool_call_id] = False
        return ""

    # --- what is remembered

    def notice_clearing(self, turn_count: int) -> None:
        """A clearing at so many turns was tried; by the record it happened, or not."""
        record = UserMemory.objects.filter(tenant_id=self.tenant_id, user_id=ADA).first()
        if record and record.cleared_at != self.cleared_at:
            self.cleared_at, self.cleared_through = record.cleared_at, turn_count
            self.edits.clear()
            self.known.clear()
        # SQLite's clock counts milliseconds: what is said in the same one counts as cleared too.
        sleep(0.002)

    def notice_reset(self, turn_count: int, before: datetime | None) -> None:
        """A reset at so many turns was tried; it happened when the time of the last writing has moved."""
        if self.snapshot().notes.updated_at != before:
            self.reset_through = turn_count

    def words(self, rows: Snapshot, first: int, through: int) -> list[str]:
        """What the user said in the turns above ``first`` up to ``through``, as far as it may be learned."""
        turns = [turn for turn in rows.turns if turn.role == "user" and turn.learnable and first < turn.seq <= through]
        return [turn.content for turn in turns]

    def answered(self, rows: Snapshot) -> int:
        """The thread's turn count at its last answer: of a run, or appended."""
        ends = [run.last_seq for run in rows.runs if run.status == "completed"]
        return max([0, *ends, *(turn.seq for turn in rows.turns if turn.content in self.closing)])

    def expected_facts(self, rows: Snapshot) -> dict[str, str | None]:
        """Every fact that is known since the last clearing, whatever the cap took; None: whoever learned it says how.

        It follows from the turns and the marker: what was said up to it, what tools remembered and forgot, and edits.
        """
        facts: dict[str, str | None] = dict.fromkeys(self.words(rows, self.cleared_through, rows.extraction.covered))
        for key, value in self._remembered(rows):
            facts[key] = value
        facts |= self.edits
        return {key: value for key, value in facts.items() if key not in self.gone | self._forgotten(rows)}

    def _remembered(self, rows: Snapshot) -> Iterator[tuple[str, str]]:
        for turn, call in rows.results():
            if call and call["function"]["name"] == REMEMBER and turn.content == "Remembered.":
                arguments = json.loads(call["function"]["arguments"])
                if turn.seq > self.cleared_through:
                    yield arguments["key"], arguments["value"]

    def _forgotten(self, rows: Snapshot) -> set[str]:
        told = ("Forgotten.", "Nothing was removed")
        calls = [call for turn, call in rows.results() if call and str(turn.content).startswith(told)]
        forgets = [call["function"]["arguments"] for call in calls if call["function"]["name"] == FORGET]
        return {json.loads(arguments)["key"] for arguments in forgets}
