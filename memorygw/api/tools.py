"""The memory tools, for callers that run their own model."""

from typing import Any

from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from memorygw import gateway
from memorygw.api.auth import acting_user, names_user
from memorygw.api.views import GatewayViewSet, Shape, describe, valid


class ToolListShape(Shape):
    items = serializers.ListField(child=serializers.DictField(), help_text="OpenAI's function schemas.")


class ToolCall(serializers.Serializer[Any]):
    arguments = serializers.DictField(required=False, default=dict)
    thread_id = serializers.CharField(required=False, help_text="The conversation in which the model called it.")


class ToolResultShape(Shape):
    content = serializers.CharField(help_text="What to hand back to the model; a refusal too.")


class ToolViewSet(GatewayViewSet):
    @describe("list_tools", responses=ToolListShape, parameters=[OpenApiParameter("persona", str)], for_user=False)
    def list(self, request: Request) -> Response:
        if names_user(request):
            acting_user(request)
        return Response({"items": gateway.list_tools(self.tenant_id, persona=request.query_params.get("persona", ""))})

    @describe("call_tool", request=ToolCall, responses=ToolResultShape)
    def call(self, request: Request, name: str) -> Response:
        """Asking is the approval."""
        return Response({"content": gateway.call_tool(*self.caller, name, **valid(ToolCall, request.data))})
