"""Memories with their status, and the queue of what waits for a review."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from memorygw import gateway
from memorygw.api.auth import IsReviewer, is_platform_admin
from memorygw.api.views import GatewayViewSet, Shape, describe, ids_among, limit_of, valid


class MemoryObjectShape(Shape):
    id = serializers.UUIDField()
    scope = serializers.ChoiceField(["user", "persona", "persona_user"])
    owner_id = serializers.CharField(help_text="The user's id, or the persona's.")
    user_id = serializers.CharField(allow_null=True, help_text="Only in scope persona_user.")
    key = serializers.CharField(source="shown_key", help_text="Of a free text: one to name it by, read only.")
    value = serializers.CharField()
    source_channel_id = serializers.UUIDField(
        source="source_thread_id", allow_null=True, help_text="The thread it comes from."
    )
    confidence = serializers.FloatField()
    status = serializers.ChoiceField(gateway.STATUSES)
    operation = serializers.ChoiceField(["set", "delete"], help_text="What approving it does.")
    created_at = serializers.DateTimeField()
    updated_at = serializers.DateTimeField()

    def to_representation(self, instance: Any) -> dict[str, Any]:
        return {**super().to_representation(instance), "user_id": instance.user_id or None}


class MemoryListShape(Shape):
    data = MemoryObjectShape(many=True)  # type: ignore[assignment]


class FoundShape(MemoryObjectShape):
    why = serializers.ListField(child=serializers.ChoiceField(["keyword", "semantic"]))


class FoundListShape(Shape):
    data = FoundShape(many=True)  # type: ignore[assignment]


class MemoryCountShape(Shape):
    active = serializers.IntegerField()
    pending = serializers.IntegerField()


class SourceShape(Shape):
    thread_id = serializers.UUIDField()
    seq = serializers.IntegerField()
    role = serializers.CharField()
    content = serializers.JSONField()
    created_at = serializers.DateTimeField()


class SourcesShape(Shape):
    data = SourceShape(many=True, help_text="The turns that were quoted for it.")  # type: ignore[assignment]
    thread_id = serializers.UUIDField(allow_null=True)
    current_value = serializers.CharField(allow_null=True, help_text="What a waiting memory would change or delete.")


class MemoryChange(serializers.Serializer[Any]):
    # Blank and too long are the store's to refuse: their errors have numbers.
    key = serializers.CharField(required=False, allow_blank=True, trim_whitespace=False)
    value = serializers.CharField(required=False, allow_blank=True, trim_whitespace=False)
    confidence = serializers.FloatField(required=False, min_value=0, max_value=1)


class Review(serializers.Serializer[Any]):
    content_hash = serializers.CharField(
        required=False, max_length=64, help_text="SHA-256 of operation, key and value, joined by line feeds."
    )


class Batch(serializers.Serializer[Any]):
    ids = serializers.ListField(child=serializers.CharField(), min_length=1, max_length=gateway.MAX_REVIEWED)


class ApprovedShape(Shape):
    approved = serializers.IntegerField()


class RejectedShape(Shape):
    rejected = serializers.IntegerField()


_FILTERS = [
    OpenApiParameter("status", str, enum=list(gateway.STATUSES), description="active when left out."),
    OpenApiParameter("query", str, description="Words that are all in key or value."),
]


_LIMIT = OpenApiParameter("limit", int, description="1 to 1000 of the oldest; all when left out.")
_SEARCH = [
    OpenApiParameter("query", str, required=True, description="Words or a question; no character is special."),
    OpenApiParameter("limit", int, description="1 to 50, 10 when left out."),
]


class MemoryViewSet(GatewayViewSet):
    @describe("list_memories", responses=MemoryListShape, parameters=_FILTERS)
    def list(self, request: Request) -> Response:
        memories = gateway.list_memories(
            *self.caller,
            status=request.query_params.get("status", "active"),
            query=request.query_params.get("query", ""),
        )
        return Response({"data": MemoryObjectShape(memories, many=True).data})

    @describe("search_memories", responses=FoundListShape, parameters=_SEARCH)
    def search(self, request: Request) -> Response:
        query, limit = request.query_params.get("query", ""), limit_of(request, default=10, most=50)
        hits = gateway.search_memories(*self.caller, query, limit=limit)
        return Response({"data": [{**MemoryObjectShape(hit.fact).data, "why": list(hit.why)} for hit in hits]})

    @describe("count_memories", responses=MemoryCountShape)
    def count(self, request: Request) -> Response:
        return Response(gateway.count_memories(*self.caller))

    @describe("change_memory", request=MemoryChange, responses=MemoryObjectShape)
    def update(self, request: Request, memory_id: str) -> Response:
        change = valid(MemoryChange, request.data)
        return Response(MemoryObjectShape(gateway.change_memory(*self.caller, memory_id, **change)).data)

    @describe("delete_memory", responses={204: None})
    def destroy(self, request: Request, memory_id: str) -> Response:
        gateway.delete_memory(*self.caller, memory_id)
        return Response(status=204)

    @describe("approve_memory", request=Review, responses=MemoryObjectShape)
    def approve(self, request: Request, memory_id: str) -> Response:
        verdict = valid(Review, request.data)
        return Response(MemoryObjectShape(gateway.approve_memory(*self.caller, memory_id, **verdict)).data)

    @describe("reject_memory", request=Review, responses=MemoryObjectShape)
    def reject(self, request: Request, memory_id: str) -> Response:
        verdict = valid(Review, request.data)
        return Response(MemoryObjectShape(gateway.reject_memory(*self.caller, memory_id, **verdict)).data)

    @describe("get_memory_sources", responses=SourcesShape)
    def sources(self, request: Request, memory_id: str) -> Response:
        found = gateway.get_memory_sources(*self.caller, memory_id)
        turns = SourceShape(found.pop("sources"), many=True).data
        return Response({"data": turns, **found})


class ReviewViewSet(GatewayViewSet):
    """The queue of a tenant, for its admin key; of all tenants, for a superuser's session."""

    permission_classes: Sequence[Any] = [IsReviewer]

    @describe("list_pending_memories", responses=MemoryListShape, parameters=[_LIMIT], for_user=False)
    def pending(self, request: Request) -> Response:
        limit = limit_of(request, default=0, most=1_000) or None
        waiting = gateway.list_pending_memories(self.reviewed, limit=limit)
        return Response({"data": MemoryObjectShape(waiting, many=True).data})

    @describe("approve_memories", request=Batch, responses=ApprovedShape, for_user=False)
    def approve(self, request: Request) -> Response:
        return Response({"approved": gateway.approve_memories(self.reviewed, self._ids())})

    @describe("reject_memories", request=Batch, responses=RejectedShape, for_user=False)
    def reject(self, request: Request) -> Response:
        return Response({"rejected": gateway.reject_memories(self.reviewed, self._ids())})

    @property
    def reviewed(self) -> UUID | None:
        return None if is_platform_admin(self.request) else self.tenant_id

    def _ids(self) -> list[UUID]:
        return ids_among(valid(Batch, self.request.data)["ids"])
