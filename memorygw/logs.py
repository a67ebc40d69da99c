"""What a line of the log says: which request it belongs to, and nothing personal."""

import logging
import traceback
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from pythonjsonlogger.json import JsonFormatter

REQUEST_ID = "memorygw.request_id"
"""Where ``request.META`` has the id, for what is logged about a request after its view."""

_FIELDS = ("timestamp", "level", "logger", "message", "request_id", "route", "method", "status", "ms", "exc_info")
_request_id: ContextVar[str] = ContextVar(REQUEST_ID, default="")


@contextmanager
def in_request(request_id: str) -> Iterator[None]:
    """What is logged inside bears the id."""
    token = _request_id.set(request_id)
    try:
        yield
    finally:
        _request_id.reset(token)


def carried(parts: Generator[bytes, None, None]) -> Generator[bytes, None, None]:
    """The parts of a stream, each made as a part of the present request: its view has returned by then."""
    return _carried(parts, _request_id.get())


def _carried(parts: Generator[bytes, None, None], request_id: str) -> Generator[bytes, None, None]:
    try:
        while True:
            with in_request(request_id):
                part = next(parts, None)
            if part is None:
                return
            yield part
    finally:
        with in_request(request_id):
            parts.close()


class Lines(logging.Formatter):
    """Lines with ``request_id``. Of an exception they have the type and the frames: its message may quote anything."""

    def format(self, record: logging.LogRecord) -> str:
        meta = getattr(getattr(record, "request", None), "META", {})
        record.request_id = _request_id.get() or meta.get(REQUEST_ID) or "-"
        # Celery puts the message of a task's exception into its own.
        if record.exc_info and record.exc_info[0] and isinstance(record.args, dict) and "exc" in record.args:
            record.args = {**record.args, "exc": record.exc_info[0].__name__, "traceback": ""}
        return super().format(record)

    def formatException(self, ei: Any) -> str:  # noqa: N802  the standard library's name
        return "\n".join(_told(ei[1]))


class JSONLines(Lines, JsonFormatter):
    """The same as JSON objects. What a library hangs on its records is left out, such as Django's whole request."""

    def __init__(self) -> None:
        names = {"levelname": "level", "name": "logger"}
        super().__init__([*names, "message", "request_id"], rename_fields=names, timestamp=True)

    def process_log_record(self, log_data: dict[str, Any]) -> dict[str, Any]:
        return {name: log_data[name] for name in _FIELDS if log_data.get(name, "-") != "-"}


class WithoutPath(logging.Filter):
    """Take the path out of what Django and waitress say about a failed request: it may hold a person's id or a fact's
    key.

    The view's name stays, when there is one.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        request = getattr(record, "request", None)
        if request is not None and isinstance(record.args, tuple) and len(record.args) == 2:
            match = getattr(request, "resolver_match", None)
            record.args = (record.args[0], f"{request.method} {match.route if match else '(no route)'}")
        if record.name == "waitress":
            said, serving, _ = str(record.msg).partition(" while serving ")
            record.msg = f"{said}{serving}".rstrip()
        return True


def _told(error: BaseException | None) -> Iterator[str]:
    """The exception and what it came from, oldest last."""
    while error:
        yield "".join([*traceback.format_tb(error.__traceback__), type(error).__qualname__])
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
