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
from threads.turns import ThreadLike


def queue_learning(thread: ThreadLike, persona: Persona | None) -> None:
    """Mark what is due in the answer's transaction, and wake a worker when it is committed."""
    memory = component("WORKING_MEMORY_STORE")
    strategy = memory.strategy(persona.working_memory if persona else "")
    due = [
        (usermemory.tasks.extract_facts, component("USER_MEMORY_STORE").note_answer(thread)),
        (workingmemory.tasks.update_notes, memory.note_answer(thread, strategy=strategy)),
        (threads.tasks.write_title, threads.titles.note_answer(thread)),
    ]
    for task, state_id in due:
        if state_id:
            transaction.on_commit(partial(wake, task, state_id), robust=True)
