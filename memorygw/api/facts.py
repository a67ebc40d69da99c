"""Facts by key: a person's own edits."""

from typing import Any

from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from memorygw import gateway
from memorygw.api.idempotency import PARAMETER, once
from memorygw.api.views import GatewayViewSet, Shape, describe, valid


class FactShape(Shape):
    key = serializers.CharField(source="shown_key", help_text="Of a free text: one to name it by, read only.")
    value = serializers.CharField()
    updated_at = serializers.DateTimeField()
    source_thread_id = serializers.UUIDField(allow_null=True)
    origin = serializers.ChoiceField(["auto", "manual", "tool"])


class FactListShape(Shape):
    items = FactShape(many=True)


class AddedFactsShape(Shape):
    added = FactShape(many=True)


class FactsTextShape(Shape):
    text = serializers.CharField(allow_blank=True)


class FactValue(serializers.Serializer[Any]):
    # Blank and too long are the store's to refuse: their errors have numbers.
    value = serializers.CharField(allow_blank=True, trim_whitespace=False)


class KeyedFact(FactValue):
    key = serializers.CharField(allow_blank=True, trim_whitespace=False)


class FreeTexts(serializers.Serializer[Any]):
    facts = serializers.ListField(
        child=serializers.CharField(allow_blank=True, trim_whitespace=False),
        max_length=gateway.MAX_ADDED_FACTS,
        help_text="Blank ones, and those that are known already, are skipped.",
    )
    source = serializers.ChoiceField(["manual", "auto"], required=False)  # type: ignore[assignment]


class FactViewSet(GatewayViewSet):
    @describe("get_user_facts", responses=FactListShape)
    def list(self, request: Request) -> Response:
        return Response({"items": FactShape(gateway.get_user_facts(*self.caller), many=True).data})

    @describe("add_user_facts", request=FreeTexts, responses={201: AddedFactsShape}, parameters=[PARAMETER])
    def add(self, request: Request) -> Response:
        """Free texts, for which nobody has to think of a key."""
        body = valid(FreeTexts, request.data)
        added = once(
            request,
            self.caller,
            lambda first_id: gateway.add_user_facts(*self.caller, **body, first_id=first_id),
            lambda first_id: gateway.get_facts_added_with(*self.caller, first_id),
        )
        return Response({"added": FactShape(added, many=True).data}, 201)

    @describe("upsert_user_fact", request=KeyedFact, responses=FactShape)
    def put(self, request: Request) -> Response:
        return self._put(**valid(KeyedFact, request.data))

    @describe("upsert_user_fact_by_key", request=FactValue, responses=FactShape)
    def put_key(self, request: Request, key: str) -> Response:
        return self._put(key=key, **valid(FactValue, request.data))

    @describe("remove_user_fact_by_key", responses={204: None})
    def delete_key(self, request: Request, key: str) -> Response:
        gateway.remove_user_fact(*self.caller, key)
        return Response(status=204)

    @describe(
        "remove_user_facts",
        responses={204: None},
        parameters=[
            OpenApiParameter("key", str),
            OpenApiParameter("all", bool, description="true: forget every fact."),
        ],
    )
    def delete(self, request: Request) -> Response:
        keys = request.query_params.getlist("key")
        if len(keys) == 1 and "all" not in request.query_params:
            gateway.remove_user_fact(*self.caller, keys[0])
        elif not keys and request.query_params.getlist("all") == ["true"]:
            gateway.clear_user_facts(*self.caller)
        else:
            raise ValidationError({"key": ["Give one key, or all=true."]})
        return Response(status=204)

    @describe("get_facts_text", responses=FactsTextShape)
    def context(self, request: Request) -> Response:
        return Response({"text": gateway.get_facts_text(*self.caller)})

    @describe("put_context", exclude=True)
    def put_context(self, request: Request) -> Response:
        """PUT and DELETE mean the key "context" there."""
        return self.put_key(request, "context")

    @describe("delete_context", exclude=True)
    def delete_context(self, request: Request) -> Response:
        return self.delete_key(request, "context")

    def _put(self, key: str, value: str) -> Response:
        if key.strip() in (".", ".."):
            raise ValidationError({"key": ["Clients fold this away in paths; use another key."]})
        return Response(FactShape(gateway.upsert_user_fact(*self.caller, key, value)).data)
