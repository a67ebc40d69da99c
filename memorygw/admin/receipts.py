"""Receipts of erasures, to read and to verify."""

from typing import Any
from uuid import UUID

from django.contrib import admin, messages
from django.http import HttpRequest

from memorygw.admin.base import GatewayAdmin
from memorygw.models import ErasureReceipt
from memorygw.receipts import problems

MAX_NAMED = 10


@admin.register(ErasureReceipt)
class ErasureReceiptAdmin(GatewayAdmin):
    list_display = ("id", "tenant_id", "number", "mode", "status", "verified", "created_at", "finished_at")
    list_filter = ("status", "mode", "verified")
    fields = (
        "id",
        "tenant_id",
        "number",
        "mode",
        "status",
        "requested_by",
        "replays",
        "counts",
        "phases",
        "verified",
        "level",
        "found",
        "residuals",
        "created_at",
        "finished_at",
        "version",
        "pepper_version",
        "previous",
        "seal",
    )
    actions = ("verify",)
    change_form_template = "memorygw/admin/receipt.html"

    @admin.action(description="Verify the chains that the chosen receipts are in", permissions=["view"])
    def verify(self, request: HttpRequest, queryset: Any) -> None:
        for tenant_id in sorted(set(queryset.order_by().values_list("tenant_id", flat=True).distinct())):
            self._tell(request, tenant_id)

    def _tell(self, request: HttpRequest, tenant_id: UUID) -> None:
        found = list(problems(tenant_id))
        named = ", ".join(f"{pk} {problem}" for pk, problem in found[:MAX_NAMED])
        if found:
            text = f"The chain of tenant {tenant_id} does not hold, {len(found)} problems: {named}"
            self.message_user(request, text, messages.ERROR)
        else:
            self.message_user(request, f"The chain of tenant {tenant_id} holds.", messages.SUCCESS)
