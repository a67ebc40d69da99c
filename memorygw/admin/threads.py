"""Conversations: found by user or id, read as a transcript, forgotten; changed nowhere."""

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from django.contrib import admin, messages
from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse

from memorygw import gateway
from memorygw.admin.base import may_read
from memorygw.admin.rights import MOST, NOBODY, REFUSALS, Deed, RightsAdmin, ask, is_confirmed
from memorygw.admin.transcript import page_of
from memorygw.ids import uuid_or_none
from memorygw.models import Tenant
from memorygw.retention import kept_of_all
from threads.models import Thread
from usermemory.models import UserMemory

_SHOWN = ("tenant", "user_id", "persona", "status", "turn_count", "token_count", "created_at", "updated_at")


@admin.register(Thread)
class ThreadAdmin(RightsAdmin):
    content = ("title", "shown_title")
    is_logged = True

    list_display = ("shown_title", "user_id", "tenant", "status", "turn_count", "updated_at")
    list_filter = ("status", "tenant")
    list_select_related = ("tenant",)
    related = ("tenant", "persona")
    search_fields = ("user_id",)
    search_help_text = "A user's id or a thread's, whole. The list ends after 1,000."
    actions = ("forget_threads", *RightsAdmin.actions)

    def has_forget_threads_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("memorygw_threads.delete_thread")

    def get_queryset(self, request: HttpRequest) -> "QuerySet[Any]":
        return super().get_queryset(request).filter(kept_of_all("threads"), deleted_at__isnull=True)

    def get_search_results(
        self, request: HttpRequest, queryset: "QuerySet[Any]", search_term: str
    ) -> tuple["QuerySet[Any]", bool]:
        if not search_term:
            return queryset, False
        # With its tenants the index of a user's threads can be used.
        of_user = Q(tenant__in=Tenant.objects.values("pk"), user_id=search_term)
        thread_id = uuid_or_none(search_term)
        return queryset.filter(of_user | Q(pk=thread_id) if thread_id else of_user), False

    @admin.display(description="title")
    def shown_title(self, thread: Thread) -> str:
        return thread.title or "(no title)"

    def show(self, request: HttpRequest, row: Thread) -> HttpResponse:
        is_read = may_read(request)
        return self.render(
            request,
            "thread.html",
            str(row),
            thread=row,
            may_read=is_read,
            columns=[(name.replace("_", " "), getattr(row, name)) for name in _SHOWN],
            page=page_of(row, request.GET.get("after", ""), with_content=is_read),
            person=UserMemory.objects.filter(tenant_id=row.tenant_id, user_id=row.user_id).first(),
        )

    @admin.action(description="Forget the chosen threads…", permissions=["forget_threads"])
    def forget_threads(self, request: HttpRequest, queryset: Any) -> HttpResponse | None:
        threads = list(queryset.order_by("tenant_id", "user_id", "pk").defer("title")[: MOST + 1])
        if not 0 < len(threads) <= MOST:
            self.message_user(request, f"At most {MOST} at a time.", messages.WARNING)
            return None
        deed = _forgetting(threads)
        if not is_confirmed(request, deed):
            return ask(self, request, deed, [(str(thread.pk), {"turns": thread.turn_count}) for thread in threads])
        forgotten = 0
        for (tenant_id, user_id), of_person in groupby(threads, lambda thread: (thread.tenant_id, thread.user_id)):
            ids = [thread.pk for thread in of_person]
            try:
                user = None if user_id == NOBODY else user_id
                gateway.delete_threads(tenant_id, user, ids, learned="learned" in request.POST)
            except REFUSALS as error:
                self.message_user(request, f"{len(ids)} not: {error}", messages.ERROR)
                continue
            forgotten += len(ids)
        if forgotten:
            self.message_user(request, f"{forgotten} forgotten.", messages.SUCCESS)
        return None


def _forgetting(threads: Sequence[Thread]) -> Deed:
    return Deed(
        "Forget these threads for good?",
        "All that was said in them is deleted, with the notes that were made of it, and cannot be restored.",
        "Forget",
        f"forget {len(threads)}",
        {"learned": "Also the facts that were learned only from them."},
    )
