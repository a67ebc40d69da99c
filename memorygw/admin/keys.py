"""API keys: made and revoked, never changed; a key is shown once, by the answer that makes it."""

from typing import Any

from django.contrib import admin, messages
from django.http import HttpRequest, HttpResponse

from memorygw import gateway
from memorygw.admin.base import GatewayAdmin, GatewayForm
from memorygw.models import ApiKey


class ApiKeyForm(GatewayForm):
    refused_at = "tenant"

    class Meta:
        model = ApiKey
        fields = ("tenant", "role", "name", "expires_at")
        help_texts = {
            "role": "A service key acts for the users of its tenant. An admin key may also export and forget them.",
            "name": "What it is for.",
            "expires_at": "Empty: never.",
        }

    def write(self) -> Any:
        values = dict(self.cleaned_data)
        made: Any
        made, text = gateway.create_api_key(values.pop("tenant").name, **values)
        made.shown_once = text
        return made


@admin.register(ApiKey)
class ApiKeyAdmin(GatewayAdmin):
    form = ApiKeyForm
    list_display = ("prefix", "name", "tenant", "role", "last_used_at", "expires_at", "revoked_at")
    list_filter = ("role", "tenant")
    list_select_related = ("tenant",)
    fields = (
        "tenant",
        "role",
        "name",
        "prefix",
        "created_at",
        "last_used_at",
        "expires_at",
        "revoked_at",
    )
    autocomplete_fields = ("tenant",)
    actions = ("revoke",)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("memorygw.add_apikey")

    def has_revoke_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("memorygw.revoke_apikey")

    def get_fields(self, request: HttpRequest, obj: Any = None) -> list[Any]:
        return super().get_fields(request, obj) if obj else list(ApiKeyForm.Meta.fields)

    def response_add(self, request: HttpRequest, obj: Any, post_url_continue: str | None = None) -> HttpResponse:
        # Neither the session nor a message: both are stored.
        return self.render(request, "new_key.html", "New API key", key=obj)

    @admin.action(description="Revoke the chosen keys, for good", permissions=["revoke"])
    def revoke(self, request: HttpRequest, queryset: Any) -> None:
        revoked = [key for key in queryset if gateway.revoke_api_key(key.tenant_id, key.pk)]
        for key in revoked:
            self.log_change(request, key, "Revoked.")
        self.message_user(request, f"{len(revoked)} revoked.", messages.SUCCESS)
