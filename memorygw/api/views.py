"""What every view of ours shares. A host's REST_FRAMEWORK and ATOMIC_REQUESTS are not relied on."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar
from uuid import UUID

import regex
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.utils import OpenApiParameter, extend_schema, extend_schema_serializer, inline_serializer
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
from memorygw.api.throttling import KeyThrottle, UserThrottle

F = TypeVar("F", bound=Callable[..., Any])

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
    throttle_classes = [KeyThrottle, UserThrottle]
    names_user_in_body = False
    versioning_class = None
    metadata_class = None
    schema = AutoSchema()

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        check_query(request.META)
        super().initial(request, *args, **kwargs)

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


ACTING_USER = OpenApiParameter(
    "user", str, description="The acting user of a key; the header `X-Memorygw-User` names it as well."
)
ERROR = inline_serializer(
    "Error",
    {
        "error": inline_serializer(
            "ErrorDetail",
            {
                "code": serializers.CharField(),
                "message": serializers.CharField(),
                "number": serializers.IntegerField(required=False),
                "user_message": serializers.CharField(required=False, help_text="Words that a person may be shown."),
                "fields": serializers.DictField(
                    child=serializers.ListField(child=serializers.CharField()), required=False
                ),
                "thread_id": serializers.UUIDField(required=False),
                "thread_ids": serializers.ListField(child=serializers.UUIDField(), required=False),
                "run_id": serializers.UUIDField(required=False),
            },
        )
    },
)


def describe(
    operation_id: str, *, responses: Any = None, parameters: Sequence[Any] = (), for_user: bool = True, **schema: Any
) -> Callable[[F], F]:
    """`extend_schema` on our own schema class; left alone it builds on the one in a host's REST_FRAMEWORK.

    ``for_user``: the operation acts for a user, whom a key has to name.
    """
    answers = responses if isinstance(responses, dict) else {200: responses}
    given = {
        "responses": {**answers, "default": ERROR},
        "parameters": [*parameters, *([ACTING_USER] if for_user else [])],
        **schema,
    }

    def decorate(action: F) -> F:
        action.schema = AutoSchema  # type: ignore[attr-defined]
        return extend_schema(operation_id=operation_id, **given)(action)

    return decorate


# The shape of an answer: fields for the schema, plain attributes for speed (a history is a long list). No docstring: it
# would be published with each of them. many=False: an action named "list" does not answer with an array.
@extend_schema_serializer(many=False)
class Shape(serializers.Serializer[Any]):
    def to_representation(self, instance: Any) -> dict[str, Any]:
        return {name: _plain(field, getattr(instance, field.source)) for name, field in self.shape.items()}

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
        OpenApiParameter("limit", {"type": "integer", "minimum": 1, "maximum": 200, "default": 20}),
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


def flag_of(request: Request, name: str) -> bool:
    """``?name=true`` or ``false``; false when it is left out."""
    text = request.query_params.get(name, "false")
    if text not in ("true", "false"):
        raise ValidationError({name: ["true or false."]})
    return text == "true"


def ids_among(texts: Iterable[str]) -> list[UUID]:
    """The ids among the texts; what is no id names nothing, and is ignored like an unknown one."""
    ids = []
    for text in texts:
        try:
            ids.append(UUID(text))
        except ValueError:
            continue
    return ids
