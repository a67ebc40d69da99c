"""The paths of OpenAI's API, for any client of it: change the base URL, and the conversation has memory."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from django.http import HttpResponseBase
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from memorygw import gateway
from memorygw.api.auth import acting_user
from memorygw.api.completions import Chunks, completion
from memorygw.api.errors import envelope, handle
from memorygw.api.events import event_stream, events_of, line
from memorygw.api.fields import MessagesField, ToolsField, UserIdField
from memorygw.api.idempotency import PARAMETER, once
from memorygw.api.views import GatewayViewSet, describe, valid
from memorygw.exceptions import ModelFailedError
from memorygw.gateway import Answer, Event, Events

THREAD_HEADER, RUN_HEADER, MEMORY_HEADER = "X-Memorygw-Thread", "X-Memorygw-Run", "X-Memorygw-Memory"

ANSWERS = {(200, "application/json"): OpenApiTypes.OBJECT, (200, "text/event-stream"): OpenApiTypes.STR}
HEADERS = [
    OpenApiParameter(THREAD_HEADER, str, OpenApiParameter.HEADER, description="The thread, as an answer names it."),
    OpenApiParameter(
        MEMORY_HEADER, str, OpenApiParameter.HEADER, enum=["on", "off"], description="off: memory is not touched."
    ),
]
_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    429: "rate_limit_error",
}
# What this path sees to itself; everything else of a body goes to the model as it is.
_OURS = ("messages", "model", "tools", "stream", "stream_options", "user", "metadata", "n")
_OUR_METADATA = ("thread_id", "fork")


class ChatRequest(serializers.Serializer[Any]):
    messages = MessagesField()
    model = serializers.CharField(required=False, max_length=200)
    tools = ToolsField(required=False, allow_null=True)
    stream = serializers.BooleanField(required=False, allow_null=True)
    stream_options = serializers.DictField(required=False, allow_null=True)
    user = UserIdField(required=False, allow_null=True, help_text="The acting user.")
    metadata = serializers.DictField(
        required=False, allow_null=True, help_text="thread_id and fork are ours; the rest is passed on."
    )
    n = serializers.IntegerField(required=False, allow_null=True, min_value=1, max_value=1)

    def validate_messages(self, messages: Any) -> Any:
        if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
            raise ValidationError("A list of messages.")
        return messages


def in_openais_words(exception: Exception, context: Mapping[str, Any]) -> Response | None:
    """The envelope with what clients of OpenAI look for: ``type`` and ``param``."""
    response = handle(exception, context)
    if response is None:
        return None
    if isinstance(exception, ModelFailedError):
        _as_upstream(response, exception)
    error = response.data["error"]
    fields = error.get("fields") or {}
    usual = "server_error" if response.status_code >= 500 else _TYPES[400]
    error.setdefault("type", _TYPES.get(response.status_code, usual))
    error.setdefault("param", next(iter(fields), None))
    if fields:
        error["message"] = f"{error['message']} {next(iter(fields))}: {' '.join(next(iter(fields.values())))}"
    return response


def _as_upstream(response: Response, failure: ModelFailedError) -> None:
    """The status and the words of the upstream, unless it is our key that it does not like."""
    upstream = failure.upstream
    if upstream is None or upstream.status in (401, 403):
        return
    response.status_code = upstream.status
    response.data["error"] |= upstream.error
    if upstream.retry_after:
        response["Retry-After"] = upstream.retry_after


class ChatViewSet(GatewayViewSet):
    names_user_in_body = True

    @describe("create_chat_completion", request=ChatRequest, responses=ANSWERS, parameters=[*HEADERS, PARAMETER])
    def create(self, request: Request) -> HttpResponseBase:
        """OpenAI's chat completion, with memory put in and the conversation stored."""
        body = valid(ChatRequest, request.data)
        caller, chat = (self.tenant_id, acting_user(request, body.get("user"))), self._chat(request, body)
        answer = once(
            request,
            caller,
            lambda run_id: gateway.chat(*caller, replace(chat, run_id=run_id)),
            lambda run_id: gateway.chat_again(*caller, run_id, chat),
        )
        if body.get("stream"):
            options = body.get("stream_options") or {}
            return _streamed(answer, Chunks(usage_wanted=bool(options.get("include_usage"))))
        if not isinstance(answer, Answer):
            [*_, done] = answer
            answer = done.value
        return _with_place(Response(completion(answer)), answer.run, answer.thread_id)

    @describe("list_models", responses={200: OpenApiTypes.OBJECT}, for_user=False)
    def models(self, request: Request) -> Response:
        return Response({"object": "list", "data": gateway.list_models()})

    def get_exception_handler(self) -> Callable[..., Response | None]:
        return in_openais_words

    def _chat(self, request: Request, body: dict[str, Any]) -> gateway.Chat:
        sent: dict[str, Any] = dict(request.data)
        metadata = sent.get("metadata") or {}
        theirs = {name: value for name, value in metadata.items() if name not in _OUR_METADATA}
        parameters = {name: value for name, value in sent.items() if name not in _OURS}
        return gateway.Chat(
            messages=body["messages"],
            model=body.get("model", ""),
            tools=body.get("tools") or (),
            parameters={**parameters, **({"metadata": theirs} if theirs else {})},
            thread_id=request.headers.get(THREAD_HEADER) or metadata.get("thread_id"),
            fork=metadata.get("fork") is True,
            remembers=_remembers(request),
            streams=bool(body.get("stream")),
        )


def _remembers(request: Request) -> bool:
    choice = request.headers.get(MEMORY_HEADER, "on")
    if choice not in ("on", "off"):
        raise ValidationError({MEMORY_HEADER: ["on or off."]})
    return choice == "on"


def _streamed(answer: Events | Answer, chunks: Chunks) -> HttpResponseBase:
    def render(event: Event) -> Iterator[bytes]:
        return (line(chunk) for chunk in chunks.of(event))

    def failed(error: Exception) -> Iterator[bytes]:
        response = in_openais_words(error, {})
        yield line(response.data if response else envelope("internal", "Something went wrong.", type="server_error"))

    events = events_of(answer) if isinstance(answer, Answer) else answer
    spoken = ("chunk", "silence", "done")
    response, run = event_stream(events, render, failed, begins_with=spoken, end=b"data: [DONE]\n\n")
    return _with_place(response, run, answer.thread_id if isinstance(answer, Answer) else run.thread_id)


def _with_place(response: HttpResponseBase, run: Any, thread_id: Any) -> HttpResponseBase:
    """The headers that say where the conversation is kept."""
    response[THREAD_HEADER] = str(thread_id)
    if run is not None:
        response[RUN_HEADER] = str(run.id)
    return response
