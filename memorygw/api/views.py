"""What every view of ours shares. A host's REST_FRAMEWORK and ATOMIC_REQUESTS are not relied on."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar
from uuid import UUID, uuid4

import regex
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.negotiation import DefaultContentNegotiation
from rest_framework.renderers import BaseRenderer, JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.viewsets import ViewSet

from memorygw.api.auth import (
    BearerAuthentication,
    HasCredential,
    Principal,
    SessionAuthentication,
    acting_user,
    check_query,
)
from memorygw.api.errors import handle
from memorygw.api.parsers import StrictJSONParser

F = TypeVar("F", bound=Callable[..., Any])

_REQUEST_ID = regex.compile(r"[A-Za-z0-9._-]{8,128}")
_NUMBER = regex.compile(r"[0-9]{1,9}")


class JSONOnly(DefaultContentNegotiation):
    """Answers are JSON, whatever ``Accept`` and ``?format=`` say."""

    def select_renderer(
        self, request: Request, renderers: Iterable[BaseRenderer], format_suffix: str | None = None
    ) -> tuple[BaseRenderer, str]:
        renderer = next(iter(renderers))
        return renderer, str(renderer.media_type)


class GatewayViewSet(ViewSet):
    authentication_classes = [BearerAuthentication, SessionAuthentication]
    permission_classes: Sequence[Any] = [HasCredential]
    parser_classes = [StrictJSONParser]
    renderer_classes = [JSONRenderer]
    content_negotiation_class = JSONOnly
    throttle_classes: Sequence[Any] = []
    versioning_class = None
    metadata_class = None
    schema = AutoSchema()

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        check_query(request.META)
        super().initial(request, *args, **kwargs)

    def finalize_response(self, request: Request, response: Any, *args: Any, **kwargs: Any) -> Any:
        given = request.META.get("HTTP_X_REQUEST_ID", "")
        response["X-Request-ID"] = given if _REQUEST_ID.fullmatch(given) else uuid4().hex
        return super().finalize_response(request, response, *args, **kwargs)

    def get_exception_handler(self) -> Callable[..., Response | None]:
        return handle

    @property
    def tenant_id(self) -> UUID:
        principal = self.request.auth
        assert isinstance(principal, Principal)  # noqa: S101  HasCredential has seen to it
        return principal.tenant_id

    @property
    def caller(self) -> tuple[UUID, str]:
        """Tenant and acting user: the first two arguments of the gateway's functions."""
        return self.tenant_id, acting_user(self.request)


def describe(operation_id: str, **schema: Any) -> Callable[[F], F]:
    """`extend_schema` on our own schema class; left alone it builds on the one in a host's REST_FRAMEWORK."""

    def decorate(action: F) -> F:
        action.schema = AutoSchema  # type: ignore[attr-defined]
        return extend_schema(operation_id=operation_id, **schema)(action)

    return decorate


class Shape(serializers.Serializer[Any]):
    """The shape of an answer: fields for the schema, plain attributes for speed (a history is a long list)."""

    def to_representation(self, instance: Any) -> dict[str, Any]:
        return {name: _plain(field, getattr(instance, name)) for name, field in self.shape.items()}

    @property
    def shape(self) -> dict[str, Any]:
        shape: dict[str, Any] = self.fields  # type: ignore[assignment]
        return shape


def _plain(field: Any, value: Any) -> Any:
    nested = isinstance(field, serializers.BaseSerializer) and value is not None
    return field.to_representation(value) if nested else value


def valid(serializer_class: type[serializers.Serializer[Any]], data: Any) -> dict[str, Any]:
    """The validated body. Raises ValidationError, which the envelope turns into ``fields``."""
    serializer = serializer_class(data=data)
    serializer.is_valid(raise_exception=True)
    values: dict[str, Any] = serializer.validated_data
    return values


def cursors(item: str) -> list[OpenApiParameter]:
    """The parameters of a list in pages, for the schema."""
    return [
        OpenApiParameter("limit", int, description="1 to 200, 20 when left out."),
        OpenApiParameter("starting_after", UUID, description=f"A {item}: the adjacent newer ones."),
        OpenApiParameter("ending_before", UUID, description=f"A {item}: the next older ones."),
    ]


def page_of(request: Request) -> dict[str, Any]:
    """The page that the query asks for, as the gateway's lists take it."""
    return {
        "limit": limit_of(request, default=20, most=200),
        "starting_after": request.query_params.get("starting_after"),
        "ending_before": request.query_params.get("ending_before"),
    }


def limit_of(request: Request, *, default: int, most: int) -> int:
    """``?limit=`` in plain ASCII digits, from 1 to ``most`` (K13)."""
    text = request.query_params.get("limit")
    if text is None:
        return default
    limit = int(text) if _NUMBER.fullmatch(text) else 0
    if not 1 <= limit <= most:
        raise ValidationError({"limit": [f"A whole number from 1 to {most}."]})
    return limit


def ids_among(texts: Iterable[str]) -> list[UUID]:
    """The ids among the texts; what is no id names nothing, and is ignored like an unknown one."""
    ids = []
    for text in texts:
        try:
            ids.append(UUID(text))
        except ValueError:
            continue
    return ids
