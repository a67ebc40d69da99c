"""The API one would write without memorygw, on the same tables: model serializers and model view sets, the usual way.

It knows one tenant, no leases, no tool calls and no text of several parts; what it answers has the same turns and
threads as ours, so that the two can be compared.
"""

from functools import cache
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import QuerySet
from django.shortcuts import get_object_or_404
from django.utils import timezone
from rest_framework.authentication import TokenAuthentication
from rest_framework.decorators import action
from rest_framework.pagination import CursorPagination
from rest_framework.permissions import IsAuthenticated
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.routers import SimpleRouter
from rest_framework.serializers import BaseSerializer, IntegerField, ModelSerializer, Serializer
from rest_framework.viewsets import ModelViewSet

from memorygw.conf import conf
from memorygw.models import Tenant
from memorygw.tokens import count_tokens
from threads.models import Thread, Turn
from usermemory.models import Fact
from workingmemory.models import WorkingMemoryState

# More turns than any budget of a run holds.
_MOST_TURNS = 100


class ThreadSerializer(ModelSerializer[Thread]):
    class Meta:
        model = Thread
        fields = ["id", "user_id", "title", "status", "turn_count", "persona", "created_at", "updated_at"]
        read_only_fields = ["user_id", "status", "turn_count", "updated_at"]


class TurnSerializer(ModelSerializer[Turn]):
    class Meta:
        model = Turn
        fields = [
            "id",
            "seq",
            "role",
            "content",
            "tool_calls",
            "tool_call_id",
            "refusal",
            "model",
            "status",
            "token_count",
            "metadata",
            "created_at",
        ]
        read_only_fields = ["seq", "status", "token_count", "created_at"]


class MessageSerializer(ModelSerializer[Turn]):
    class Meta:
        model = Turn
        fields = ["seq", "role", "content"]


class FactSerializer(ModelSerializer[Fact]):
    class Meta:
        model = Fact
        fields = ["id", "key", "value"]


class ContextQuerySerializer(Serializer[Any]):
    budget_tokens = IntegerField(min_value=0)


class ThreadPagination(CursorPagination):
    """Pages without a count: the cheapest that REST framework has."""

    page_size = 50
    ordering = ("-created_at", "-id")


@cache
def tenant_id() -> UUID:
    return Tenant.objects.get(name=Tenant.DEFAULT).pk


def threads_of(request: Request) -> "QuerySet[Thread]":
    return Thread.objects.filter(tenant_id=tenant_id(), user_id=request.user.get_username(), deleted_at=None)


class ThreadViewSet(ModelViewSet[Thread]):
    authentication_classes = [TokenAuthentication]
    permission_classes = [IsAuthenticated]
    serializer_class = ThreadSerializer
    pagination_class = ThreadPagination

    def get_queryset(self) -> "QuerySet[Thread]":
        return threads_of(self.request)

    def perform_create(self, serializer: BaseSerializer[Thread]) -> None:
        serializer.save(tenant_id=tenant_id(), user_id=self.request.user.get_username())

    @action(detail=True)
    def context(self, request: Request, pk: str) -> Response:
        """Facts, notes, and the newest turns that fit the budget, from a user's on."""
        query = ContextQuerySerializer(data=request.query_params)
        query.is_valid(raise_exception=True)
        thread = self.get_object()
        facts = Fact.objects.filter(
            tenant_id=thread.tenant_id, scope="user", owner_id=thread.user_id, status="active"
        ).order_by("created_at", "id")
        notes = WorkingMemoryState.objects.filter(thread=thread).first()
        return Response(
            {
                "messages": MessageSerializer(newest(thread, query.validated_data["budget_tokens"]), many=True).data,
                "facts": FactSerializer(facts, many=True).data,
                "notes": notes.summary if notes else "",
            }
        )


def newest(thread: Thread, budget_tokens: int) -> list[Turn]:
    chosen: list[Turn] = []
    for turn in thread.turns.order_by("-seq")[:_MOST_TURNS]:
        budget_tokens -= turn.token_count
        if budget_tokens < 0:
            break
        chosen.insert(0, turn)
    while chosen and chosen[0].role != "user":
        chosen.pop(0)
    return chosen


class TurnViewSet(ModelViewSet[Turn]):
    authentication_classes = [TokenAuthentication]
    permission_classes = [IsAuthenticated]
    serializer_class = TurnSerializer

    def get_queryset(self) -> "QuerySet[Turn]":
        thread = get_object_or_404(threads_of(self.request), pk=self.kwargs["thread_pk"])
        return thread.turns.order_by("seq")

    @transaction.atomic
    def perform_create(self, serializer: BaseSerializer[Turn]) -> None:
        thread = get_object_or_404(threads_of(self.request).select_for_update(), pk=self.kwargs["thread_pk"])
        tokens = count_tokens(serializer.validated_data["content"], conf.MODEL)
        thread.turn_count += 1
        thread.token_count += tokens
        thread.updated_at = timezone.now()
        thread.save(update_fields=["turn_count", "token_count", "updated_at"])
        serializer.save(thread=thread, seq=thread.turn_count, token_count=tokens, tokens_through=thread.token_count)


router = SimpleRouter()
router.register("threads", ThreadViewSet, basename="thread")
router.register(r"threads/(?P<thread_pk>[0-9a-f-]{36})/turns", TurnViewSet, basename="turn")
