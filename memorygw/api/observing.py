"""Each request has an id, is counted and timed, and leaves a line in the log: by its route, never by its path."""

import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import wraps
from typing import Any
from uuid import uuid4

import regex
from django.http import HttpRequest, HttpResponseBase, StreamingHttpResponse
from django.template.response import SimpleTemplateResponse

from memorygw.logs import REQUEST_ID, in_request
from memorygw.metrics import REQUEST_SECONDS, REQUESTS

logger = logging.getLogger(__name__)

_GIVEN_ID = regex.compile(r"[A-Za-z0-9._-]{8,128}")
_METHODS = frozenset(["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"])


def observed(view: Callable[..., HttpResponseBase]) -> Callable[..., HttpResponseBase]:
    """The view, whose requests are observed until the answer is ready; a stream until it was sent."""

    @wraps(view)
    def observe(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        exchange = _Exchange(request)
        with in_request(exchange.request_id):
            try:
                response = view(request, *args, **kwargs)
                if isinstance(response, SimpleTemplateResponse):
                    response.render()
            except Exception:
                exchange.end(500)
                raise
        return exchange.answered(response)

    return observe


@dataclass
class _Exchange:
    request: HttpRequest
    request_id: str = field(init=False)
    started: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        given = self.request.META.get("HTTP_X_REQUEST_ID", "")
        self.request_id = given if _GIVEN_ID.fullmatch(given) else uuid4().hex
        self.request.META[REQUEST_ID] = self.request_id

    def answered(self, response: HttpResponseBase) -> HttpResponseBase:
        response["X-Request-ID"] = self.request_id
        if isinstance(response, StreamingHttpResponse):
            response.streaming_content = _Sent(response.streaming_content, lambda: self.end(response.status_code))
        else:
            self.end(response.status_code)
        return response

    def end(self, status: int) -> None:
        match, method = self.request.resolver_match, self.request.method
        # A client may make up a method.
        route, method = match.route if match else "", method if method in _METHODS else "other"
        seconds = time.monotonic() - self.started
        REQUESTS.labels(route, method, status).inc()
        REQUEST_SECONDS.labels(route, method).observe(seconds)
        told = {"route": route, "method": method, "status": status, "ms": round(seconds * 1000)}
        with in_request(self.request_id):
            logger.info("%(method)s %(route)s %(status)d in %(ms)d ms", told, extra=told)


class _Sent:
    """A body that says when the server has done with it, also when the client has gone."""

    def __init__(self, parts: Any, done: Callable[[], None]) -> None:
        self._parts, self.close = parts, done

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._parts)
