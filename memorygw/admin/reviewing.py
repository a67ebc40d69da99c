"""The page on which a reviewer reads what waits, and the decision, which is about just what was read (S46)."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Any

from django.db.models import Q
from django.http import HttpRequest, HttpResponse

from memorygw import gateway
from memorygw.admin.base import GatewayAdmin
from memorygw.exceptions import ContentChangedError, ErasureRunningError, NotFoundError, NotPendingError
from memorygw.ids import uuid_or_none
from memorygw.retention import kept_of_all
from memorygw.text import clean, cut
from threads.models import Turn
from threads.turns import content_text
from usermemory.models import Fact
from usermemory.review import ReviewStore, content_hash

MOST = 100
CHARS_QUOTED = 500
APPROVE, REJECT = "approve", "reject"
_DECISION, _SEEN = "decide-", "seen-"


@dataclass(frozen=True)
class Waiting:
    """A fact, its hash as it is shown, the value that it would change or delete, and what it was learned from."""

    fact: Fact
    seen: str
    current: str | None
    quote: str


def page(admin: GatewayAdmin, request: HttpRequest, queryset: Any, *, preset: str = "") -> HttpResponse:
    """The oldest of what waits among these. ``preset``: the decision that is ticked already."""
    waiting = queryset.filter(status=Fact.Status.PENDING_REVIEW).select_related("tenant").shown()
    facts = list(waiting.order_by("created_at", "pk")[:MOST])
    current, quotes = ReviewStore().current_values(facts), _quotes(facts)
    shown = [Waiting(fact, content_hash(fact), current.get(fact.pk), quotes.get(_source(fact), "")) for fact in facts]
    return admin.render(request, "review.html", "Review", preset=preset, waiting=shown)


def decide(request: HttpRequest) -> tuple[list[tuple[Fact, str]], int]:
    """What was decided and how, and how many no longer were as they had been shown."""
    wanted = {
        pk: str(decision)
        for name, decision in request.POST.items()
        if decision in (APPROVE, REJECT)
        and name.startswith(_DECISION)
        and (pk := uuid_or_none(name.removeprefix(_DECISION)))
    }
    decided = []
    for fact in Fact.objects.filter(pk__in=list(wanted)[:MOST]).shown():
        decision = wanted[fact.pk]
        # Nothing that was not shown is decided on: an empty hash would say yes to anything.
        seen = str(request.POST.get(f"{_SEEN}{fact.pk}") or "not shown")
        try:
            made = gateway.decide_memory(fact.tenant_id, fact.pk, approve=decision == APPROVE, content_hash=seen)
        except (NotPendingError, ContentChangedError, ErasureRunningError, NotFoundError):
            continue
        decided.append((made, decision))
    return decided, len(wanted) - len(decided)


def _quotes(facts: Sequence[Fact]) -> dict[tuple[Any, ...], str]:
    sources = {_source(fact) for fact in facts if fact.source_thread_id and fact.source_seq}
    if not sources:
        return {}
    quoted = reduce(or_, (Q(thread_id=thread, seq=seq) for thread, seq in sources))
    # What is hidden from its user is hidden here.
    turns = Turn.objects.filter(quoted, kept_of_all("threads", "thread__"), thread__deleted_at__isnull=True)
    texts = {(turn.thread_id, turn.seq): content_text(turn.content) for turn in turns.only("thread", "seq", "content")}
    return {place: cut(clean(text), CHARS_QUOTED) for place, text in texts.items()}


def _source(fact: Fact) -> tuple[Any, ...]:
    return fact.source_thread_id, fact.source_seq
