"""What is learned late: what is behind, why, and another try. No notes, no words of anybody (S36)."""

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

from django.contrib import admin, messages
from django.db.models import Case, Q, QuerySet, Value, When
from django.db.models.functions import Now
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.html import format_html

from memorygw import gateway
from memorygw.admin.base import CHANGED, MAX_LISTED, ListOnlyAdmin
from memorygw.claims import GIVEN_UP, MAX_ATTEMPTS, LateWork
from memorygw.models import VoiceSession
from memorygw.sweep import LEARNERS
from threads.models import TitleState
from usermemory.models import EmbeddingState, ExtractionState
from workingmemory.models import WorkingMemoryState

RETRY = "memorygw.retry_learning"
_LAGS = Q(due_at__isnull=False)
_RUNNING = Q(claim_expires_at__gt=Now())
_FILTERS = {"failed": _LAGS & ~Q(last_error=""), "running": _LAGS & _RUNNING, "given_up": GIVEN_UP, "all": Q()}
_STATE = Case(
    When(_RUNNING, then=Value("running")),
    When(due_at__lte=Now(), then=Value("due")),
    When(_LAGS, then=Value("waits for its time")),
    When(GIVEN_UP, then=Value(f"given up after {MAX_ATTEMPTS} attempts")),
    default=Value("nothing to do"),
)


class StateFilter(admin.SimpleListFilter):
    """What there is to do, unless something else is asked for. Each but the last reads the index of what is due."""

    title = "state"
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [("failed", "Failed, tried again"), ("running", "Running"), ("given_up", "Given up"), ("all", "All")]

    def choices(self, changelist: Any) -> Iterator[Any]:
        usual, *others = super().choices(changelist)
        yield from ({**usual, "display": "Lags"}, *others)

    def queryset(self, request: HttpRequest, queryset: "QuerySet[Any]") -> "QuerySet[Any]":
        return queryset.filter(_FILTERS.get(self.value() or "", _LAGS))


class LateWorkAdmin(ListOnlyAdmin):
    """The states of one learner. ``subject`` are the columns that say whose they are; no other is loaded."""

    subject: tuple[str, ...]
    loaded: tuple[str, ...]

    change_list_template = "memorygw/admin/learning.html"
    list_filter = (StateFilter,)
    actions = ("retry",)

    def has_retry_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm(RETRY)

    def get_list_display(self, request: HttpRequest) -> list[Any]:
        return [*self.subject, "state", "due", "tries", "last_error"]

    def get_ordering(self, request: HttpRequest) -> tuple[str, ...]:
        # Of all rows there is no index by time.
        return ("-pk",) if request.GET.get(StateFilter.parameter_name) == "all" else ("due_at", "pk")

    def get_queryset(self, request: HttpRequest) -> "QuerySet[Any]":
        columns = (*self.loaded, "due_at", "attempts", "last_error")
        rows: QuerySet[Any] = super().get_queryset(request).annotate(state=_STATE)
        return rows.only(*columns)

    def changelist_view(self, request: HttpRequest, extra_context: Mapping[str, Any] | None = None) -> HttpResponse:
        return super().changelist_view(request, {**(extra_context or {}), "summary": self.summary})

    def summary(self) -> str:
        numbers = self.model.objects.backlog()
        text = "{pending} due, {running} running, {waiting} waiting for their time.".format(**numbers)
        if numbers["pending"]:
            text += f" The oldest has been due for {timedelta(seconds=int(numbers['oldest_seconds']))}."
        is_on = any(learner.enabled() for learner in LEARNERS if learner.states is self.model)
        return text if is_on else f"{text} This is switched off: nothing is worked on."

    @admin.display
    def state(self, row: Any) -> str:
        return str(row.state)

    @admin.display(description="due since or at")
    def due(self, row: LateWork) -> Any:
        return row.due_at

    @admin.display(description="attempts")
    def tries(self, row: LateWork) -> str:
        return f"{row.attempts} of {MAX_ATTEMPTS}"

    @admin.action(description="Retry now", permissions=["retry"])
    def retry(self, request: HttpRequest, queryset: "QuerySet[Any]") -> None:
        ids = list(queryset.values_list("pk", flat=True)[:MAX_LISTED])
        retried = gateway.retry_learning(self.model.kind, ids)
        self._log(request, None, CHANGED, f"Retried {retried}.")
        if retried:
            self.message_user(request, f"{retried} due now.", messages.SUCCESS)
        if left := len(ids) - retried:
            self.message_user(request, f"{left} not: being worked on, or done.", messages.WARNING)


class OfThreadAdmin(LateWorkAdmin):
    subject: tuple[str, ...] = ("of_thread", "tenant", "user_id")
    loaded: tuple[str, ...] = ("thread__user_id", "thread__tenant__name")
    list_select_related = ("thread__tenant",)

    @admin.display(description="thread")
    def of_thread(self, row: Any) -> str:
        link = reverse("admin:memorygw_threads_thread_change", args=[row.pk], current_app=self.admin_site.name)
        return format_html('<a href="{}">{}</a>', link, row.pk)

    @admin.display
    def tenant(self, row: Any) -> Any:
        return row.thread.tenant

    @admin.display
    def user_id(self, row: Any) -> str:
        return str(row.thread.user_id)


@admin.register(ExtractionState, WorkingMemoryState)
class TurnsAdmin(OfThreadAdmin):
    subject = (*OfThreadAdmin.subject, "behind")
    loaded = (*OfThreadAdmin.loaded, "covered", "answered")

    @admin.display(description="turns behind")
    def behind(self, row: LateWork) -> int:
        return max(row.answered - row.covered, 0)


admin.site.register(TitleState, OfThreadAdmin)


@admin.register(EmbeddingState)
class EmbeddingStateAdmin(LateWorkAdmin):
    subject = loaded = ("tenant", "scope", "owner_id", "user_id")
    list_select_related = ("tenant",)


@admin.register(VoiceSession)
class VoiceSessionAdmin(LateWorkAdmin):
    """One that is still open has nothing to do. One that is done with goes a day after it was closed."""

    subject = loaded = ("id", "tenant", "user_id", "closed_at")
    list_select_related = ("tenant",)
