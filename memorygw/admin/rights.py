"""Forgetting, anonymising and exporting people: a page that says what there is of them, and from there the deed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.db import transaction
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, StreamingHttpResponse
from django.urls import reverse
from django.utils.html import format_html, format_html_join

from memorygw import gateway
from memorygw.admin.base import CHANGED, GatewayAdmin, PageAdmin
from memorygw.exceptions import ErasureRunningError, LedgerError, ThreadBusyError
from memorygw.models import ErasureReceipt
from memorygw.receipts import residuals
from usermemory.models import UserMemory

MOST = 20
NOBODY = "*"
REFUSALS = (ThreadBusyError, ErasureRunningError, LedgerError)


@dataclass(frozen=True)
class Deed:
    """What the page asks for. ``phrase``: what has to be typed; ``options``: boxes to tick, by name."""

    title: str
    says: str
    button: str
    phrase: str = ""
    options: Mapping[str, str] = field(default_factory=dict)


def is_confirmed(request: HttpRequest, deed: Deed) -> bool:
    return request.POST.get("confirmation") == deed.phrase


def ask(admin: GatewayAdmin, request: HttpRequest, deed: Deed, subjects: Sequence[tuple[str, Any]]) -> HttpResponse:
    """The page, for what was chosen in the list. ``subjects``: each with what there is of it, by table."""
    return admin.render(
        request,
        "confirm.html",
        deed.title,
        deed=deed,
        subjects=subjects,
        residuals=residuals(),
        action=request.POST.get("action"),
        checkbox=ACTION_CHECKBOX_NAME,
        chosen=request.POST.getlist(ACTION_CHECKBOX_NAME),
        is_mistyped="confirmation" in request.POST,
    )


def _forgetting(people: Sequence[tuple[UUID, str]]) -> Deed:
    return Deed(
        "Forget for good?",
        "Their conversations, what was learned about them and everything else below is deleted and cannot be restored.",
        "Forget",
        _phrase("forget", people),
        {"force": "Also where a call is running right now: it loses its conversation."},
    )


def _anonymizing(people: Sequence[tuple[UUID, str]]) -> Deed:
    return Deed(
        "Anonymise for good?",
        "Of each conversation the id, the number of turns and the dates stay, under a random name. All words go, and "
        "everything that was learned. It cannot be restored.",
        "Anonymise",
        _phrase("anonymise", people),
        {"force": "Also where a call is running right now: it loses its conversation."},
    )


def _phrase(verb: str, people: Sequence[tuple[UUID, str]]) -> str:
    # An id may have blanks at its ends or in it that nobody can type; those that can be typed are the better check.
    only = people[0][1] if len(people) == 1 else ""
    return only if only.isprintable() and only and only == only.strip() else f"{verb} {len(people)}"


_EXPORTING = Deed(
    "Export what is kept?",
    "Everything below, with where it comes from, as one JSON file. That it was exported is written down, not what.",
    "Download",
)


class RightsAdmin(PageAdmin):
    """A list of rows that have a tenant and a user, whose people are forgotten, anonymised and exported from there."""

    actions: Sequence[Any] = ("forget_people", "anonymize_people", "export_person")

    def has_forget_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("memorygw_usermemory.forget_user")

    def has_anonymize_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("memorygw_usermemory.anonymize_user")

    def has_export_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("memorygw_usermemory.export_user")

    # An erasure commits as it goes: a host's transaction around it would undo the fence.
    @transaction.non_atomic_requests
    def changelist_view(self, request: HttpRequest, extra_context: Mapping[str, Any] | None = None) -> HttpResponse:
        return super().changelist_view(request, extra_context)

    @admin.action(description="Forget the people of the chosen rows…", permissions=["forget"])
    def forget_people(self, request: HttpRequest, queryset: Any) -> HttpResponse | None:
        people = self._people(request, queryset)
        return self._erase(request, people, _forgetting(people), mode="delete") if people else None

    @admin.action(description="Anonymise the people of the chosen rows…", permissions=["anonymize"])
    def anonymize_people(self, request: HttpRequest, queryset: Any) -> HttpResponse | None:
        people = self._people(request, queryset)
        return self._erase(request, people, _anonymizing(people), mode="anonymize") if people else None

    @admin.action(description="Export the person of the chosen rows…", permissions=["export"])
    def export_person(self, request: HttpRequest, queryset: Any) -> Any:
        people = self._people(request, queryset, most=1)
        if not people or not is_confirmed(request, _EXPORTING):
            return ask(self, request, _EXPORTING, _counts(people)) if people else None
        [(tenant_id, user_id)] = people
        record = UserMemory.objects.filter(tenant_id=tenant_id, user_id=user_id).first()
        self._log(request, record, CHANGED, "Exported.")
        headers = {"Content-Disposition": 'attachment; filename="memory.json"', "Cache-Control": "no-store"}
        document = gateway.export_user(tenant_id, user_id)
        return StreamingHttpResponse(document, content_type="application/json", headers=headers)

    def _people(self, request: HttpRequest, queryset: Any, *, most: int = MOST) -> list[tuple[UUID, str]]:
        """Whom the rows are about; nobody, and a word about it, when they are too many."""
        named = queryset.exclude(user_id=NOBODY).order_by("tenant_id", "user_id")
        people = list(named.values_list("tenant_id", "user_id").distinct()[: most + 1])
        if 0 < len(people) <= most:
            return people
        text = f"At most {most} at a time." if people else "These rows are about nobody."
        self.message_user(request, text, messages.WARNING)
        return []

    def _erase(
        self, request: HttpRequest, people: Sequence[tuple[UUID, str]], deed: Deed, *, mode: str
    ) -> HttpResponse | None:
        if not is_confirmed(request, deed):
            return ask(self, request, deed, _counts(people))
        receipts = []
        for tenant_id, user_id in people:
            by, force = f"operator {request.user.pk}", "force" in request.POST
            try:
                receipt = gateway.forget_user(tenant_id, user_id, mode=mode, requested_by=by, force=force)
            except REFUSALS as error:
                self.message_user(request, f"Somebody was not erased: {error}", messages.ERROR)
                continue
            self._log(request, receipt, CHANGED, "Asked for.")
            receipts.append(receipt)
        return self._show(request, receipts)

    def _show(self, request: HttpRequest, receipts: Sequence[ErasureReceipt]) -> HttpResponse | None:
        """The receipt, or where to find several."""
        links = [self._receipt_url(receipt) for receipt in receipts]
        if receipts:
            named = format_html_join(", ", '<a href="{}">{}</a>', zip(links, (r.pk for r in receipts), strict=True))
            self.message_user(request, format_html("Erased; the receipt: {}", named), messages.SUCCESS)
        return HttpResponseRedirect(links[0]) if len(links) == 1 else None

    def _receipt_url(self, receipt: ErasureReceipt) -> str:
        return reverse("admin:memorygw_erasurereceipt_change", args=[receipt.pk], current_app=self.admin_site.name)


def _counts(people: Sequence[tuple[UUID, str]]) -> list[tuple[str, dict[str, int]]]:
    counts = [(user_id, gateway.count_user_data(tenant_id, user_id)) for tenant_id, user_id in people]
    return [(user_id, {table: rows for table, rows in tables.items() if rows}) for user_id, tables in counts]
