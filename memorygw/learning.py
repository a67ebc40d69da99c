"""What an answer leaves to be learned later."""

from functools import partial

from django.db import transaction

import threads.tasks
import threads.titles
import usermemory.tasks
import workingmemory.tasks
from memorygw.claims import wake
from memorygw.conf import component
from memorygw.models import Persona
from memorygw.text import NOBODY
from threads.turns import ThreadLike


def teaches_facts(persona: Persona | None) -> bool:
    """Whether facts are ever learned from what is said to this persona now, also once its memory is on again."""
    return persona is None or persona.memory_enabled


def queue_learning(thread: ThreadLike, persona: Persona | None) -> None:
    """Mark what is due in the answer's transaction, and wake a worker when it is committed; nobody's thread teaches no
    facts (A12)."""
    memory = component("WORKING_MEMORY_STORE")
    strategy = memory.strategy(persona.working_memory if persona else "")
    facts_due = None if thread.user_id == NOBODY else component("USER_MEMORY_STORE").note_answer(thread, persona)
    due = [
        (usermemory.tasks.extract_facts, facts_due),
        (workingmemory.tasks.update_notes, memory.note_answer(thread, strategy=strategy)),
        (threads.tasks.write_title, threads.titles.note_answer(thread)),
    ]
    for task, state_id in due:
        if state_id:
            transaction.on_commit(partial(wake, task, state_id), robust=True)
