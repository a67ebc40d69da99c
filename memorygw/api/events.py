"""A run as server-sent events (K17): the HTML standard's ``event:`` and ``data:`` lines, data being JSON."""

import logging
from collections.abc import Callable, Collection, Generator, Iterable, Iterator
from contextlib import closing
from itertools import chain
from typing import Any

from django.db import InterfaceError, OperationalError
from django.http import StreamingHttpResponse
from rest_framework.renderers import JSONRenderer

from memorygw.exceptions import MemorygwError
from memorygw.gateway import Answer, Event, Events
from memorygw.logs import carried

logger = logging.getLogger(__name__)

Rendering = Callable[[Event], Iterator[bytes]]
"""The lines that tell an event."""

_SILENCE = b": nothing yet\n\n"


def event_stream(
    events: Events,
    render: Rendering,
    failed: Callable[[Any], Iterator[bytes]],
    *,
    begins_with: Collection[str] = (),
    end: bytes = b"",
) -> tuple[StreamingHttpResponse, Any]:
    """An answer that is sent as the events happen, and the run.

    What goes wrong before the first event, or before the first of the kinds in ``begins_with``, is raised, and has its
    status; what goes wrong later is told by ``failed``. A client that goes away ends the run.
    """
    first = [next(events)]
    while begins_with and first[-1].kind not in begins_with:
        first.append(next(events))
    response = StreamingHttpResponse(
        carried(_lines(first, events, render, failed, end)), content_type="text/event-stream"
    )
    response["Cache-Control"] = "no-cache"
    # Proxies of the nginx kind would wait for the end.
    response["X-Accel-Buffering"] = "no"
    return response, first[0].value


def events_of(answer: Answer) -> Events:
    """The events of a run that is over already."""
    yield Event("run", answer.run)
    yield from (Event("turn", turn) for turn in answer.turns)
    yield Event("done", answer)


def line(data: Any, name: str = "") -> bytes:
    """One event as the HTML standard writes it."""
    event = f"event: {name}\n".encode() if name else b""
    return event + b"data: %s\n\n" % JSONRenderer().render(data)


def _lines(
    first: Iterable[Event],
    events: Events,
    render: Rendering,
    failed: Callable[[Any], Iterator[bytes]],
    end: bytes,
) -> Generator[bytes, None, None]:
    with closing(events):
        try:
            for event in chain(first, events):
                yield from render(event) if event.kind != "silence" else (_SILENCE,)
        except (MemorygwError, OperationalError, InterfaceError) as error:
            yield from failed(error)
        except Exception as error:
            logger.exception("A stream broke.")
            yield from failed(error)
        else:
            yield end
