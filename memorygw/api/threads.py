"""Threads, their turns and their memory."""

from typing import Any

from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from memorygw import gateway
from memorygw.api.fields import ContentField, IdsField, ToolCallsField
from memorygw.api.idempotency import PARAMETER, once
from memorygw.api.views import GatewayViewSet, Shape, cursors, describe, flag_of, ids_among, page_of, valid
from memorygw.gateway import MAX_TITLE_CHARS
from threads.turns import ROLES, TurnDraft


class ThreadShape(Shape):
    id = serializers.UUIDField()
    user_id = serializers.CharField()
    title = serializers.CharField(allow_blank=True)
    status = serializers.ChoiceField(["OPEN", "AWAITING_HUMAN", "CLOSED"])
    turn_count = serializers.IntegerField()
    persona = serializers.CharField(allow_null=True, help_text="Its id.")
    created_at = serializers.DateTimeField()
    updated_at = serializers.DateTimeField()

    def to_representation(self, instance: Any) -> dict[str, Any]:
        return {**super().to_representation(instance), "persona": instance.persona_id}


class ThreadPageShape(Shape):
    items = ThreadShape(many=True)
    has_more = serializers.BooleanField()


class TurnShape(Shape):
    id = serializers.UUIDField()
    seq = serializers.IntegerField()
    role = serializers.ChoiceField(ROLES)
    content = ContentField(allow_null=True, help_text="Text or a list of parts.")
    tool_calls = serializers.ListField(child=serializers.DictField(), allow_null=True)
    tool_call_id = serializers.CharField(allow_null=True)
    refusal = serializers.CharField(allow_null=True)
    model = serializers.CharField(allow_blank=True)
    status = serializers.ChoiceField(["complete", "interrupted", "forgotten"])
    token_count = serializers.IntegerField()
    metadata = serializers.DictField()
    created_at = serializers.DateTimeField()


class TurnListShape(Shape):
    items = TurnShape(many=True)


class MemoryShape(Shape):
    summary = serializers.CharField(allow_blank=True)
    facts = serializers.ListField(child=serializers.CharField())
    turn_count = serializers.IntegerField()
    updated_at = serializers.DateTimeField(allow_null=True)


class WarningShape(Shape):
    code = serializers.ChoiceField(["turns_trimmed", "facts_left_out"])
    count = serializers.IntegerField()


class ContextFactShape(Shape):
    id = serializers.UUIDField()
    key = serializers.CharField(source="shown_key")
    value = serializers.CharField()


class ContextShape(Shape):
    system = serializers.CharField(allow_blank=True)
    messages = serializers.ListField(child=serializers.DictField(), help_text="Each with its seq.")
    notes = serializers.CharField(allow_blank=True)
    facts = ContextFactShape(many=True)
    usage = serializers.DictField(child=serializers.IntegerField())
    warnings = WarningShape(many=True)
    over_budget = serializers.BooleanField()

    def to_representation(self, instance: Any) -> dict[str, Any]:
        return {
            "system": instance.system,
            "messages": [
                {**message, "seq": turn.seq} for message, turn in zip(instance.messages, instance.turns, strict=True)
            ],
            "notes": instance.notes,
            "facts": ContextFactShape(instance.facts, many=True).data,
            "usage": {"prompt_tokens": instance.prompt_tokens, "budget_tokens": instance.budget_tokens},
            "warnings": WarningShape(instance.warnings, many=True).data,
            "over_budget": instance.over_budget,
        }


LEARNED = OpenApiParameter("learned", bool, description="What was learned from it alone goes, too.")


class NewThread(serializers.Serializer[Any]):
    title = serializers.CharField(required=False, allow_blank=True, max_length=MAX_TITLE_CHARS)
    persona = serializers.CharField(required=False, max_length=100, help_text="An id or a name.")


class ThreadChange(serializers.Serializer[Any]):
    title = serializers.CharField(required=False, allow_blank=True, max_length=MAX_TITLE_CHARS)


class ThreadDeletion(serializers.Serializer[Any]):
    ids = IdsField(help_text='A list of ids, or "all".')
    learned = serializers.BooleanField(required=False, help_text="What was learned from them alone goes, too.")

    def validate_ids(self, value: Any) -> Any:
        if value != "all" and not (isinstance(value, list) and all(isinstance(item, str) for item in value)):
            raise ValidationError('A list of ids, or "all".')
        return value


class NewTurn(serializers.Serializer[Any]):
    role = serializers.ChoiceField(
        ROLES,
        error_messages={"invalid_choice": "One of user, assistant, tool, system, developer."},
    )
    content = ContentField(required=False, allow_null=True, default=None, help_text="Text or a list of parts.")
    tool_calls = ToolCallsField(required=False, allow_null=True, default=None)
    tool_call_id = serializers.CharField(required=False, allow_null=True, default=None, max_length=200)
    refusal = serializers.CharField(required=False, allow_null=True, default=None, trim_whitespace=False)
    model = serializers.CharField(required=False, allow_blank=True, default="", max_length=200)
    metadata = serializers.DictField(required=False, default=dict)
    created_at = serializers.DateTimeField(required=False, default=None, help_text="The client's clock, with offset.")


class Append(serializers.Serializer[Any]):
    turns = serializers.ListField(child=NewTurn(), min_length=1, max_length=gateway.MAX_APPENDED_TURNS)
    lease_token = serializers.UUIDField(required=False)


