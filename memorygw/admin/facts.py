"""What is known: read, corrected and taken away by hand, and decided on where it waits for that."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any
from uuid import UUID

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import path, reverse

from memorygw import gateway
from memorygw.admin import reviewing
from memorygw.admin.base import CHANGED, MAX_LISTED, GatewayAdmin, GatewayForm, Text, may_read
from memorygw.admin.fact_filters import ConfidenceFilter, PersonaFilter
from memorygw.exceptions import MemoryKeyTakenError, MemoryNotFoundError
from memorygw.ids import uuid_or_none
from memorygw.models import Tenant
from memorygw.retention import kept_of_all
from memorygw.text import cut
from usermemory.models import Fact

CHARS_LISTED = 80


def is_editable(fact: Fact) -> bool:
    """A user's own; a persona's where there is a function for it: active, and with a key. A proposed deletion is
    decided on, not changed."""
    if fact.operation == Fact.Operation.DELETE:
        return False
    return fact.scope == Fact.Scope.USER or (fact.scope == Fact.Scope.PERSONA and _is_set(fact))


def is_deletable(fact: Fact) -> bool:
    return fact.scope == Fact.Scope.USER or (fact.scope == Fact.Scope.PERSONA and _is_set(fact))


def _is_set(fact: Fact) -> bool:
    return fact.status == Fact.Status.ACTIVE and fact.kind == Fact.Kind.KEYED


class FactForm(GatewayForm):
    refused_at = "value"

    class Meta:
        model = Fact
        fields = ("key", "value")
        field_classes = {"key": Text, "value": Text}

    def write(self) -> Any:
        fact = self.instance
        if not self.changes:
            return fact
        if fact.scope == Fact.Scope.PERSONA:
            return gateway.set_persona_fact(fact.tenant_id, fact.owner_id, fact.key, self.cleaned_data["value"])
        try:
            return gateway.change_memory(fact.tenant_id, fact.owner_id, fact.pk, **self.changes)
        except MemoryKeyTakenError as error:
            error.fields = {"key": [str(error)]}
            raise


def _ids_found(term: str) -> list[UUID]:
    """Facts of the owner or the user with this id, or the one whose id it is; as many as a list has."""
    # Each of them has an index, and with its tenants it can be used; a condition for both has none.
    tenants = Fact.objects.filter(tenant__in=Tenant.objects.values("pk")).order_by("-pk").values_list("pk", flat=True)
    of_owner = tenants.filter(scope__in=["user", "persona"], owner_id=term)[:MAX_LISTED]
    with_persona = tenants.filter(scope="persona_user", user_id=term)[:MAX_LISTED]
    own = uuid_or_none(term)
    return [*of_owner, *with_persona, *([own] if own else [])]


@admin.register(Fact)
class FactAdmin(GatewayAdmin):
    content = ("key", "value", "shown_key", "shown_value")
    is_logged = True

    form = FactForm
    list_display = ("shown_key", "shown_value", "about", "status", "operation", "origin", "confidence", "updated_at")
    list_filter = ("status", "scope", "origin", "kind", ConfidenceFilter, PersonaFilter, "tenant")
    change_list_template = "memorygw/admin/fact_list.html"
    list_select_related = ("tenant",)
    search_fields = ("owner_id",)
    search_help_text = "A user's id or a fact's, whole. The list ends after 1,000."
    fields = (
        "id",
        "tenant",
        "scope",
        "owner_id",
        "user_id",
        "kind",
        "key",
        "value",
        "status",
        "operation",
        "rejected",
        "origin",
        "confidence",
        "source_thread",
        "source_seq",
        "created_at",
        "updated_at",
    )
    actions = ("approve", "reject")

    # --- who may what

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        may = request.user.has_perm("memorygw_usermemory.change_fact") and may_read(request)
        return may and (obj is None or is_editable(obj))

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return request.user.has_perm("memorygw_usermemory.delete_fact") and (obj is None or is_deletable(obj))

    def has_review_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("memorygw_usermemory.review_fact") and may_read(request)

    # --- what is shown

    def get_queryset(self, request: HttpRequest) -> "QuerySet[Any]":
        within = kept_of_all("facts")
        rows = super().get_queryset(request)
        # A persona's are nobody's, and have no time.
        rows = rows.filter(Q(scope=Fact.Scope.PERSONA) | within) if within else rows
        return rows.defer("embedding", "searchable")

    def get_search_results(
        self, request: HttpRequest, queryset: "QuerySet[Any]", search_term: str
    ) -> tuple["QuerySet[Any]", bool]:
        if not search_term:
            return queryset, False
        return queryset.filter(pk__in=_ids_found(search_term)), False

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        has_fixed_key = obj and (obj.scope == Fact.Scope.PERSONA or obj.kind == Fact.Kind.TEXT)
        editable = ("value",) if has_fixed_key else ("key", "value")
        return [name for name in self.fields if name not in editable]

    @admin.display(description="about")
    def about(self, fact: Fact) -> str:
        """Whom it is about, within which tenant."""
        names = [fact.scope, fact.owner_id, fact.user_id, f"of {fact.tenant}"]
        return " ".join(name for name in names if name)

    @admin.display(description="key")
    def shown_key(self, fact: Fact) -> str:
        return cut(fact.key, CHARS_LISTED) or "(a text)"

    @admin.display(description="value")
    def shown_value(self, fact: Fact) -> str:
        return cut(fact.value, CHARS_LISTED)

    # --- what is done

    def response_post_save_change(self, request: HttpRequest, obj: Any) -> HttpResponseRedirect:
        """Back to the person's page, when it was changed there."""
        person = uuid_or_none(request.POST.get("_person", ""))
        if person is None:
            return super().response_post_save_change(request, obj)
        url = reverse("admin:memorygw_usermemory_usermemory_change", args=[person], current_app=self.admin_site.name)
        return HttpResponseRedirect(f"{url}#fact-{obj.pk}")

    def delete_model(self, request: HttpRequest, obj: Any) -> None:
        with suppress(MemoryNotFoundError):
            if obj.scope == Fact.Scope.PERSONA:
                gateway.remove_persona_fact(obj.tenant_id, obj.owner_id, obj.key)
            else:
                gateway.delete_memory(obj.tenant_id, obj.owner_id, obj.pk)

    @admin.action(description="Approve…", permissions=["review"])
    def approve(self, request: HttpRequest, queryset: Any) -> HttpResponse:
        return reviewing.page(self, request, queryset, preset=reviewing.APPROVE)

    @admin.action(description="Reject…", permissions=["review"])
    def reject(self, request: HttpRequest, queryset: Any) -> HttpResponse:
        return reviewing.page(self, request, queryset, preset=reviewing.REJECT)

    def review(self, request: HttpRequest) -> HttpResponse:
        """What waits, of all tenants; posted, the decisions on what was shown (S46)."""
        if not self.has_review_permission(request):
            raise PermissionDenied
        if request.method != "POST":
            self._log(request, None, CHANGED, "Opened what waits.")
            return reviewing.page(self, request, self.get_queryset(request))
        decided, missed = reviewing.decide(request)
        for fact, decision in decided:
            self.log_change(request, fact, "Approved." if decision == reviewing.APPROVE else "Rejected.")
        if decided:
            self.message_user(request, f"{len(decided)} decided.", messages.SUCCESS)
        if missed:
            text = f"{missed} not: changed, decided or gone since the page was opened. Please look again."
            self.message_user(request, text, messages.WARNING)
        return HttpResponseRedirect(request.path)

    def get_urls(self) -> list[Any]:
        review = self.admin_site.admin_view(self.review)
        return [path("review/", review, name="memorygw_usermemory_fact_review"), *super().get_urls()]

    def changelist_view(self, request: HttpRequest, extra_context: Mapping[str, Any] | None = None) -> HttpResponse:
        may_review = self.has_review_permission(request)
        return super().changelist_view(request, {**(extra_context or {}), "may_review": may_review})
