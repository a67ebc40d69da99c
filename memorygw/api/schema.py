"""The OpenAPI schema and its page; every asset comes from an installed package, none from elsewhere."""

import threading
from functools import cache
from typing import Any

from django.db import transaction
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.settings import SPECTACULAR_DEFAULTS, patched_settings

_OURS = {
    "TITLE": "memorygw",
    "DESCRIPTION": "A memory gateway for LLM applications.",
    "VERSION": "1",
    "COMPONENT_SPLIT_REQUEST": True,
    "ENUM_NAME_OVERRIDES": {
        "MemoryStatusEnum": "memorygw.gateway.STATUSES",
        "RoleEnum": "threads.turns.ROLES",
        "SpeakerEnum": "memorygw.gateway.VOICE_ROLES",
    },
}
# A host's own SPECTACULAR_SETTINGS are about its own API; these three cannot be set this way.
_NOT_SETTABLE = ("SERVE_", "DEFAULT_GENERATOR_CLASS")
_lock = threading.Lock()


class BearerScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    target_class = "memorygw.api.auth.BearerAuthentication"
    name = "bearer"

    def get_security_definition(self, auto_schema: Any) -> dict[str, Any]:
        return {"type": "http", "scheme": "bearer", "description": "An API key (mgw_…) or a user token (mgwu_…)"}


class SessionScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    target_class = "memorygw.api.auth.SessionAuthentication"
    name = "session"

    def get_security_definition(self, auto_schema: Any) -> dict[str, Any]:
        return {"type": "apiKey", "in": "cookie", "name": "sessionid"}


@require_safe
@transaction.non_atomic_requests
def schema(request: HttpRequest) -> JsonResponse:
    # A host mounts us under a prefix, which the paths of our own URLconf do not have.
    prefix = request.path.removesuffix("/api/v1/schema")
    with _lock:
        document = _document()
    return JsonResponse({**document, "servers": [{"url": prefix or "/"}]})


@require_safe
@transaction.non_atomic_requests
def docs(request: HttpRequest) -> HttpResponse:
    return render(request, "memorygw/pages/docs.html")


@cache
def _document() -> dict[str, Any]:
    """Made once per process: the generator is configured by patching global settings, which must not happen twice."""
    defaults = {name: value for name, value in SPECTACULAR_DEFAULTS.items() if not name.startswith(_NOT_SETTABLE)}
    with patched_settings({**defaults, **_OURS}):
        generator = SchemaGenerator(urlconf="memorygw.api.urls")  # type: ignore[no-untyped-call]
        document: dict[str, Any] = generator.get_schema(request=None, public=True)  # type: ignore[no-untyped-call]
    return document