class LeaseRequest(serializers.Serializer[Any]):
    seconds = serializers.IntegerField(required=False, min_value=1, max_value=24 * 3600)


class LeaseShape(Shape):
    token = serializers.UUIDField()
    expires_at = serializers.DateTimeField()


class LeaseRelease(serializers.Serializer[Any]):
    token = serializers.UUIDField()


class ThreadCountsShape(Shape):
    threads = serializers.IntegerField()
    turns = serializers.IntegerField()


class ContextRequest(serializers.Serializer[Any]):
    persona = serializers.CharField(required=False, max_length=100)
    model = serializers.CharField(required=False, max_length=200)
    query = serializers.CharField(required=False, allow_blank=True)
    budget_tokens = serializers.IntegerField(required=False, min_value=0, max_value=2**31 - 1)


class ThreadViewSet(GatewayViewSet):
    @describe("list_threads", responses=ThreadPageShape, parameters=cursors("thread"))
    def list(self, request: Request) -> Response:
        return Response(ThreadPageShape(gateway.list_threads(*self.caller, **page_of(request))).data)

    @describe("create_thread", request=NewThread, responses={201: ThreadShape}, parameters=[PARAMETER])
    def create(self, request: Request) -> Response:
        body = valid(NewThread, request.data)
        thread = once(
            request,
            self.caller,
            lambda thread_id: gateway.create_thread(*self.caller, thread_id=thread_id, **body),
            lambda thread_id: gateway.get_thread(*self.caller, thread_id),
        )
        return Response(ThreadShape(thread).data, 201)

    @describe("get_thread", responses=ThreadShape)
    def retrieve(self, request: Request, thread_id: str) -> Response:
        return Response(ThreadShape(gateway.get_thread(*self.caller, thread_id)).data)

    @describe("rename_thread", request=ThreadChange, responses=ThreadShape)
    def partial_update(self, request: Request, thread_id: str) -> Response:
        change = valid(ThreadChange, request.data)
        if "title" in change:
            thread = gateway.rename_thread(*self.caller, thread_id, change["title"])
        else:
            thread = gateway.get_thread(*self.caller, thread_id)
        return Response(ThreadShape(thread).data)

    @describe("delete_thread", responses={204: None}, parameters=[LEARNED])
    def destroy(self, request: Request, thread_id: str) -> Response:
        thread = gateway.get_thread(*self.caller, thread_id)
        gateway.delete_threads(*self.caller, [thread.id], learned=flag_of(request, "learned"))
        return Response(status=204)

    @describe("delete_threads", request=ThreadDeletion, responses=ThreadCountsShape)
    def delete_many(self, request: Request) -> Response:
        body = valid(ThreadDeletion, request.data)
        ids: Any = "all" if body["ids"] == "all" else ids_among(body["ids"])
        counts = gateway.delete_threads(*self.caller, ids, learned=body.get("learned", False))
        return Response(ThreadCountsShape(counts).data)

    @describe("forget_turn", responses={204: None}, parameters=[LEARNED])
    def forget_turn(self, request: Request, thread_id: str, turn_id: str) -> Response:
        gateway.forget_turn(*self.caller, thread_id, turn_id, learned=flag_of(request, "learned"))
        return Response(status=204)

    @describe("get_turns", responses=TurnListShape)
    def turns(self, request: Request, thread_id: str) -> Response:
        return Response({"items": TurnShape(gateway.get_turns(*self.caller, thread_id), many=True).data})

    @describe("append_turns", request=Append, responses={201: TurnListShape}, parameters=[PARAMETER])
    def append_turns(self, request: Request, thread_id: str) -> Response:
        """For callers that run their own model: all of the turns or none."""
        body = valid(Append, request.data)
        drafts = [TurnDraft(**turn) for turn in body["turns"]]
        turns = once(
            request,
            self.caller,
            lambda first_id: gateway.append_turns(
                *self.caller, thread_id, drafts, lease_token=body.get("lease_token"), first_turn_id=first_id
            ),
            lambda first_id: gateway.get_turns_from(*self.caller, thread_id, first_id, count=len(drafts)),
        )
        return Response({"items": TurnShape(turns, many=True).data}, 201)

    @describe("acquire_lease", request=LeaseRequest, responses={201: LeaseShape})
    def acquire_lease(self, request: Request, thread_id: str) -> Response:
        lease = gateway.acquire_lease(*self.caller, thread_id, **valid(LeaseRequest, request.data))
        return Response(LeaseShape(lease).data, 201)

    @describe("release_lease", request=LeaseRelease, responses={204: None})
    def release_lease(self, request: Request, thread_id: str) -> Response:
        """A token that holds nothing frees nothing, and is no error."""
        gateway.release_lease(*self.caller, thread_id, valid(LeaseRelease, request.data)["token"])
        return Response(status=204)

    @describe("get_context", request=ContextRequest, responses=ContextShape)
    def context(self, request: Request, thread_id: str) -> Response:
        options = valid(ContextRequest, request.data)
        return Response(ContextShape(gateway.get_context(*self.caller, thread_id, **options)).data)

    @describe("get_thread_memory", responses=MemoryShape)
    def memory(self, request: Request, thread_id: str) -> Response:
        return Response(MemoryShape(gateway.get_thread_memory(*self.caller, thread_id)).data)

    @describe("reset_thread_memory", responses={204: None})
    def reset_memory(self, request: Request, thread_id: str) -> Response:
        gateway.reset_thread_memory(*self.caller, thread_id)
        return Response(status=204)
