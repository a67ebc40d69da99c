"""People: one page for each, with what is known, said, noted and used; and the way to forget, anonymise and export."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect

from memorygw import gateway
from memorygw.admin.base import may_read
from memorygw.admin.facts import is_editable
from memorygw.admin.rights import RightsAdmin
from memorygw.exceptions import ErasureRunningError
from memorygw.ids import uuid_or_none
from memorygw.models import ErasureReceipt, Tenant
from memorygw.receipts import receipts_of
from memorygw.text import clean
from threads.models import Run, Thread
from threads.turns import content_text
from usermemory.models import Fact, UserMemory
from workingmemory.models import WorkingMemoryState

FACTS_SHOWN, SHOWN = 50, 20


@dataclass(frozen=True)
class ShownFact:
    fact: Fact
    is_editable: bool


@dataclass(frozen=True)
class Notes:
    thread: Thread
    summary: str
    facts: Sequence[str]


@dataclass(frozen=True)
class Used:
    """What was in the prompt of an answer: the facts that are still there, and how many are gone."""

    run: Run
    facts: Sequence[Fact]
    gone: int


@dataclass(frozen=True)
class PersonPage:
    """The newest of everything; the lists have the rest. Without content: that it is there, and no word of it."""

    facts: Sequence[ShownFact]
    threads: Sequence[Thread]
    notes: Sequence[Notes]
    used: Sequence[Used]
    receipts: Sequence[ErasureReceipt]


def page_of(person: UserMemory, *, with_content: bool, may_edit: bool) -> PersonPage:
    facts = _facts(person, with_content=with_content)
    threads = Thread.objects.of_user(person.tenant_id, person.user_id).order_by("-created_at", "-id")
    newest = list((threads if with_content else threads.defer("title"))[:SHOWN])
    return PersonPage(
        facts=[ShownFact(fact, may_edit and is_editable(fact)) for fact in facts],
        threads=newest,
        notes=_notes(newest) if with_content else (),
        used=_used(person, newest) if with_content else (),
        receipts=list(receipts_of(person.tenant_id, person.user_id).order_by("-pk")[:SHOWN]),
    )


def _facts(person: UserMemory, *, with_content: bool) -> "QuerySet[Fact]":
    of_person = Fact.objects.personal_to(person.tenant_id, person.user_id).kept(person.tenant_id)
    # What waits comes first; what is archived is in the list.
    facts = of_person.exclude(status=Fact.Status.ARCHIVED).order_by("-status", "-updated_at", "-pk").shown()
    return (facts if with_content else facts.defer("key", "value"))[:FACTS_SHOWN]


def _notes(threads: Sequence[Thread]) -> list[Notes]:
    found = WorkingMemoryState.objects.in_bulk([thread.pk for thread in threads])
    states = [(thread, found[thread.pk]) for thread in threads if thread.pk in found]
    return [
        Notes(thread, clean(state.summary), [clean(content_text(fact)) for fact in state.facts])
        for thread, state in states
        if state.summary or state.facts
    ]


def _used(person: UserMemory, threads: Sequence[Thread]) -> list[Used]:
    # `gateway.list_answers` leaves out what a persona told of all its users, which an operator wants to see.
    of_threads = Run.objects.filter(thread__in=[thread.pk for thread in threads])
    # Not by key, whose index has the runs of everybody.
    runs = list(of_threads.order_by("-created_at", "-pk")[:SHOWN])
    ids = {uuid for uuid in map(uuid_or_none, chain.from_iterable(run.memories for run in runs)) if uuid}
    known = Fact.objects.filter(tenant_id=person.tenant_id, pk__in=ids).shown()
    facts = {str(fact.pk): fact for fact in known}
    return [
        Used(run, [facts[pk] for pk in run.memories if pk in facts], sum(pk not in facts for pk in run.memories))
        for run in runs
        if run.memories
    ]


@admin.register(UserMemory)
class PersonAdmin(RightsAdmin):
    """Whoever has ever talked, or of whom something is known."""

    is_logged = True

    list_display = ("user_id", "tenant", "memory_enabled", "created_at", "erasing_at")
    list_filter = ("memory_enabled", "tenant")
    list_select_related = ("tenant",)
    search_fields = ("user_id",)
    search_help_text = "A user's id, whole. The list ends after 1,000."

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return request.user.has_perm("memorygw_usermemory.change_usermemory")

    def get_search_results(
        self, request: HttpRequest, queryset: "QuerySet[Any]", search_term: str
    ) -> tuple["QuerySet[Any]", bool]:
        # With its tenants the index of the records can be used.
        found = queryset.filter(tenant__in=Tenant.objects.values("pk"), user_id=search_term)
        return (found if search_term else queryset), False

    def show(self, request: HttpRequest, row: UserMemory) -> HttpResponse:
        may_edit = request.user.has_perm("memorygw_usermemory.change_fact") and may_read(request)
        page = page_of(row, with_content=may_read(request), may_edit=may_edit)
        return self.render(request, "person.html", f"Person {row.user_id}", person=row, page=page, **self._may(request))

    def take(self, request: HttpRequest, row: UserMemory) -> HttpResponse:
        """Memory on or off for the person."""
        wanted = request.POST.get("memory")
        if not self.has_change_permission(request, row) or wanted not in ("on", "off"):
            raise PermissionDenied
        try:
            gateway.set_user_memory(row.tenant_id, row.user_id, enabled=wanted == "on")
        except ErasureRunningError as error:
            self.message_user(request, str(error), "error")
        else:
            self.log_change(request, row, f"Memory switched {wanted}.")
        return HttpResponseRedirect(request.path)

    def _may(self, request: HttpRequest) -> Mapping[str, Any]:
        rights = {
            "forget_people": ("Forget…", self.has_forget_permission(request)),
            "anonymize_people": ("Anonymise…", self.has_anonymize_permission(request)),
            "export_person": ("Export…", self.has_export_permission(request)),
        }
        return {
            "may_read": may_read(request),
            "may_switch": self.has_change_permission(request),
            "rights": {action: label for action, (label, may) in rights.items() if may},
            "checkbox": admin.helpers.ACTION_CHECKBOX_NAME,
        }
