"""The queue: what a model proposed and nobody has confirmed. Nothing of it reaches a prompt, a search or a tool."""

import hashlib
from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

from django.db import transaction
from django.utils import timezone

from memorygw.conf import conf
from memorygw.exceptions import ContentChangedError, ErasureRunningError, MemoryNotFoundError, NotPendingError
from memorygw.models import Persona, Tenant
from usermemory.models import Fact, FactQuerySet, Owner
from usermemory.rows import drop_stalest, drop_stalest_texts, lock_owner

SCANNER, TURNS, MEMORY_SAVE = "scanner", "turns", "memory_save"
"""Ways in that a review policy may cover: the scanner, learning behind answers, the tool."""

_PLACE = ("tenant_id", "scope", "owner_id", "user_id", "identity")
_REVIEWED = {
    "never": (),
    "scanner": (SCANNER,),
    "always_extracted": (SCANNER, TURNS),
    "all_model_writes": (SCANNER, TURNS, MEMORY_SAVE),
}


def is_reviewed(way: str, persona: Persona | None, tenant: Tenant) -> bool:
    """Whether what comes this way waits for a person: by the persona's policy, the tenant's, the setting (C1)."""
    policy = (persona and persona.review_policy) or tenant.review_policy or conf.REVIEW_POLICY
    return way in _REVIEWED[policy]


def content_hash(fact: Fact) -> str:
    """What a reviewer saw, for approving just that (S46): SHA-256 of operation, key and value, a line each."""
    return hashlib.sha256(f"{fact.operation}\n{fact.shown_key}\n{fact.value}".encode()).hexdigest()


class ReviewStore:
    """The part of `usermemory.store.UserMemoryStore` that keeps the queue."""

    def list_pending(self, tenant_id: UUID | None) -> FactQuerySet:
        """Every waiting fact of the tenant, oldest first; of all tenants for None (R58–R60)."""
        pending = Fact.objects.pending().shown().in_order()
        return pending if tenant_id is None else pending.filter(tenant_id=tenant_id).kept(tenant_id)

    def current_value(self, fact: Fact) -> str | None:
        """What a waiting fact would change or delete; None: nothing, or it does not wait."""
        return self.current_values([fact]).get(fact.pk)

    def current_values(self, facts: Sequence[Fact]) -> dict[UUID, str]:
        """The same for many in one query, by their ids; without those that change nothing or do not wait."""
        places = {fact.pk: _place(fact) for fact in facts if fact.status == Fact.Status.PENDING_REVIEW}
        if not places:
            return {}
        columns = zip(_PLACE, zip(*places.values(), strict=True), strict=True)
        active = Fact.objects.active().filter(**{f"{name}__in": set(values) for name, values in columns})
        values = {row[:-1]: row[-1] for row in active.values_list(*_PLACE, "value")}
        return {pk: values[place] for pk, place in places.items() if place in values}

    def approve(self, fact: Fact, *, content_hash: str = "") -> Fact:
        """Make a waiting fact true: it replaces the active one of its key, or a proposed deletion takes that away; what
        was active is archived (R51, R56). Raises `NotPendingError`, `ContentChangedError`."""
        with transaction.atomic():
            fact = _locked(fact, content_hash)
            owner = Owner(fact.scope, fact.owner_id, fact.user_id)
            active = Fact.objects.of(fact.tenant_id, owner).active().filter(identity=fact.identity)
            deletes = fact.operation == Fact.Operation.DELETE
            if deletes and active.exclude(value=fact.value).exists():
                raise ContentChangedError
            active.update(status=Fact.Status.ARCHIVED)
            fact.status = Fact.Status.ARCHIVED if deletes else Fact.Status.ACTIVE
            fact.updated_at = timezone.now()
            fact.save(update_fields=["status", "updated_at"])
            if not deletes:
                drop_stalest(fact.tenant_id, owner, keep=fact)
                drop_stalest_texts(fact.tenant_id, owner, _most_texts(fact))
        return fact

    def reject(self, fact: Fact, *, content_hash: str = "") -> Fact:
        """Archive a waiting fact; the same one is not proposed again (R52, R53, R57)."""
        with transaction.atomic():
            fact = _locked(fact, content_hash)
            fact.status, fact.rejected, fact.updated_at = Fact.Status.ARCHIVED, True, timezone.now()
            fact.save(update_fields=["status", "rejected", "updated_at"])
        return fact

    def approve_many(self, tenant_id: UUID | None, ids: Sequence[UUID]) -> int:
        """Approve the waiting ones among these; how many there were (R61–R64)."""
        return sum(self._changed(self.approve, fact) for fact in self._waiting(tenant_id, ids))

    def reject_many(self, tenant_id: UUID | None, ids: Sequence[UUID]) -> int:
        return sum(self._changed(self.reject, fact) for fact in self._waiting(tenant_id, ids))

    def _waiting(self, tenant_id: UUID | None, ids: Sequence[UUID]) -> list[Fact]:
        # One transaction each: the rows are many people's, and no two records are ever locked together.
        return list(self.list_pending(tenant_id).filter(pk__in=ids))

    def _changed(self, change: Callable[[Fact], Fact], fact: Fact) -> bool:
        """Whether it was still there to be decided."""
        try:
            change(fact)
        except (NotPendingError, MemoryNotFoundError, ErasureRunningError, ContentChangedError):
            return False
        return True


def _place(fact: Fact) -> tuple[Any, ...]:
    return tuple(getattr(fact, name) for name in _PLACE)


def _most_texts(fact: Fact) -> int | None:
    """The cap of the persona from whose conversation a free text comes."""
    persona = fact.source_thread.persona if fact.source_thread and not fact.key else None
    return persona.max_facts if persona else None


def _locked(fact: Fact, expected_hash: str) -> Fact:
    lock_owner(fact.tenant_id, Owner(fact.scope, fact.owner_id, fact.user_id))
    fresh = Fact.objects.filter(pk=fact.pk).first()
    if fresh is None:
        raise MemoryNotFoundError
    if fresh.status != Fact.Status.PENDING_REVIEW:
        raise NotPendingError
    if expected_hash and expected_hash != content_hash(fresh):
        raise ContentChangedError
    return fresh
