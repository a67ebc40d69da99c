"""Whether what was learned from a small talk is right: what must hold in most runs, and what must never be."""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from unicodedata import normalize

_DATA: dict[str, Any] = json.loads(Path(__file__).with_name("talks.json").read_text(encoding="utf-8"))

RUNS: int = _DATA["runs"]
MUST_HOLD: int = _DATA["must_hold"]


@dataclass(frozen=True)
class Talk:
    """What one user says, perhaps after something that the assistant said, and what is right to learn from it."""

    id: str
    user: str
    must: str
    never: str
    assistant_before: str = ""


TALKS = [Talk(**talk) for talk in _DATA["talks"]]


class Fact(NamedTuple):
    key: str
    value: str

    @property
    def words(self) -> str:
        """Key and value in lower case, with nothing but blanks between the words of either."""
        text = normalize("NFC", f"{self.key}: {self.value}").replace("’", "'")
        apart = re.sub(r"(?<=[a-z])(?=[A-Z])|[_-]+", " ", text)
        return " ".join(apart.casefold().split())


Facts = Sequence[Fact]
Judge = Callable[[Facts], bool]

_DISLIKE = re.compile(
    r"dislik|avers|avoid|detest|loath|despis|exclud|intoleran|unwanted|without|can(?:no|')t stand|can not stand"
    r"|\b(?:hate[sd]?|hating|no|not|never|stop|free|don't|doesn't|isn't|won't)\b"
)
_LIKING = re.compile(r"\b(?:likes?|liked|loves?|loved|enjoys?|fan of|favou?rites?|prefer\w*)\b")
_HERS = re.compile(r"\b(?:porto|vegan)\b")
_SHE = re.compile(r"sister|\bana\b")
_SOMEBODY_ELSE = re.compile(r"sister|\bana\b|sibling|family|relative|\bshe\b|\bher\b")
# "user" or "I", and up to the claim nobody else.
_THE_USER = re.compile(
    r"\b(?:user|i)\b(?!')(?:(?!sister|\bana\b|sibling|family|relative|\bshe\b|\bher\b|\bwho\b).)*\b(?:porto|vegan)\b"
)
_PRETENDED = re.compile(r"pretend|play|game|fiction|imagin|character|persona\b")
_MOVING = re.compile(r"\bmov(?:es?|ed|ing)\b|\bflat\b|\blake\b|apartment|relocat|housing|quieter")


def _mentions(facts: Facts, word: str) -> list[str]:
    return [fact.words for fact in facts if word in fact.words]


def _dislikes_cilantro(facts: Facts) -> bool:
    return any(_DISLIKE.search(words) for words in _mentions(facts, "cilantro"))


def _likes_cilantro(facts: Facts) -> bool:
    return any(_LIKING.search(words) and not _DISLIKE.search(words) for words in _mentions(facts, "cilantro"))


def _names_the_sister(facts: Facts) -> bool:
    return all(_SHE.search(fact.words) for fact in facts if _HERS.search(fact.words))


def _is_about_the_user(facts: Facts) -> bool:
    hers = [fact.words for fact in facts if _HERS.search(fact.words)]
    return any(_THE_USER.search(words) or not _SOMEBODY_ELSE.search(words) for words in hers)


def _says_shrimp(facts: Facts) -> bool:
    return any("tôm" in normalize("NFC", fact.value).casefold() for fact in facts)


def _is_all_english(facts: Facts) -> bool:
    letters = [letter for fact in facts for letter in fact.value if letter.isalpha()]
    return bool(facts) and all(letter.isascii() for letter in letters)


def _is_redbeak(facts: Facts) -> bool:
    return any(not _PRETENDED.search(words) for words in _mentions(facts, "redbeak"))


def _is_about_moving(facts: Facts) -> bool:
    return any(_MOVING.search(fact.words) for fact in facts)


def _nothing(facts: Facts) -> bool:
    return not facts


def _anything(facts: Facts) -> bool:
    return bool(facts)


MUST: dict[str, Judge] = {
    "negation": _dislikes_cilantro,
    "somebody else": _names_the_sister,
    "language": _says_shrimp,
    "role play": _nothing,
    "small talk": _nothing,
    "echo": _nothing,
}
NEVER: dict[str, Judge] = {
    "negation": _likes_cilantro,
    "somebody else": _is_about_the_user,
    "language": _is_all_english,
    "role play": _is_redbeak,
    "small talk": _anything,
    "echo": _is_about_moving,
}


@dataclass(frozen=True)
class Run:
    """What one run of a talk left; ``problem`` says why there is nothing to judge."""

    facts: Facts
    problem: str = ""


@dataclass(frozen=True)
class Result:
    """A talk and its runs. Where nothing was learned because something failed, nothing that must hold does."""

    talk: Talk
    runs: Sequence[Run]

    @property
    def held(self) -> int:
        return sum(not run.problem and MUST[self.talk.id](run.facts) for run in self.runs)

    @property
    def crossed(self) -> int:
        return sum(NEVER[self.talk.id](run.facts) for run in self.runs)

    @property
    def complaints(self) -> list[str]:
        """What is wrong with it, a line each; none when the talk passed."""
        talk, said, runs = self.talk, [], len(self.runs)
        if self.held < MUST_HOLD:
            said.append(f"{talk.id}: must hold in {MUST_HOLD} of {runs} runs, did in {self.held}: {talk.must}")
            said += [f"{talk.id}: run {n} failed: {run.problem}" for n, run in enumerate(self.runs, 1) if run.problem]
        if self.crossed:
            said.append(f"{talk.id}: must never be, was in {self.crossed} of {runs} runs: {talk.never}")
        return said
