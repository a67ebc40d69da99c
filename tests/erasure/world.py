"""What becomes of what people say: decided, forgotten in part, erased with them, restored from a backup.

What forgets words tells `Words` so.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from time import sleep
from uuid import UUID

from django.db.models import Model
from django.test import Client
from django.utils import timezone

from memorygw import gateway, sweep
from memorygw.exceptions import (
    ErasureRunningError,
    MemorygwError,
    ThreadAwaitingHumanError,
    ThreadBusyError,
)
from memorygw.models import ErasureReceipt, Tenant
from memorygw.receipts import subject_of
from memorygw.replay import replay
from memorygw.testing import ScriptedModelServer
from tests.erasure.speaking import Speaking
from tests.erasure.words import ELSEWHERE, FACTS, NOTES, Person, Row, Tables, Word, Words, found_in, found_in_rows
from tests.memorygw.machine.fates import Died, Fate, Process
from threads.models import Run, Thread, TitleState, Turn
from usermemory.models import ExtractionState, Fact, UserMemory


@dataclass(frozen=True)
class Backup:
    """Every row, and what was true of it then."""

    rows: dict[type[Model], list[Model]]
    said: dict[str, Word]
    off: frozenset[Person]


class World(Speaking):
    """``begun`` are the erasures that ever came behind their fence, and whose; ``seen`` those that were finished.

    ``meanwhile``: what may happen between two statements of a process.
    """

    def __init__(
        self,
        server: ScriptedModelServer,
        tenants: Sequence[Tenant],
        new_ledger: Callable[[], None],
        meanwhile: Mapping[str, Callable[["World", Person, int], object]],
    ) -> None:
        super().__init__(server, tenants)
        self.tables, self.new_ledger, self.meanwhile = Tables(), new_ledger, meanwhile
        self.begun: dict[UUID, Person] = {}
        self.seen: set[UUID] = set()
        self.were_reset: set[UUID] = set()

    def begin_anew(self, start: Backup) -> None:
        """Everything is as in the beginning, and nobody was ever erased."""
        self.new_ledger()
        self.tables.restore(start.rows)
        self.words = Words(lambda: len(self.server.requests), dict(start.said))
        self.off, self.begun, self.seen = start.off, {}, set()
        self.were_reset, self.failure = set(), None

    # --- what is decided

    def decide(self, *, yes: bool) -> None:
        """On what has waited longest."""
        pending = Fact.objects.pending().filter(scope="user").order_by("pk").first()
        if pending:
            with suppress(ErasureRunningError):
                decide = gateway.approve_memory if yes else gateway.reject_memory
                decide(pending.tenant_id, pending.owner_id, pending.pk)

    def switch(self, person: Person, *, on: bool) -> None:
        with suppress(ErasureRunningError):
            gateway.set_user_memory(*person, enabled=on)
            self.off = self.off - {person} if on else self.off | {person}

    def hold(self, person: Person, pick: int) -> None:
        """A host takes a thread for a call of its own, and does not come back."""
        if thread_id := self.a_thread(person, pick):
            with suppress(MemorygwError):
                gateway.acquire_lease(*person, thread_id)

    # --- what is forgotten

    def forget_turn(self, person: Person, pick: int, *, learned: bool) -> None:
        turns = Turn.objects.filter(thread__tenant_id=person.tenant_id, thread__user_id=person.user_id).order_by("-pk")
        # FAULT: forgetting a turn has the notes made anew of all turns, those before a reset of the notes, too.
        turns = turns.exclude(thread_id__in=self.were_reset)
        # FAULT: facts and a title that a model is being asked for at this moment are stored all the same.
        turns = turns.exclude(
            thread_id__in=[
                *ExtractionState.objects.claimed().values_list("pk", flat=True),
                *TitleState.objects.claimed().values_list("pk", flat=True),
            ]
        )
        if turns:
            turn = turns[pick % len(turns)]
            words = found_in_rows(turns.filter(pk=turn.pk))
            with suppress(ThreadBusyError, ThreadAwaitingHumanError):
                gateway.forget_turn(*person, turn.thread_id, turn.pk, learned=learned)
                self.words.banish(words, NOTES, ELSEWHERE, *[FACTS] * learned)

    def delete_thread(self, person: Person, pick: int, *, learned: bool) -> None:
        if thread_id := self.a_thread(person, pick):
            words = found_in_rows(
                Thread.objects.filter(pk=thread_id),
                Turn.objects.filter(thread_id=thread_id),
                Run.objects.filter(thread_id=thread_id),
            )
            with suppress(ThreadBusyError):
                gateway.delete_threads(*person, [thread_id], learned=learned)
                self.words.banish(words, NOTES, ELSEWHERE, *[FACTS] * learned)

    def clear(self, person: Person) -> None:
        """What was said up to now is in no fact, and will not be."""
        with suppress(ErasureRunningError):
            gateway.clear_user_facts(*person)
            self.words.banish(self.words.of(person), FACTS)
            # SQLite's clock counts milliseconds: what is said in the same one counts as cleared too.
            sleep(0.002)

    def reset(self, person: Person, pick: int) -> None:
        if thread_id := self.a_thread(person, pick):
            gateway.reset_thread_memory(*person, thread_id)
            self.were_reset.add(thread_id)
            self.words.banish(found_in_rows(Turn.objects.filter(thread_id=thread_id)), NOTES)

    # --- who is forgotten

    def forget(self, person: Person, mode: str, *, force: bool = False, fate: Fate | None = None) -> None:
        """To the end, unless a call holds one of the threads, or the process dies."""
        # FAULT: who joins an erasure that is under way takes the threads by the mode asked for, not by the receipt's.
        running = ErasureReceipt.objects.filter(subject=subject_of(*person, "1"), status="running").first()
        mode = running.mode if running else mode
        threads = Thread.objects.filter(tenant_id=person.tenant_id, user_id=person.user_id)
        before, kept = self.places_of_others(person), set(threads.values_list("pk", flat=True))
        own = self.tables.places_of(self.words.of(person))
        try:
            with self.process(fate, person):
                receipt = gateway.forget_user(*person, mode=mode, force=force)
        except Died:
            self.notice()
            return
        except ThreadBusyError:
            assert not force
            assert fate or self.tables.places_of(self.words.of(person)) == own
            return
        finally:
            assert before <= self.places_of_others(person), "Words of somebody else are not where they were."
        self.notice()
        assert not self.tables.rows_about(person)
        stay = set(Thread.objects.filter(pk__in=kept).values_list("pk", flat=True))
        assert fate or stay == (kept if receipt.mode == "anonymize" else set())

    def go_and_come_back(self, person: Person) -> None:
        self.forget(person, "anonymize", force=True)
        self.talk(person, None)

    def notice(self) -> None:
        """Whose erasure is finished by now has nothing left."""
        self.tidy_log()
        subjects = {subject_of(*person, "1"): person for person in self.people}
        for receipt in ErasureReceipt.objects.order_by("pk"):
            person = subjects[receipt.subject]
            if receipt.phases:
                self.begun[receipt.pk] = person
            if receipt.status == "done" and receipt.pk not in self.seen:
                self.seen.add(receipt.pk)
                self.words.erase(person)
                self.off -= {person}

    def sweep(self, fate: Fate | None = None) -> None:
        """Once what dead processes held has run out; a sweep that dies is followed by another."""
        self.pass_time()
        with suppress(Died), self.process(fate, self.people[0]):
            sweep.keep_house()
        self.pass_time()
        sweep.keep_house()
        self.notice()
        assert not UserMemory.objects.filter(erasing_at__isnull=False).exists()
        assert not ErasureReceipt.objects.filter(status="running").exists()

    def pass_time(self) -> None:
        past = timezone.now() - timedelta(minutes=2)
        UserMemory.objects.filter(erasing_at__isnull=False).update(erasing_at=past)
        ErasureReceipt.objects.filter(status="running").update(touched_at=past)
        Thread.objects.filter(lease_expires_at__isnull=False).update(lease_expires_at=past)
        for learner in sweep.LEARNERS:
            learner.states.objects.filter(claim_token__isnull=False).update(claim_expires_at=past)
            learner.states.objects.filter(due_at__isnull=False).update(due_at=past)

    # --- backups

    def back_up(self) -> Backup:
        return Backup(self.tables.back_up(), dict(self.words.said), self.off)

    def restore(self, backup: Backup, fate: Fate | None) -> None:
        """Everything is as it was but the ledger, which says whom to erase again; replaying may die, and is begun
        again."""
        self.tables.restore(backup.rows)
        self.words.go_back(backup.said)
        self.off = backup.off
        self.seen -= set(ErasureReceipt.objects.filter(status="running").values_list("pk", flat=True))
        missing = self.begun.keys() - set(ErasureReceipt.objects.values_list("pk", flat=True))
        lost = {self.begun[pk] for pk in missing}
        before = self.places_of_others(*lost)
        assert ready() == (503 if missing else 200)
        with suppress(Died), self.process(fate, self.people[0]):
            replay()
        assert before <= self.places_of_others(*lost)
        replay()
        self.notice()
        assert ready() == 200
        assert before <= self.places_of_others(*lost), "Words of somebody else are not where they were."
        for person in lost:
            assert not self.tables.rows_about(person)
        self.sweep()

    # --- what there is

    def places_of_others(self, *people: Person) -> set[tuple[str, Row]]:
        others = [person for person in self.people if person not in people]
        return self.tables.places_of(self.words.of(*others))

    def told_to(self, person: Person) -> set[str]:
        """The words that a person can read of themself, and a model of theirs."""
        newest = Thread.objects.of_user(*person).order_by("-pk").first()
        context = gateway.get_context(*person, newest.pk).request_messages() if newest else ()
        return found_in([*gateway.export_user(*person), gateway.get_facts_text(*person), context])

    @contextmanager
    def process(self, fate: Fate | None, person: Person) -> Iterator[None]:
        """A process of its own, which may die, or which something else happens beside."""
        with Process(fate, lambda what: self.meanwhile[what](self, person, 0)).running():
            yield


def ready() -> int:
    return Client().get("/readyz").status_code
