"""Whether text gives orders to the assistant that will read it. Pure.

Made to miss few: what it stops, a person can still have remembered. Yet facts about people pass, also of people who
never answer the phone; so do wishes how answers are to be written.
"""

import base64
import binascii
import html
from urllib.parse import unquote

import regex

from usermemory.order_patterns import ORDERS
from usermemory.spelling import phrases, plain, single_blanks

_WEB = "(?:script|iframe|img|svg|style)"
_MARKUP = phrases(
    r"< ?/? ?(?:user[_ ]?memory|conversation[_ ]?notes|system|assistant|developer|instructions?|prompt|memory)\b",
    r"< ?/? ?(?:(?:tool|function)(?:_calls?|_results?)?|invoke|a href|!--)",
    rf"< ?/? ?{_WEB}\b(?!(?<!/ ?{_WEB}) ?/?>(?:`| (?:tags?|elements?|icons?|files?)\b))",
    r"<\|[^|\n]{1,40}+\|>|<<sys>>|\[ ?/?(?:inst|sys|system|assistant|user)\b",
    r"```|~~~|^#{1,6} (?!of\b)[^\W\d]|^#{2,6}\w",
    r"[-=#*]{3} ?(?:begin|end|start|stop|new|system|ignore|override)|\[ ?(?:begin|end|start|new|override)\b",
    r"^(?:begin|end)(?: of)? (?:new |system |user )?(?:instructions|prompt|context|memory|system)\b",
    r"https?://|\bs?ftp://|\bfile://|\bwww\.\w|\bdata:\w{2,12}/\w|\bjavascript:|!\[|\]\(|^\[[^\]\n]{1,40}+\]:",
    r"""["'`“”‘’](?:role|tool_calls?|function_call|arguments)["'`“”‘’] ?[:=]""",
    r"""\brole ?[:=] ?(?:["'](?:system|assistant)\b|(?:system|assistant|developer)[\s,]{1,3}content\b)""",
    r"\n(?:human|user|tool) ?:",
    r"(?:^|[.!?;>)\]*] )(?:system|sistema|système|система|系统|系統|システム) ?:(?! ?(?:macos|windows|linux|ubuntu"
    r"|debian|fedora|ios|android)\b)",
    r"\b(?:system|developer|admin) ?(?:prompt|message|instruction|override|note|notice|nachricht|anweisung)s? ?[:=]",
    r"(?:remember|forget)_user_fact|\bmemory_(?:save|recall|search|forget|delete|update|store)\b",
)
# Looked for in capitals and small letters: "assistant: Maria Lopez" is somebody's.
_SPEAKER = regex.compile(
    r"(?:^|[.!?;>)\]*]\s)(?i:assistant|developer)\s?:(?!\s?(?!(?:Yes|No|Sure|Of|Ok|OK|Okay|I|Understood|Certainly"
    r"|Done)\b)"
    r"\p{Lu}\p{Ll}{1,20}+(?:[\s'’-]{1,2}\p{Lu}\p{Ll}{0,20}+\.?){0,3}+(?:[,;.\n(]|$))",
    regex.MULTILINE,
)


# Short ones alone: Python refuses to read a number of thousands of digits.
_ENTITY = regex.compile(r"&#?\w{1,8}+;?")
_DECORATION = str.maketrans('"`“”„*_~,', " " * 9, "'’‘")
# Letters of other alphabets that look Latin, and digits that stand for letters.
_LOOKALIKES = str.maketrans("аеорсухіјѕԁһɡӏαορυικντχ", "aeopcyxijsdhglaopuikvtx")
_DIGITS = (str.maketrans("0134578@$", "oieastbas"), str.maketrans("0134578@$", "oleastbas"))
_JOINT = regex.compile(r"(?<=\w)[-./|+\\:=]{1,3}+(?=\w)")
_LETTER_BY_LETTER = regex.compile(r"(?<!\w)[^\W_](?:[ .*_-][^\W_](?!\w)){2,}+\.?")
_ENCODED = regex.compile(r"(?<![\w+/-])[A-Za-z0-9+/_-]{16,}+")


def gives_orders(text: str) -> bool:
    """Whether it speaks to the assistant, or carries what a prompt is built of: roles, our tags and tools, links."""
    spelt = _spelt(text)
    said = spelt.casefold()
    if _MARKUP.search(said) or _SPEAKER.search(spelt) or any(map(_is_encoded_text, _ENCODED.findall(spelt))):
        return True
    return _is_order(said)


def speaks_to_assistant(text: str) -> bool:
    """The same without links, code and markup, which people do have: only what is said to the assistant."""
    return _is_order(_spelt(text).casefold())


def _is_order(said: str) -> bool:
    return any(pattern.search(way) for way in _ways_to_read(said) for pattern in ORDERS)


def _spelt(text: str) -> str:
    text = unquote(_ENTITY.sub(lambda entity: html.unescape(entity[0]), text))
    return plain(_LETTER_BY_LETTER.sub(lambda letters: regex.sub(r"[\W_]", "", letters[0]), text))


def _ways_to_read(said: str) -> set[str]:
    """The text without decoration, and as it reads when letters are others' look-alikes and words are tied together."""
    said = single_blanks(said.translate(_DECORATION))
    untied = single_blanks(_JOINT.sub(" ", said))
    latin = untied.translate(_LOOKALIKES)
    return {said, said.translate(_LOOKALIKES), untied, *(latin.translate(digits) for digits in _DIGITS)}


def _is_encoded_text(word: str) -> bool:
    """Whether a long word is Base64 of something to read: no fact needs that."""
    padded = word.translate(str.maketrans("-_", "+/")) + "=" * (-len(word) % 4)
    try:
        text = base64.b64decode(padded).decode()
    except (binascii.Error, UnicodeDecodeError):
        return False
    return " " in text and text.isprintable()
