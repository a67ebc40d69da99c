"""No word of an erased person is ever seen again, whatever people, programs, workers and backups do, in any order.

A state machine of hypothesis: every person says words that nobody else says, and after each rule every row of every
table, what people read and what models were told is searched for words that may not be there any more. Anything may
happen while a model is asked; processes die in the middle of an erasure; backups come back.

A failure prints a line with ``reproduce_failure``; put it above `new_machine` to see that example again.
"""

import json
import sys
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path
from typing import cast
from uuid import UUID

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from pytest_django import Settings

from memorygw import receipts
from memorygw.models import ErasureReceipt, Tenant
from memorygw.testing import ScriptedModelServer
from tests.conftest import learn
from tests.erasure.words import Person
from tests.erasure.world import Backup, World
from tests.memorygw.machine.fates import DIES_AFTER, DIES_BEFORE, Fate

EXAMPLES, STEPS = 16, 25
Does = dict[str, Callable[[World, Person, int], object]]
SAYS: Does = {
    "anew": lambda world, person, pick: world.talk(person, None),
    "on": lambda world, person, pick: world.talk(person, pick),
    "with a tool": lambda world, person, pick: world.talk_with_tool(person, pick, answers=True),
    "with a tool that waits": lambda world, person, pick: world.talk_with_tool(person, pick, answers=False),
    "by a host's model": lambda world, person, pick: world.append(person, pick),
    "twice": lambda world, person, pick: world.send_twice(person),
    "in messages": lambda world, person, pick: world.tell_messages(person),
    "by voice": lambda world, person, pick: world.speak(person, ends=False),
    "by voice, to the end": lambda world, person, pick: world.speak(person, ends=True),
    "as a fact": lambda world, person, pick: world.set_fact(person, with_persona=False),
    "as a fact with a persona": lambda world, person, pick: world.set_fact(person, with_persona=True),
    "as a text": lambda world, person, pick: world.add_text(person),
    "as a title": lambda world, person, pick: world.rename(person, pick),
    "as an edit": lambda world, person, pick: world.edit(person, pick),
    "in the admin": lambda world, person, pick: world.log(person, pick),
}
DECIDES: Does = {
    "approved": lambda world, person, pick: world.decide(yes=True),
    "rejected": lambda world, person, pick: world.decide(yes=False),
    "switched off": lambda world, person, pick: world.switch(person, on=False),
    "switched on": lambda world, person, pick: world.switch(person, on=True),
    "held": lambda world, person, pick: world.hold(person, pick),
}
FORGETS: Does = {
    "turn": lambda world, person, pick: world.forget_turn(person, pick, learned=False),
    "turn, learned": lambda world, person, pick: world.forget_turn(person, pick, learned=True),
    "thread": lambda world, person, pick: world.delete_thread(person, pick, learned=False),
    "thread, learned": lambda world, person, pick: world.delete_thread(person, pick, learned=True),
    "facts": lambda world, person, pick: world.clear(person),
    "notes": lambda world, person, pick: world.reset(person, pick),
}
GOES: Does = {
    "forgotten": lambda world, person, pick: world.forget(person, "delete", force=True),
    "anonymised, and back": lambda world, person, pick: world.go_and_come_back(person),
    "switched off": DECIDES["switched off"],
}
MEANWHILE = SAYS | FORGETS | GOES | {"learned": lambda world, person, pick: learn()}
PREPARES = ["", "anew", "by a host's model", "by voice, to the end"]
WHILE_A_MODEL_IS_ASKED = [*FORGETS, *GOES]
WHILE_SOMEBODY_IS_FORGOTTEN = [*(how for how in SAYS if how != "in the admin"), *FORGETS, "learned"]

persons, picks = st.integers(0, 3), st.integers(0, 5)
deaths = st.builds(Fate, at=st.integers(0, 90), what=st.sampled_from([DIES_BEFORE, DIES_AFTER]))
others_at_work = st.builds(Fate, at=st.integers(0, 90), what=st.sampled_from(WHILE_SOMEBODY_IS_FORGOTTEN))
interruptions = st.none() | st.builds(Fate, at=st.integers(0, 3), what=st.sampled_from(WHILE_A_MODEL_IS_ASKED))
modes = st.sampled_from(["delete", "anonymize"])


