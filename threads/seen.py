"""What a client has seen of each thread, by which its conversation is found again (K14)."""

from collections.abc import Sequence
from uuid import UUID

from django.db.models import F

from threads.history import begin, follow
from threads.models import Thread, Turn
from threads.turns import INSTRUCTION_ROLES, TurnDraft, client_view_of

_MOST_TWINS = 10


class SeenStore:
    """The part of `threads.store.ThreadStore` that finds conversations by what was seen of them."""

    def find_history(self, tenant_id: UUID, user_id: str, histories: Sequence[UUID]) -> Thread | None:
        """The user's thread of which a client has seen the last possible of these, and nothing behind it."""
        threads = Thread.objects.of_user(tenant_id, user_id).select_related("persona")
        # By the turns' index: the thread's row is written with every turn, and another index on it would slow that.
        found = threads.filter(turns__history__in=histories, history=F("turns__history")).order_by("updated_at")
        return max(found, key=lambda thread: histories.index(thread.history), default=None)

    def find_seen(self, tenant_id: UUID, user_id: str, history: UUID, *, thread_id: UUID | None = None) -> list[Turn]:
        """The turns up to which a client has seen this of a thread of the user's, the newest first, and not too many:
        it may have asked several models."""
        turns = Turn.objects.filter(history=history, thread__deleted_at__isnull=True)
        mine = turns.filter(thread__tenant_id=tenant_id, thread__user_id=user_id)
        mine = mine.filter(thread_id=thread_id) if thread_id else mine
        return list(mine.select_related("thread").order_by("-stored_at")[:_MOST_TWINS])

    def forbid_learning(self, thread: Thread) -> None:
        """What a client said last of a thread teaches nothing after all."""
        Turn.objects.filter(thread_id=thread.pk, history=thread.history).update(learnable=False)

    def find_unlearnable(self, histories: Sequence[UUID]) -> set[UUID]:
        """Those of the histories that end in a turn of which nothing may ever be learned."""
        found = Turn.objects.filter(history__in=histories, learnable=False).values_list("history", flat=True)
        return {history for history in found if history}


def histories_of(thread: Thread, drafts: Sequence[TurnDraft]) -> list[UUID | None]:
    """What a client has seen up to and with each of the turns; None for one that it does not see."""
    history, found = thread.history or begin(thread.tenant_id, thread.user_id), []
    for draft in drafts:
        # Instructions are a client's own.
        is_seen = not draft.hidden and draft.role not in INSTRUCTION_ROLES
        history = follow(history, client_view_of(draft)) if is_seen else history
        found.append(history if is_seen else None)
    return found
