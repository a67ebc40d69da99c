"""A person's rights: exercised by an admin key; whether memory is on, by the person too."""

from itertools import chain
from typing import Any

from django.http import StreamingHttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, PolymorphicProxySerializer
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from memorygw import gateway
from memorygw.api.auth import IsAdminKey, Principal, acting_user
from memorygw.api.views import GatewayViewSet, Shape, cursors, describe, page_of, valid

USER = OpenApiParameter("user", str, required=True)


class ReceiptShape(Shape):
    id = serializers.UUIDField()
    mode = serializers.ChoiceField(gateway.ERASURE_MODES)
    status = serializers.ChoiceField(["running", "done", "restored"])
    requested_by = serializers.CharField()
    created_at = serializers.DateTimeField()
    finished_at = serializers.DateTimeField(allow_null=True)
    counts = serializers.DictField(child=serializers.IntegerField(), help_text="Table → rows that went.")
    phases = serializers.DictField(child=serializers.DateTimeField())
    verified = serializers.BooleanField(allow_null=True, help_text="Nothing was found afterwards.")
    level = serializers.CharField(help_text="How it was looked for.")
    found = serializers.DictField(child=serializers.IntegerField(), help_text="Table → rows found afterwards.")
    residuals = serializers.ListField(child=serializers.DictField(), help_text="What has it still, until when.")
    version = serializers.CharField()
    replays = serializers.UUIDField(allow_null=True)
    number = serializers.IntegerField(allow_null=True)
    seal = serializers.CharField()


class DryRunShape(serializers.Serializer[Any]):
    mode = serializers.ChoiceField(gateway.ERASURE_MODES)
    status = serializers.ChoiceField(["dry_run"])
    counts = serializers.DictField(child=serializers.IntegerField(), help_text="Table → rows that would go.")


FORGOTTEN = PolymorphicProxySerializer(
    component_name="Forgotten", serializers=[ReceiptShape, DryRunShape], resource_type_field_name=None
)


class ReceiptPageShape(Shape):
    items = ReceiptShape(many=True)
    has_more = serializers.BooleanField()


class Forgetting(serializers.Serializer[Any]):
    mode = serializers.ChoiceField(
        gateway.ERASURE_MODES,
        error_messages={"invalid_choice": f"One of {', '.join(gateway.ERASURE_MODES)}."},
        help_text="anonymize: ids, turn counts and dates of threads stay under a random pseudonym.",
    )
    dry_run = serializers.BooleanField(required=False, help_text="Only say what would go.")
    force = serializers.BooleanField(required=False, help_text="Calls that run on the person's threads lose them.")


class MemorySwitch(serializers.Serializer[Any]):
    enabled = serializers.BooleanField()


EXPORT = OpenApiResponse(OpenApiTypes.OBJECT, "The document that memorygw/schemas/export.schema.json describes.")


class RightsViewSet(GatewayViewSet):
    permission_classes = [IsAdminKey]

    @describe("forget_user", request=Forgetting, responses={200: FORGOTTEN}, for_user=False)
    def forget(self, request: Request, user_id: str) -> Response:
        return self._forget(user_id)

    @describe("forget_user_by_query", request=Forgetting, responses={200: FORGOTTEN}, parameters=[USER], for_user=False)
    def forget_by_query(self, request: Request) -> Response:
        return self._forget(acting_user(request))

    @describe("list_erasures", responses=ReceiptPageShape, parameters=cursors("receipt"), for_user=False)
    def list(self, request: Request) -> Response:
        return Response(ReceiptPageShape(gateway.list_receipts(self.tenant_id, **page_of(request))).data)

    @describe("get_erasure", responses=ReceiptShape, for_user=False)
    def retrieve(self, request: Request, receipt_id: str) -> Response:
        return Response(ReceiptShape(gateway.get_receipt(self.tenant_id, receipt_id)).data)

    @describe("set_user_memory", request=MemorySwitch, responses=MemorySwitch, for_user=False)
    def switch(self, request: Request, user_id: str) -> Response:
        enabled = valid(MemorySwitch, request.data)["enabled"]
        gateway.set_user_memory(self.tenant_id, user_id, enabled=enabled)
        return Response({"enabled": enabled})

    def _forget(self, user_id: str) -> Response:
        wanted = valid(Forgetting, self.request.data)
        if wanted.get("dry_run"):
            counts = gateway.count_user_data(self.tenant_id, user_id)
            return Response({"mode": wanted["mode"], "status": "dry_run", "counts": counts})
        principal = self.request.auth
        assert isinstance(principal, Principal)  # noqa: S101  IsAdminKey has seen to it
        receipt = gateway.forget_user(
            self.tenant_id,
            user_id,
            mode=wanted["mode"],
            force=wanted.get("force", False),
            requested_by=f"key {principal.key_id}",
        )
        return Response(ReceiptShape(receipt).data)

    @describe("export_user", responses=EXPORT, for_user=False)
    def export(self, request: Request, user_id: str) -> StreamingHttpResponse:
        return self._export(user_id)

    @describe(
        "export_user_by_query",
        responses=EXPORT,
        parameters=[OpenApiParameter("user", str, required=True)],
        for_user=False,
    )
    def export_by_query(self, request: Request) -> StreamingHttpResponse:
        return self._export(acting_user(request))

    def _export(self, user_id: str) -> StreamingHttpResponse:
        chunks = gateway.export_user(self.tenant_id, user_id)
        # What goes wrong before the first chunk still has a status of its own.
        first = next(chunks)
        response = StreamingHttpResponse(chain([first], chunks), content_type="application/json")
        response["Content-Disposition"] = 'attachment; filename="export.json"'
        response["Cache-Control"] = "no-store"
        return response


class OwnMemoryViewSet(GatewayViewSet):
    """Whether memory is on for the acting user."""

    @describe("get_own_memory", responses=MemorySwitch)
    def retrieve(self, request: Request) -> Response:
        return Response({"enabled": gateway.user_memory_enabled(*self.caller)})

    @describe("set_own_memory", request=MemorySwitch, responses=MemorySwitch)
    def update(self, request: Request) -> Response:
        enabled = valid(MemorySwitch, request.data)["enabled"]
        gateway.set_user_memory(*self.caller, enabled=enabled)
        return Response({"enabled": enabled})
