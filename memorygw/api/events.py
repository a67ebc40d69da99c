"""A run as server-sent events (K17): the HTML standard's ``event:`` and ``data:`` lines, data being JSON."""

import logging
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from typing import Any, cast

from django.db import InterfaceError, OperationalError
from django.http import StreamingHttpResponse
from rest_framework.renderers import JSONRenderer

from memorygw.api.errors import envelope, handle
from memorygw.exceptions import MemorygwError
from memorygw.gateway import Answer, Event

logger = logging.getLogger(__name__)

Rendering = Callable[[Event], tuple[str, Any]]
"""The name and the data of an event."""

_SILENCE = b": nothing yet\n\n"


def event_stream(events: Iterator[Event], render: Rendering) -> StreamingHttpResponse:
    """An answer that is sent as the events happen. What goes wrong before the first is raised, and has its status; what
    goes wrong later is an ``error`` event. A client that goes away ends the run."""
    started = cast("Generator[Event]", events)
    first = next(started)
    response = StreamingHttpResponse(_lines(first, started, render), content_type="text/event-stream")
    response["Cache-Control"] = "no-cache"
    # Proxies of the nginx kind would wait for the end.
    response["X-Accel-Buffering"] = "no"
    return response


def events_of(answer: Answer) -> Iterator[Event]:
    """The events of a run that is over already."""
    yield Event("run", answer.run)
    yield from (Event("turn", turn) for turn in answer.turns)
    yield Event("done", answer)


def _lines(first: Event, events: "Generator[Event]", render: Rendering) -> Iterator[bytes]:
    with closing(events):
        try:
            yield _line(*render(first))
            for event in events:
                yield _SILENCE if event.kind == "silence" else _line(*render(event))
        except (MemorygwError, OperationalError, InterfaceError) as error:
            refusal = handle(error, {})
            yield _line("error", refusal.data if refusal else {})
        except Exception:
            logger.exception("A stream broke.")
            yield _line("error", envelope("internal", "Something went wrong."))


def _line(name: str, data: Any) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (name.encode(), JSONRenderer().render(data))
