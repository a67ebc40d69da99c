"""Finding what is due, and doing it: the net under every lost wake-up, and the way to wait for background work."""

import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from memorygw import erasure, expiry, voice
from memorygw.claims import LateWork, has_broker, send
from memorygw.conf import component, conf
from memorygw.database import after
from memorygw.models import IdempotencyKey, VoiceSession
from threads.tasks import write_title
from threads.titles import TitleState
from usermemory.models import EmbeddingState, ExtractionState
from usermemory.tasks import embed_facts, extract_facts
from workingmemory.models import WorkingMemoryState
from workingmemory.tasks import update_notes

logger = logging.getLogger(__name__)

_POLL_SECONDS = 0.1
_WAKE_AGAIN_SECONDS = 5.0
_BATCH = 500
_KEYS_KEPT_SECONDS = 24 * 3600


@dataclass(frozen=True)
class Learner:
    """A kind of late work: where its state is, which task does it, whether it is switched on."""

    states: type[LateWork]
    task: Any
    enabled: Callable[[], bool]


LEARNERS = (
    Learner(ExtractionState, extract_facts, lambda: conf.EXTRACTION_ENABLED),
    Learner(WorkingMemoryState, update_notes, lambda: conf.WORKING_MEMORY_ENABLED),
    Learner(TitleState, write_title, lambda: conf.TITLES_ENABLED),
    Learner(VoiceSession, voice.learn_from_voice, lambda: conf.EXTRACTION_ENABLED),
    Learner(EmbeddingState, embed_facts, lambda: bool(conf.EMBEDDING_MODEL)),
)


def due() -> Iterator[tuple[Learner, UUID]]:
    """What is due now, longest due first, at most a batch of each kind."""
    for learner in LEARNERS:
        if learner.enabled():
            for pk in learner.states.objects.due().order_by("due_at").values_list("pk", flat=True)[:_BATCH]:
                yield learner, pk


def wake_due() -> int:
    """Send a wake-up for everything that is due; how many."""
    found = list(due())
    for learner, pk in found:
        send(learner.task, pk)
    return len(found)


def work_off() -> int:
    """Do what is due in this process; how many states were worked on. Others may be at it too: each row is claimed."""
    found = list(due())
    for learner, pk in found:
        try:
            learner.task(str(pk))
        except Exception:
            # A defect in one piece of work is no reason to leave the others; its claim runs out, and it is tried again.
            logger.exception("Late work failed: %s", learner.task.name)
    return len(found)


def scan() -> int:
    """One pass of the scanner: with a broker workers are woken for what it finds, without one it is read here. How many
    threads were found."""
    found = component("USER_MEMORY_STORE").mark_scanned()
    for pk in found:
        if has_broker():
            send(extract_facts, pk)
        else:
            extract_facts(str(pk))
    return len(found)


def wake_scanned() -> None:
    """The periodic pass, where the scanner is one of the triggers."""
    if "scanner" in conf.EXTRACTION_TRIGGERS:
        for pk in component("USER_MEMORY_STORE").mark_scanned():
            send(extract_facts, pk)


def keep_house() -> None:
    """What is to be done now and then: recover the runs of dead processes, go on with their erasures, close voice
    sessions that nobody closed, forget what is old."""
    recover_stuck_runs()
    erasure.go_on()
    expiry.keep_house()
    voice.keep_house()
    IdempotencyKey.objects.filter(created_at__lte=after(-_KEYS_KEPT_SECONDS)).delete()


def recover_stuck_runs() -> int:
    """Fail the runs of processes that died; how many."""
    return int(component("THREAD_STORE").recover_stuck_runs())


def sweep() -> int:
    """One pass: with a broker wake its workers, without one do the work here; how much late work was found."""
    keep_house()
    return wake_due() if has_broker() else work_off()


def until_idle(timeout_seconds: float) -> bool:
    """Sweep until nothing is due and nobody is at work, by the rows in the database; False when time ran out.

    What waits for its retry time is not due.
    """
    deadline = time.monotonic() + timeout_seconds
    next_sweep = 0.0
    while _busy():
        now = time.monotonic()
        if now > deadline:
            return False
        if now >= next_sweep or not has_broker():
            sweep()
            next_sweep = now + _WAKE_AGAIN_SECONDS
        time.sleep(_POLL_SECONDS)
    return True


def _busy() -> bool:
    return any(
        learner.states.objects.claimed().exists() or (learner.enabled() and learner.states.objects.due().exists())
        for learner in LEARNERS
    )
