"""Finding the JSON in what a model said (K6)."""

import json
from typing import Any

import regex


class NumberText(str):
    """A number, as the model wrote it."""


# Numbers keep the text the model wrote; NaN and Infinity are no JSON. Line breaks inside a text are forgiven.
_DECODER = json.JSONDecoder(parse_int=NumberText, parse_float=NumberText, parse_constant=lambda _: None, strict=False)
_REASONING = "think|thinking|thought|reasoning"
_LANDMARK = regex.compile(rf"[\[{{]|<(?P<close>/?)(?:{_REASONING})\s*>", regex.IGNORECASE)
_REASONING_END = regex.compile(rf"</(?:{_REASONING})\s*>", regex.IGNORECASE)
# Far above what the helper model may answer; trying every bracket of a longer text would take its time.
_LONGEST_REPLY_CHARS = 100_000


def json_values(reply: str) -> list[Any]:
    """Every outermost JSON object or array of a reply, in order; numbers as their text.

    Fences and prose around, braces in the prose and markers inside a value do no harm. Reasoning is never read: neither
    between its tags, nor before a closing tag that lost its opening one, nor after an opening one that is never closed.
    """
    values: list[Any] = []
    position = 0
    if len(reply) > _LONGEST_REPLY_CHARS:
        return values
    while landmark := _LANDMARK.search(reply, position):
        position = landmark.end()
        if landmark["close"]:
            values.clear()
        elif landmark["close"] is not None:
            end = _REASONING_END.search(reply, position)
            if end is None:
                break
            position = end.end()
        else:
            try:
                value, position = _DECODER.raw_decode(reply, landmark.start())
            except RecursionError:
                return []
            except ValueError:
                continue
            values.append(value)
    return values
