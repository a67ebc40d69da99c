"""JSON as our clients must send it."""

import json
import math
from collections.abc import Iterator, Mapping
from typing import IO, Any, NoReturn

import regex
from rest_framework.exceptions import ParseError, ValidationError
from rest_framework.parsers import BaseParser

from memorygw.api.errors import BodyTooLargeError
from memorygw.text import MAX_DEPTH, depth, unstorable_paths

MAX_BODY_BYTES = 10_000_000

_FRAGMENT_TEXT = regex.compile(r"items\[\d+\]\.text")


class StrictJSONParser(BaseParser):
    """One JSON object, RFC 8259 to the letter, with nothing in it that cannot be stored (K1).

    Refused with 400: other encodings than UTF-8, NaN and Infinity, numbers too large for a float, nesting deeper than
    100, U+0000 and lone surrogates (naming the field). Over 10 MB: 413.
    """

    media_type = "application/json"

    def parse(
        self, stream: IO[bytes], media_type: str | None = None, parser_context: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        raw = stream.read(MAX_BODY_BYTES + 1)
        if len(raw) > MAX_BODY_BYTES:
            raise BodyTooLargeError
        try:
            body = json.loads(raw.decode("utf-8"), parse_constant=_refuse, parse_float=_finite)
        except (ValueError, RecursionError):
            raise ParseError("The body is not valid JSON.") from None
        if not isinstance(body, dict):
            raise ParseError("The body must be a JSON object.")
        if depth(body) > MAX_DEPTH:
            raise ParseError(f"The body is nested deeper than {MAX_DEPTH}.")
        if paths := list(self.unstorable_paths(body)):
            raise ValidationError({path or "body": ["Contains U+0000 or a lone surrogate."] for path in paths})
        return body

    def unstorable_paths(self, body: dict[str, Any]) -> Iterator[str]:
        return unstorable_paths(body)


class FragmentsParser(StrictJSONParser):
    """The same, but a fragment of speech is what a model sent: half a character is no fault of the caller's (K20)."""

    def unstorable_paths(self, body: dict[str, Any]) -> Iterator[str]:
        return (path for path in super().unstorable_paths(body) if not _FRAGMENT_TEXT.fullmatch(path))


def _refuse(constant: str) -> NoReturn:
    raise ValueError(constant)


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(text)
    return number
