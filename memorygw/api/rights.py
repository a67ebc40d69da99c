"""A person's rights, exercised by an admin key."""

from typing import Any

from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from memorygw import gateway
from memorygw.api.auth import IsAdminKey, acting_user
from memorygw.api.views import GatewayViewSet, Shape, describe, valid


class ReceiptShape(Shape):
    id = serializers.UUIDField()
    mode = serializers.ChoiceField(["delete"])
    status = serializers.ChoiceField(["done"])
    counts = serializers.DictField(child=serializers.IntegerField())
    verified = serializers.BooleanField()


class Forgetting(serializers.Serializer[Any]):
    mode = serializers.ChoiceField(
        ["delete", "anonymize"],
        error_messages={"invalid_choice": "One of delete, anonymize."},
        help_text="Anonymising is not available yet.",
    )
    dry_run = serializers.BooleanField(required=False)
    force = serializers.BooleanField(required=False)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        # Ignoring these would erase what the caller wanted to look at, or wait where they wanted no waiting.
        asked = [name for name in ("dry_run", "force") if attrs.get(name)]
        if attrs["mode"] == "anonymize":
            asked.append("mode")
        if asked:
            raise ValidationError({name: ["Not available yet."] for name in asked})
        return attrs


class RightsViewSet(GatewayViewSet):
    permission_classes = [IsAdminKey]

    @describe("forget_user", request=Forgetting, responses=ReceiptShape, for_user=False)
    def forget(self, request: Request, user_id: str) -> Response:
        return self._forget(user_id)

    @describe(
        "forget_user_by_query",
        request=Forgetting,
        responses=ReceiptShape,
        parameters=[OpenApiParameter("user", str, required=True)],
        for_user=False,
    )
    def forget_by_query(self, request: Request) -> Response:
        return self._forget(acting_user(request))

    def _forget(self, user_id: str) -> Response:
        valid(Forgetting, self.request.data)
        return Response(ReceiptShape(gateway.forget_user(self.tenant_id, user_id)).data)
