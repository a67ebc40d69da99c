"""Personas, and the two switches of a tenant."""

from typing import Any

from django.contrib import admin
from django.http import HttpRequest

from memorygw import gateway
from memorygw.admin.base import GatewayAdmin, GatewayForm, Text, may_read
from memorygw.models import Persona, Tenant

_OPTIONS = (
    "name",
    "instructions",
    "model",
    "cheap_model",
    "memory_model",
    "working_memory",
    "memory_tools",
    "memory_enabled",
    "memory_injection_enabled",
    "fact_kind",
    "max_facts",
    "recall_tool_name",
    "recall_tool_description",
    "review_policy",
)


class TenantForm(GatewayForm):
    class Meta:
        model = Tenant
        fields = ("memory_extraction_enabled", "review_policy")

    def write(self) -> Any:
        return gateway.update_tenant(self.instance, **self.changes)


@admin.register(Tenant)
class TenantAdmin(GatewayAdmin):
    form = TenantForm
    list_display = ("name", "memory_extraction_enabled", "review_policy", "created_at")
    search_fields = ("name",)
    fields = ("id", "name", "memory_extraction_enabled", "review_policy", "created_at")
    readonly_fields = ("id", "name", "created_at")

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return request.user.has_perm("memorygw.change_tenant")


class PersonaForm(GatewayForm):
    refused_at = "name"

    class Meta:
        model = Persona
        fields = ("tenant", *_OPTIONS)
        field_classes = {"instructions": Text, "recall_tool_description": Text}
        help_texts = {
            "name": "Once in a tenant, and no UUID.",
            "model": "Answers. Empty: the setting's.",
            "cheap_model": "Makes notes and titles. Empty: the setting's.",
            "working_memory": "How a long conversation is kept in the window. Empty: the setting's.",
            "recall_tool_description": "What the model is told about it. Empty: the usual.",
        }

    def write(self) -> Any:
        if self.instance._state.adding:
            values = dict(self.cleaned_data)
            return gateway.create_persona(values.pop("tenant"), values.pop("name"), **values)
        return gateway.update_persona(self.instance.tenant_id, self.instance.pk, **self.changes)


@admin.register(Persona)
class PersonaAdmin(GatewayAdmin):
    """Instructions may name people, so they are content, too; who may not read it changes nothing."""

    content = ("instructions", "recall_tool_description")

    form = PersonaForm
    list_display = ("name", "tenant", "model", "memory_enabled", "review_policy", "updated_at")
    list_filter = ("tenant",)
    list_select_related = ("tenant",)
    search_fields = ("name",)
    fields = ("tenant", *_OPTIONS, "created_at", "updated_at")
    autocomplete_fields = ("tenant",)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("memorygw.add_persona") and may_read(request)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return request.user.has_perm("memorygw.change_persona") and may_read(request)

    def get_fields(self, request: HttpRequest, obj: Any = None) -> list[Any]:
        return super().get_fields(request, obj) if obj else list(PersonaForm.Meta.fields)

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        return ["tenant", "created_at", "updated_at"] if obj else []
