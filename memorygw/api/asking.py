"""Asking, and what became of it."""

from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any
from uuid import UUID

from django.http import HttpResponseBase
from drf_spectacular.types import OpenApiTypes
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from memorygw import gateway
from memorygw.api.errors import envelope, handle
from memorygw.api.events import event_stream, events_of, line
from memorygw.api.fields import QuestionField, ToolsField
from memorygw.api.idempotency import PARAMETER, once
from memorygw.api.threads import TurnShape, WarningShape
from memorygw.api.views import GatewayViewSet, Shape, describe, valid
from memorygw.gateway import Event


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
    stream = serializers.BooleanField(required=False, help_text="Answer with server-sent events.")
    tools = ToolsField(required=False, help_text="The caller's own, as OpenAI's function schemas.")


class Verdict(serializers.Serializer[Any]):
    tool_call_id = serializers.CharField(max_length=200, trim_whitespace=False)
    approved = serializers.BooleanField(required=False, allow_null=True)
    reason = serializers.CharField(required=False, allow_blank=True, help_text="Told to the model.")
    content = serializers.CharField(
        required=False, allow_null=True, allow_blank=True, trim_whitespace=False, help_text="A tool's result."
    )


class Continuation(serializers.Serializer[Any]):
    decisions = serializers.ListField(child=Verdict(), min_length=1)
    stream = serializers.BooleanField(required=False, help_text="Answer with server-sent events.")


ANSWERS = {(200, "application/json"): AnswerShape, (200, "text/event-stream"): OpenApiTypes.STR}


def rendered(event: Event) -> Iterator[bytes]:
    if shape := {"run": RunShape, "turn": TurnShape, "done": AnswerShape}.get(event.kind):
        yield line(shape(event.value).data, event.kind)
    else:
        yield line({"text": event.value} if event.kind == "delta" else asdict(event.value), event.kind)


def failed(error: Exception) -> Iterator[bytes]:
    response = handle(error, {})
    yield line(response.data if response else envelope("internal", "Something went wrong."), "error")


class AskViewSet(GatewayViewSet):
    @describe("ask", request=Question, responses=ANSWERS, parameters=[PARAMETER])
    def ask(self, request: Request, thread_id: str) -> HttpResponseBase:
        return self._ask(thread_id)

    @describe("ask_anew", request=Question, responses=ANSWERS, parameters=[PARAMETER])
    def ask_anew(self, request: Request) -> HttpResponseBase:
        """In a new thread."""
        return self._ask(None)

    @describe("get_run", responses=RunShape)
    def run(self, request: Request, run_id: str) -> Response:
        return Response(RunShape(gateway.get_run(*self.caller, run_id)).data)

    @describe("continue_run", request=Continuation, responses=ANSWERS, parameters=[PARAMETER])
    def continue_run(self, request: Request, run_id: str) -> HttpResponseBase:
        """One decision for each call that the run waits for."""
        body = valid(Continuation, request.data)
        decisions = [gateway.Decision(**verdict) for verdict in body["decisions"]]
        go_on = gateway.stream_continued if body.get("stream") else gateway.continue_run
        return self._answer(
            bool(body.get("stream")),
            lambda turn_id: go_on(*self.caller, run_id, decisions, first_turn_id=turn_id),
            lambda turn_id: gateway.answer_again(*self.caller, run_id, first_turn_id=turn_id),
        )

    @describe("cancel_run", request=None, responses=RunShape)
    def cancel_run(self, request: Request, run_id: str) -> Response:
        return Response(RunShape(gateway.cancel_run(*self.caller, run_id)).data)

    def _ask(self, thread_id: str | None) -> HttpResponseBase:
        question = valid(Question, self.request.data)
        streams, content = question.pop("stream", False), question.pop("content")
        ask = gateway.stream if streams else gateway.ask
        return self._answer(
            streams,
            lambda run_id: ask(*self.caller, content, thread_id=thread_id, run_id=run_id, **question),
            lambda run_id: gateway.answer_again(*self.caller, run_id),
        )

    def _answer(
        self, streams: bool, make: Callable[[UUID], Any], again: Callable[[UUID], gateway.Answer]
    ) -> HttpResponseBase:
        answer = once(self.request, self.caller, make, again)
        if streams:
            events = events_of(answer) if isinstance(answer, gateway.Answer) else answer
            return event_stream(events, rendered, failed)[0]
        return Response(AnswerShape(answer).data)
