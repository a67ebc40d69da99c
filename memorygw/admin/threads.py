"""Conversations: found by user or id, read as a transcript, changed nowhere."""

from typing import Any
from uuid import UUID

from django.contrib import admin
from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse

from memorygw.admin.base import GatewayAdmin, may_read
from memorygw.admin.transcript import page_of
from memorygw.models import Tenant
from memorygw.retention import kept_of_all
from threads.models import Thread

_SHOWN = ("tenant", "user_id", "persona", "status", "turn_count", "token_count", "created_at", "updated_at")


def uuid_or_none(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None


@admin.register(Thread)
class ThreadAdmin(GatewayAdmin):
    content = ("title",)
    is_logged = True

    list_display = ("id", "tenant", "user_id", "title", "status", "turn_count", "updated_at")
    list_filter = ("status", "tenant")
    list_select_related = ("tenant",)
    search_fields = ("user_id",)
    search_help_text = "A user's id or a thread's, whole. The list ends after 1,000."

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

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        if request.method not in ("GET", "HEAD"):
            raise PermissionDenied
        thread = self.get_object(request, unquote(object_id))
        if not self.has_view_permission(request, thread):
            raise PermissionDenied
        if thread is None:
            return self._get_obj_does_not_exist_redirect(request, self.opts, object_id)  # type: ignore[no-any-return,attr-defined]
        is_read = may_read(request)
        if is_read:
            self.log_opening(request, thread)
        page = page_of(thread, request.GET.get("after", ""), with_content=is_read)
        columns = [(name.replace("_", " "), getattr(thread, name)) for name in _SHOWN]
        return self.render(
            request, "thread.html", str(thread), thread=thread, may_read=is_read, columns=columns, page=page
        )

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any:
        pk = uuid_or_none(object_id)
        return pk and self.get_queryset(request).select_related("tenant", "persona").filter(pk=pk).first()
