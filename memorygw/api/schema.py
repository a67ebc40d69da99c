"""The OpenAPI schema and its page; every asset comes from an installed package, none from elsewhere."""

from typing import Any, cast

from django.templatetags.static import static
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.renderers import OpenApiJsonRenderer
from drf_spectacular.views import SpectacularAPIView, SpectacularSwaggerView
from rest_framework.permissions import AllowAny
from rest_framework.request import Request
from rest_framework.response import Response

_SETTINGS = {
    "TITLE": "memorygw",
    "DESCRIPTION": "A memory gateway for LLM applications.",
    "VERSION": "1",
    "COMPONENT_SPLIT_REQUEST": True,
}


class KeyScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    target_class = "memorygw.api.auth.KeyAuthentication"
    name = "key"

    def get_security_definition(self, auto_schema: Any) -> dict[str, Any]:
        return {"type": "http", "scheme": "bearer", "description": "An API key: mgw_…"}


class SessionScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    target_class = "memorygw.api.auth.SessionAuthentication"
    name = "session"

    def get_security_definition(self, auto_schema: Any) -> dict[str, Any]:
        return {"type": "apiKey", "in": "cookie", "name": "sessionid"}


class SchemaView(SpectacularAPIView):
    schema = None
    authentication_classes: list[Any] = []
    permission_classes = [AllowAny]
    renderer_classes = [OpenApiJsonRenderer]
    urlconf = "memorygw.api.urls"
    custom_settings = _SETTINGS

    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        response = cast("Response", super().get(request, *args, **kwargs))  # type: ignore[no-untyped-call]
        # A host mounts us under a prefix, which the paths of our own URLconf do not have.
        prefix = request.path.removesuffix("/api/v1/schema")
        response.data["servers"] = [{"url": prefix or "/"}]
        return response


class DocsView(SpectacularSwaggerView):
    schema = None
    authentication_classes: list[Any] = []
    permission_classes = [AllowAny]
    url_name = "memorygw:schema"
    title = "memorygw"

    @staticmethod
    def _swagger_ui_resource(filename: str) -> str:
        return static(f"drf_spectacular_sidecar/swagger-ui-dist/{filename}")

    @staticmethod
    def _swagger_ui_favicon() -> str:
        return static("drf_spectacular_sidecar/swagger-ui-dist/favicon-32x32.png")
