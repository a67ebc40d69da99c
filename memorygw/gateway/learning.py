"""What is learned late, had again by hand."""

from collections.abc import Sequence
from functools import partial
from uuid import UUID

from django.db import transaction

from memorygw.claims import wake
from memorygw.exceptions import InvalidError
from memorygw.sweep import LEARNERS


def retry_learning(kind: str, ids: Sequence[UUID]) -> int:
    """Have late work of one kind (``extraction``, ``notes``, ``title``, ``voice``, ``embedding``) tried now, as if for
    the first time, by the ids of its states; how many. Left alone is what somebody works on or has nothing to do.
    """
    learner = next((learner for learner in LEARNERS if learner.states.kind == kind), None)
    if learner is None:
        raise InvalidError(fields={"kind": [f"One of {', '.join(each.states.kind for each in LEARNERS)}."]})
    retried = learner.states.objects.retry(ids)
    for pk in ids if retried else ():
        # One that was left alone is not claimed: waking it costs a message.
        transaction.on_commit(partial(wake, learner.task, pk), robust=True)
    return retried
