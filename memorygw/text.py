"""The rules about characters, once (K1, K8, K9, K10, K12)."""

import unicodedata
from collections.abc import Iterator
from typing import Any

import regex

MAX_DEPTH = 100
MAX_USER_ID_CHARS = 255
NOBODY = "*"
"""The owner of what belongs to no user; no external id (K11)."""

_SURROGATES = regex.compile(r"[\ud800-\udfff]")
_FORMAT = regex.compile(r"\p{Cf}+")
_NOT_IN_WORDS = regex.compile(r"[^\p{L}\p{M}\p{N}]+")
_CONTROL = regex.compile(r"\p{Cc}")
_BREAKS = regex.compile(r"\s*[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]+\s*")
_GRAPHEME = regex.compile(r"\X")
_SENTENCE_ENDS = " .!?。"


def clean(text: str) -> str:
    """Text that a model, a tool or a job made, as it may be stored: no NUL, U+FFFD for a lone surrogate (K1)."""
    return _SURROGATES.sub("\ufffd", text.replace("\x00", ""))


def cleaned(value: Any) -> Any:
    """Decoded JSON with every text in it `clean`, names too."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        return {clean(name): cleaned(inner) for name, inner in value.items()}
    return [cleaned(inner) for inner in value] if isinstance(value, list) else value


def is_storable(text: str) -> bool:
    """Whether a client's text can be stored as sent: no NUL, no lone surrogate (K1)."""
    return "\x00" not in text and not _SURROGATES.search(text)


def unstorable_paths(value: Any, path: str = "") -> Iterator[str]:
    """Where decoded JSON holds text that cannot be stored, as dotted paths; a bad key is named by its parent."""
    if isinstance(value, str):
        if not is_storable(value):
            yield path
    elif isinstance(value, dict):
        for key, inner in value.items():
            if not is_storable(key):
                yield path
            else:
                yield from unstorable_paths(inner, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from unstorable_paths(inner, f"{path}[{index}]")


def depth(value: Any) -> int:
    """How deeply decoded JSON is nested; a scalar is 0. Walks level by level: no recursion limit to run into."""
    levels, layer = 0, [value]
    while layer := [node for node in layer if isinstance(node, dict | list)]:
        levels += 1
        layer = [inner for node in layer for inner in (node.values() if isinstance(node, dict) else node)]
    return levels


def fold(text: str) -> str:
    """What two spellings of one text have in common: NFKC, case folded, no format characters, single blanks (K8, S41).

    A Turkish capital I with a dot is an "i", as people who look for it write.
    """
    folded = unicodedata.normalize("NFKC", _FORMAT.sub("", text)).casefold()
    return " ".join(unicodedata.normalize("NFKC", folded.replace("i\u0307", "i")).split())


def words(text: str) -> str:
    """What is left of a text when spelling, case and punctuation are taken away: its words, a blank between them."""
    return " ".join(_NOT_IN_WORDS.sub(" ", fold(text)).split())


def normalize_key(key: str) -> str:
    """What two spellings of one key have in common (K8)."""
    return fold(key)


def normalize_text(text: str) -> str:
    """What two spellings of one free text have in common: the same, and no punctuation at the end (A37–A41)."""
    normal = normalize_key(text)
    return normal.rstrip(_SENTENCE_ENDS) or normal


def cut(text: str, limit: int) -> str:
    """The longest beginning of at most ``limit`` code points that splits no grapheme (K9); limit 0: all of it."""
    if not limit or len(text) <= limit:
        return text
    end = 0
    for match in _GRAPHEME.finditer(text):
        if match.end() > limit:
            break
        end = match.end()
    return text[:end].rstrip()


def one_line(text: str) -> str:
    """``text`` with every kind of line break made a blank (K10)."""
    return _BREAKS.sub(" ", text)


def user_id(value: object) -> str | None:
    """An external user id as it is stored, or None when it is none (K12).

    1–255 characters, no control character, not blank and not ``*`` (K11); an integer becomes its decimal text.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str) or not value.strip() or value == NOBODY:
        return None
    if len(value) > MAX_USER_ID_CHARS or not is_storable(value) or _CONTROL.search(value):
        return None
    return value
