"""The page on which a reviewer reads what waits, and the decision, which is about just what was read (S46)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.http import HttpRequest, HttpResponse

from memorygw import gateway
from memorygw.admin.base import GatewayAdmin
from memorygw.exceptions import ContentChangedError, ErasureRunningError, NotFoundError, NotPendingError
from usermemory.models import Fact
from usermemory.review import content_hash

MOST = 100
_SEEN = "seen-"


@dataclass(frozen=True)
class Waiting:
    """A fact, its hash as it is shown, and the value that it would change or delete."""

    fact: Fact
    seen: str
    current: str | None


def is_decision(request: HttpRequest) -> bool:
    return any(name.startswith(_SEEN) for name in request.POST)


def page(admin: GatewayAdmin, request: HttpRequest, queryset: Any, *, approve: bool) -> HttpResponse:
    facts = list(queryset.filter(status=Fact.Status.PENDING_REVIEW).order_by("pk")[:MOST])
    current = _current_values(facts)
    return admin.render(
        request,
        "review.html",
        "Approve these?" if approve else "Reject these?",
        action="approve" if approve else "reject",
        checkbox=ACTION_CHECKBOX_NAME,
        waiting=[Waiting(fact, content_hash(fact), current.get(_place(fact))) for fact in facts],
    )


def decide(request: HttpRequest, queryset: Any, *, approve: bool) -> tuple[list[Fact], int]:
    """What was decided, and how many no longer were as they had been shown."""
    shown = {name.removeprefix(_SEEN): seen for name, seen in request.POST.items() if name.startswith(_SEEN)}
    chosen = list(queryset.filter(pk__in=request.POST.getlist(ACTION_CHECKBOX_NAME))[:MOST])
    decided = []
    for fact in chosen:
        try:
            # Nothing that was not shown is decided on: an empty hash would say yes to anything.
            seen = str(shown.get(str(fact.pk)) or "not shown")
            decided.append(gateway.decide_memory(fact.tenant_id, fact.pk, approve=approve, content_hash=seen))
        except (NotPendingError, ContentChangedError, ErasureRunningError, NotFoundError):
            continue
    return decided, len(shown) - len(decided)


def _current_values(facts: Sequence[Fact]) -> dict[tuple[Any, ...], str]:
    active = Fact.objects.active().filter(
        tenant_id__in={fact.tenant_id for fact in facts},
        owner_id__in={fact.owner_id for fact in facts},
        identity__in={fact.identity for fact in facts},
    )
    return {_place(fact): fact.value for fact in active.shown()}


def _place(fact: Fact) -> tuple[Any, ...]:
    return fact.tenant_id, fact.scope, fact.owner_id, fact.user_id, fact.identity
