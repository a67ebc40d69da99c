"""Every error in one envelope: ``{"error": {"code", "message", "number"?, "user_message"?, "fields"?, …}}``."""

import logging
from collections.abc import Mapping
from typing import Any

from django.core.exceptions import PermissionDenied, RequestDataTooBig
from django.db import InterfaceError, OperationalError, transaction
from django.http import Http404, HttpRequest, JsonResponse
from django.views.decorators.csrf import csrf_exempt
from rest_framework import exceptions
from rest_framework.response import Response

from memorygw.exceptions import MemorygwError
from memorygw.logs import REQUEST_ID

logger = logging.getLogger(__name__)

# What a client may have meant by a wrong path is not ours to say; the words of the framework stay out.
_OWN_WORDS: dict[type[Exception], tuple[str, str]] = {
    exceptions.NotAuthenticated: ("unauthorized", "A credential is required."),
    exceptions.AuthenticationFailed: ("unauthorized", "The credential is not valid."),
    exceptions.PermissionDenied: ("forbidden", "The credential may not do this."),
    exceptions.NotFound: ("not_found", "Not found."),
    exceptions.MethodNotAllowed: ("method_not_allowed", "The method is not allowed here."),
    exceptions.Throttled: ("throttled", "Too many requests."),
    exceptions.UnsupportedMediaType: ("unsupported_media_type", "Send JSON, as application/json."),
}


class BodyTooLargeError(exceptions.APIException):
    status_code = 413
    default_code = "body_too_large"
    default_detail = "The body is larger than 10 MB."


def envelope(code: str, message: str, **more: Any) -> dict[str, Any]:
    return {"error": {"code": code, "message": message, **{name: value for name, value in more.items() if value}}}


def handle(exception: Exception, context: Mapping[str, Any]) -> Response | None:
    """DRF's exception handler; None lets an unforeseen error go on to be reported, as a 500."""
    if isinstance(exception, MemorygwError):
        return _own(exception)
    if isinstance(exception, Http404):
        exception = exceptions.NotFound()
    elif isinstance(exception, PermissionDenied):
        exception = exceptions.PermissionDenied()
    elif isinstance(exception, RequestDataTooBig):
        exception = BodyTooLargeError()
    if isinstance(exception, exceptions.APIException):
        return _framework(exception)
    if isinstance(exception, OperationalError | InterfaceError):
        logger.error("The database did not answer: %s", type(exception).__name__)
        body = envelope("unavailable", "The service is not available at the moment.")
        return Response(body, status=503, headers={"Retry-After": "1"})
    return None


def _own(error: MemorygwError) -> Response:
    more = {"number": error.number, "user_message": error.user_message, "fields": error.fields, **error.details}
    headers = {"Retry-After": retry_after} if (retry_after := getattr(error, "retry_after", "")) else {}
    return Response(envelope(error.code, str(error), **more), status=error.status, headers=headers)


def _framework(error: exceptions.APIException) -> Response:
    challenge = getattr(error, "auth_header", None)
    headers = {"WWW-Authenticate": str(challenge)} if challenge else {}
    if isinstance(error, exceptions.Throttled):
        headers["Retry-After"] = str(max(getattr(error, "wait", None) or 0, 1))
    if isinstance(error, exceptions.ValidationError):
        return Response(envelope("invalid", "The request is not valid.", fields=_fields(error.detail)), status=400)
    code, message = _OWN_WORDS.get(type(error), (error.default_code, str(error.detail)))
    return Response(envelope(code, message), status=error.status_code, headers=headers)


def _fields(detail: Any, path: str = "") -> dict[str, list[str]]:
    """DRF's nested details as dotted paths with lists of messages."""
    if isinstance(detail, dict):
        parts = [_fields(inner, _below(path, name)) for name, inner in detail.items()]
    elif isinstance(detail, list) and any(isinstance(inner, dict) for inner in detail):
        parts = [_fields(inner, f"{path}[{index}]") for index, inner in enumerate(detail) if inner]
    else:
        messages = detail if isinstance(detail, list) else [detail]
        return {path or "body": [str(message) for message in messages]}
    return {name: messages for part in parts for name, messages in part.items()}


@csrf_exempt
@transaction.non_atomic_requests
def unknown_path(request: HttpRequest, unknown: str) -> JsonResponse:
    """Below our base path the envelope is ours, whatever a host does with a 404."""
    return JsonResponse(envelope("not_found", "Not found."), status=404)


def _below(path: str, name: str | int) -> str:
    if isinstance(name, int):
        return f"{path}[{name}]"
    return f"{path}.{name}" if path else name


def not_found(request: HttpRequest, exception: Exception) -> JsonResponse:
    """The standalone project's 404, for paths that are nobody's."""
    return JsonResponse(envelope("not_found", "Not found."), status=404)


def server_error(request: HttpRequest) -> JsonResponse:
    headers = {"X-Request-ID": request_id} if (request_id := request.META.get(REQUEST_ID)) else {}
    return JsonResponse(envelope("internal", "Something went wrong."), status=500, headers=headers)
