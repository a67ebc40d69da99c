"""Text in one spelling, so that accents, case, widths and invisible characters hide nothing from a pattern. Pure."""

import unicodedata

import regex

_INVISIBLE = regex.compile(r"[[\p{M}\p{Cf}\p{Cc}\p{Default_Ignorable_Code_Point}]--\s]++", regex.V1)
_OTHER_DIGIT = regex.compile(r"[\p{Nd}--0-9]", regex.V1)


def plain(text: str) -> str:
    """``text`` without accents, widths and invisible characters, digits as 0–9, one blank between words."""
    return single_blanks(_OTHER_DIGIT.sub(lambda digit: str(unicodedata.decimal(digit[0], digit[0])), bare(text)))


def bare(text: str) -> str:
    # Marks go before the decomposition too: to sort a long run of them takes quadratic time.
    return _INVISIBLE.sub("", unicodedata.normalize("NFKD", _INVISIBLE.sub("", text)))


def single_blanks(text: str) -> str:
    return "\n".join(" ".join(line.split()) for line in text.splitlines())


def phrases(*alternatives: str) -> regex.Pattern[str]:
    """A pattern for plain, case-folded text, written in small letters: a blank is any white space, accents are none."""
    return regex.compile(bare("|".join(alternatives)).replace(" ", r"\s"), regex.MULTILINE)
