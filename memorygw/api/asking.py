"""Asking, and what became of it."""

from typing import Any

from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from memorygw import gateway
from memorygw.api.fields import QuestionField, ToolsField
from memorygw.api.idempotency import PARAMETER, once
from memorygw.api.threads import TurnShape, WarningShape
from memorygw.api.views import GatewayViewSet, Shape, describe, valid


class PendingCallShape(Shape):
    tool_call_id = serializers.CharField()
    name = serializers.CharField()
    arguments = serializers.CharField(help_text="JSON, as the model wrote it.")
    kind = serializers.ChoiceField(["approval", "client"])


class RunShape(Shape):
    id = serializers.UUIDField()
    thread_id = serializers.UUIDField()
    status = serializers.ChoiceField(["running", "awaiting_human", "completed", "failed", "cancelled"])
    pending = PendingCallShape(many=True)
    memories = serializers.ListField(child=serializers.UUIDField(), help_text="Ids of the facts in its prompt.")
    usage = serializers.DictField(child=serializers.IntegerField())
    error = serializers.CharField(allow_null=True)

    def to_representation(self, instance: Any) -> dict[str, Any]:
        return {
            "id": instance.id,
            "thread_id": instance.thread_id,
            "status": instance.status,
            "pending": instance.pending if instance.status == "awaiting_human" else [],
            "memories": instance.memories,
            "usage": {"prompt_tokens": instance.prompt_tokens, "completion_tokens": instance.completion_tokens},
            "error": instance.error or None,
        }


class AnswerShape(Shape):
    thread_id = serializers.UUIDField()
    run = RunShape()
    answer = TurnShape(allow_null=True)
    turns = TurnShape(many=True)
    usage = serializers.DictField(child=serializers.IntegerField())
    warnings = WarningShape(many=True)


class Question(serializers.Serializer[Any]):
    content = QuestionField(help_text="Text or a list of parts.")
    persona = serializers.CharField(required=False, max_length=100, help_text="An id or a name, for this call.")
    model = serializers.CharField(required=False, max_length=200)
    metadata = serializers.DictField(required=False)
    stream = serializers.BooleanField(required=False)
    tools = ToolsField(required=False, help_text="The caller's own, as OpenAI's function schemas.")

    def validate_stream(self, value: bool) -> bool:
        if value:
            raise ValidationError("Streaming is not available yet.")
        return value


class Verdict(serializers.Serializer[Any]):
    tool_call_id = serializers.CharField(max_length=200, trim_whitespace=False)
    approved = serializers.BooleanField(required=False, allow_null=True)
    reason = serializers.CharField(required=False, allow_blank=True, help_text="Told to the model.")
    content = serializers.CharField(
        required=False, allow_null=True, allow_blank=True, trim_whitespace=False, help_text="A tool's result."
    )


class Continuation(serializers.Serializer[Any]):
    decisions = serializers.ListField(child=Verdict(), min_length=1)


class AskViewSet(GatewayViewSet):
    @describe("ask", request=Question, responses=AnswerShape, parameters=[PARAMETER])
    def ask(self, request: Request, thread_id: str) -> Response:
        return self._ask(thread_id)

    @describe("ask_anew", request=Question, responses=AnswerShape, parameters=[PARAMETER])
    def ask_anew(self, request: Request) -> Response:
        """In a new thread."""
        return self._ask(None)

    @describe("get_run", responses=RunShape)
    def run(self, request: Request, run_id: str) -> Response:
        return Response(RunShape(gateway.get_run(*self.caller, run_id)).data)

    @describe("continue_run", request=Continuation, responses=AnswerShape, parameters=[PARAMETER])
    def continue_run(self, request: Request, run_id: str) -> Response:
        """One decision for each call that the run waits for."""
        verdicts = valid(Continuation, request.data)["decisions"]
        decisions = [gateway.Decision(**verdict) for verdict in verdicts]
        answer = once(
            request,
            self.caller,
            lambda turn_id: gateway.continue_run(*self.caller, run_id, decisions, first_turn_id=turn_id),
            lambda turn_id: gateway.answer_again(*self.caller, run_id, first_turn_id=turn_id),
        )
        return Response(AnswerShape(answer).data)

    @describe("cancel_run", request=None, responses=RunShape)
    def cancel_run(self, request: Request, run_id: str) -> Response:
        return Response(RunShape(gateway.cancel_run(*self.caller, run_id)).data)

    def _ask(self, thread_id: str | None) -> Response:
        question = valid(Question, self.request.data)
        question.pop("stream", None)
        content = question.pop("content")
        answer = once(
            self.request,
            self.caller,
            lambda run_id: gateway.ask(*self.caller, content, thread_id=thread_id, run_id=run_id, **question),
            lambda run_id: gateway.answer_again(*self.caller, run_id),
        )
        return Response(AnswerShape(answer).data)
