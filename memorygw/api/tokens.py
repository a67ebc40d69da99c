"""User tokens, for clients that act as one person."""

from typing import Any

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from memorygw import gateway
from memorygw.api.auth import IsKey
from memorygw.api.fields import UserIdField
from memorygw.api.views import GatewayViewSet, Shape, describe, valid


class TokenRequest(serializers.Serializer[Any]):
    user_id = UserIdField(help_text="Text, or an integer, which becomes its decimal text.")
    expires_in_seconds = serializers.IntegerField(
        required=False, min_value=1, max_value=gateway.MAX_TOKEN_SECONDS, help_text="900 when left out."
    )


class TokenShape(Shape):
    token = serializers.CharField()
    expires_at = serializers.DateTimeField()


class TokenViewSet(GatewayViewSet):
    permission_classes = [IsKey]

    @describe("create_user_token", request=TokenRequest, responses={201: TokenShape}, for_user=False)
    def create(self, request: Request) -> Response:
        """The token is shown once."""
        token = gateway.create_user_token(self.tenant_id, **valid(TokenRequest, request.data))
        return Response(TokenShape(token).data, 201)