class ErasureMachine(RuleBasedStateMachine):
    """The rules. Every example begins with the same ``start``, and with an empty ledger."""

    def __init__(self, world: World, start: Backup) -> None:
        super().__init__()
        self.world, self.backup, self.restores, self.turns = world, start, 0, count()
        world.begin_anew(start)

    def begin(self, number: int, interruption: Fate | None = None, pick: int = 0) -> Person:
        """Whose turn it is; at one of the next requests to a model something happens to them."""
        person = self.world.people[number]
        if interruption:
            what = partial(MEANWHILE[interruption.what], self.world, person, pick)
            self.world.begin(person, what, at=interruption.at)
        else:
            self.world.begin(person)
        return person

    # --- what is said, and what becomes of it

    @rule(person=persons, how=st.sampled_from(list(SAYS)), pick=picks, interruption=interruptions)
    def say(self, person: int, how: str, pick: int, interruption: Fate | None) -> None:
        SAYS[how](self.world, self.begin(person, interruption, pick), pick)

    @rule(person=persons, prepared=st.sampled_from(PREPARES), pick=picks, interruption=interruptions | interruptions)
    def learn(self, person: int, prepared: str, pick: int, interruption: Fate | None) -> None:
        """Prepared, there is something to learn."""
        if prepared:
            SAYS[prepared](self.world, self.begin(person), 0)
        self.begin(person, interruption, pick)
        learn()

    @rule(person=persons, how=st.sampled_from([*DECIDES, "backed up"]), pick=picks)
    def decide(self, person: int, how: str, pick: int) -> None:
        if how == "backed up":
            self.back_up()
        else:
            DECIDES[how](self.world, self.begin(person), pick)

    @rule(person=persons, how=st.sampled_from(list(FORGETS)), pick=picks)
    def forget_some(self, person: int, how: str, pick: int) -> None:
        FORGETS[how](self.world, self.begin(person), pick)

    # --- who is forgotten

    @rule(person=persons, mode=modes, force=st.booleans(), fate=st.none() | others_at_work)
    def forget(self, person: int, mode: str, force: bool, fate: Fate | None) -> None:
        self.world.forget(self.begin(person), mode, force=force, fate=fate)

    @rule(person=persons, mode=modes, fate=deaths)
    def begin_to_forget(self, person: int, mode: str, fate: Fate) -> None:
        """The process dies, unless it is done before."""
        self.world.forget(self.begin(person), mode, force=True, fate=fate)

    @rule(fate=st.none() | deaths)
    def sweep(self, fate: Fate | None) -> None:
        self.begin(0)
        self.world.sweep(fate)

    # --- backups

    def back_up(self) -> None:
        self.backup, self.restores = self.world.back_up(), 0

    @rule(fate=st.none() | deaths)
    def restore(self, fate: Fate | None) -> None:
        self.begin(0)
        self.world.restore(self.backup, fate)
        # FAULT: each receipt is replayed, those of replays, too: of one person twice as many with every restore.
        self.restores += 1
        if self.restores > 2:
            self.back_up()

    # --- always, and in the end

    @invariant()
    def nobody_sees_what_is_gone(self) -> None:
        world = self.world
        if world.failure:
            raise world.failure
        assert world.words.misplaced(world.tables.places()) == {}
        assert world.words.told_too_late([json.dumps(request.body) for request in world.server.requests]) == set()
        # Reading takes long: every other time it is somebody's turn.
        number = next(self.turns)
        person = world.people[number // 2 % len(world.people)]
        if number % 2 and not world.is_marked(person):
            assert world.told_to(person) <= world.words.of(person)

    @invariant()
    def receipts_are_whole(self) -> None:
        assert [pk for pk, _ in receipts.problems() if not self.has_whole_second(pk)] == []
        # One that had only begun when the backup was made that it is missing from was looked for by nobody.
        finished = ErasureReceipt.objects.filter(status="done", phases__verified__isnull=False)
        assert not finished.exclude(verified=True).exists()

    def has_whole_second(self, pk: UUID) -> bool:
        """FAULT: a time within the first millisecond of its second is sealed as ".000", and taken in from the ledger as
        a whole second, which reads as altered."""
        receipt = ErasureReceipt.objects.get(pk=pk)
        return not all(time and time.microsecond for time in (receipt.created_at, receipt.finished_at))

    def teardown(self) -> None:
        """Everybody is forgotten in the end, and not one word is left."""
        if sys.exception() is None:
            self.begin(0)
            self.world.sweep()
            learn()
            self.nobody_sees_what_is_gone()
            for number, person in enumerate(self.world.people):
                self.world.forget(person, ("delete", "anonymize")[number % 2], force=True)
            learn()
            self.nobody_sees_what_is_gone()
            self.receipts_are_whole()
            assert self.world.tables.places() == {}


@pytest.fixture
def world(
    transactional_db: None,
    tenant: Tenant,
    other_tenant: Tenant,
    model: ScriptedModelServer,
    settings: Settings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> World:
    """Short beats, so that a turn or two reach them; every wake-up is lost."""
    settings.MEMORYGW_EXTRACT_EVERY_TURNS = settings.MEMORYGW_UPDATE_EVERY_TURNS = 2
    settings.MEMORYGW_RECENT_TURNS = 3
    settings.MEMORYGW_TITLES_ENABLED = True
    settings.MEMORYGW_EMBEDDING_MODEL = "vectors"
    settings.MEMORYGW_EMBEDDING_BASE_URL = model.base_url
    monkeypatch.setattr("memorygw.claims.wake", lambda task, pk: None)
    ledgers = (str(tmp_path / f"{number}") for number in count())

    def new_ledger() -> None:
        settings.MEMORYGW_ERASURE_LEDGER = next(ledgers)

    world = World(model, [tenant, other_tenant], new_ledger, MEANWHILE)
    world.live()
    return world


def test_whatever_happens_no_word_of_an_erased_person_is_seen(world: World) -> None:
    start = world.back_up()

    def new_machine() -> ErasureMachine:
        return ErasureMachine(world, start)

    run_state_machine_as_test(
        cast(type[ErasureMachine], new_machine),
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=STEPS,
            deadline=None,
            print_blob=True,
            phases=(Phase.reuse, Phase.generate, Phase.shrink),
            suppress_health_check=list(HealthCheck),
        ),
    )
