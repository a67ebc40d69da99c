"""Which facts a text is about: words and meaning, each scaled to 0…1 and added. Pure, any text is a query (K19).

Words are compared as `memorygw.text.fold` spells them; accents stay, unless they go with an ending ("canción",
"canciones"). A query is an OR of its words, without any operator; no list of stop words is kept, since a word that is
in every fact weighs
next to nothing. Which language a fact is in is unknown: each word is stemmed by every one of `LANGUAGES`, and the score
is the mean over them. So the same word counts most, and two that only the rules of one language join count least.
Scripts that put no blanks between words are compared by pairs of neighbouring characters.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol
from uuid import UUID

import numpy as np
import regex
import Stemmer
from numpy.typing import NDArray

from memorygw.embeddings.base import Vector, from_bytes, has_length
from memorygw.text import fold

LANGUAGES = ("english", "german", "french", "spanish", "italian", "portuguese", "dutch", "russian")
KEYWORD, SEMANTIC = "keyword", "semantic"
LEAST_COSINE = 0.3
"""What is less alike than that has nothing to do with the query."""

_KEYWORD_SHARE, _CONFIDENCE_SHARE = 0.7, 0.3
# The usual constants of BM25.
_SATURATION, _LENGTH_SHARE = 1.2, 0.75
_LONGEST_WORD = 64
_COSINE_DIGITS = 6
_UNSPACED = r"\p{So}\p{Han}\p{Hiragana}\p{Katakana}ー\p{Hangul}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"
_WORD = regex.compile(rf"(?V1)(?P<unspaced>[{_UNSPACED}]+)|[[\p{{L}}\p{{M}}\p{{N}}]--[{_UNSPACED}]]+")
_POSSESSIVE = regex.compile(r"['’]s\b")

Scores = NDArray[np.float64]


class FactLike(Protocol):
    """What is ranked: a row of `usermemory.models.Fact`, or anything that looks like one."""

    @property
    def id(self) -> UUID: ...
    @property
    def key(self) -> str: ...
    @property
    def value(self) -> str: ...
    @property
    def confidence(self) -> float: ...
    @property
    def updated_at(self) -> datetime: ...
    @property
    def embedding(self) -> Any: ...  # a StoredVector, or None
    @property
    def embedding_model(self) -> str: ...


@dataclass(frozen=True)
class Hit:
    """A fact, how near it is (comparable within one ranking only), and which halves matched: none, one or both."""

    fact: Any
    score: float
    why: tuple[str, ...]


def rank(
    facts: Iterable[FactLike], query: str, query_vector: Vector | None = None, *, only_matches: bool, model: str = ""
) -> list[Hit]:
    """The facts, best first; with ``only_matches`` those that share a word or the meaning, without it all of them.

    A fact whose vector has another length than the query's takes part with its words alone; so does one whose vector
    is of another model, if ``model`` is given. Without any vector to compare, words and confidence rank (R97). Equal
    scores: confidence, then the date of change, then the id, so that the order of ``facts`` means nothing.
    """
    # Sums of floats depend on their order.
    ranked = sorted(facts, key=lambda fact: fact.id)
    words = _keyword_scores([f"{fact.key} {fact.value}" for fact in ranked], query)
    cosines = _cosines(ranked, query_vector, model)
    near = cosines >= LEAST_COSINE
    if np.isnan(cosines).all():
        confidence = np.array([fact.confidence for fact in ranked])
        scores = _KEYWORD_SHARE * _scaled(words) + _CONFIDENCE_SHARE * confidence
    else:
        scores = _scaled(words) + _scaled(cosines, least=LEAST_COSINE)
    whys = [_why(*halves) for halves in zip(words > 0, near, strict=True)]
    hits = [Hit(fact, float(score), why) for fact, score, why in zip(ranked, scores, whys, strict=True)]
    return sorted((hit for hit in hits if hit.why or not only_matches), key=_best_first)


def _best_first(hit: Hit) -> tuple[float, float, float, UUID]:
    return -hit.score, -hit.fact.confidence, -hit.fact.updated_at.timestamp(), hit.fact.id


def _why(keyword: bool, semantic: bool) -> tuple[str, ...]:
    return (KEYWORD,) * bool(keyword) + (SEMANTIC,) * bool(semantic)


def _scaled(scores: Scores, *, least: float = 0.0) -> Scores:
    """From the lowest to the highest as 0…1 (min-max). Nothing, which is NaN, and what is below ``least`` are 0."""
    raised = np.fmax(scores, least)
    known = raised[~np.isnan(scores)]
    high = known.max(initial=least)
    if high <= least:
        return np.zeros(len(scores))
    low = known.min()
    low = low if low < high else least
    scaled: Scores = np.clip((raised - low) / (high - low), 0, 1)
    return scaled


# --- words


def _keyword_scores(texts: Sequence[str], query: str) -> Scores:
    """BM25 over these texts, the mean over the languages; 0 for a text that shares no word with the query."""
    documents = [_words(text, stored=True) for text in texts]
    wanted = list(set(_words(query)))
    occurrences: defaultdict[str, Counter[int]] = defaultdict(Counter)
    for index, words in enumerate(documents):
        for word in words:
            occurrences[word][index] += 1
    scores = np.zeros(len(texts))
    dampings = _dampings(documents)
    for language in LANGUAGES:
        for counts in _shared(wanted, occurrences, language):
            indexes, times = np.array(list(counts)), np.array(list(counts.values()))
            weight = _inverse_frequency(len(counts), len(texts))
            scores[indexes] += weight * times * (_SATURATION + 1) / (times + dampings[indexes])
    return scores / len(LANGUAGES)


def _shared(wanted: Sequence[str], occurrences: Mapping[str, Counter[int]], language: str) -> Iterable[Counter[int]]:
    """For every stem of the query that texts have: how often, per text."""
    # Made here, since a stemmer belongs to one thread; without a cache, since words are personal data.
    stems = Stemmer.Stemmer(language, 0).stemWords
    sought = set(stems(wanted))
    shared: defaultdict[str, Counter[int]] = defaultdict(Counter)
    for word, stem in zip(occurrences, stems(list(occurrences)), strict=True):
        if stem in sought:
            shared[stem].update(occurrences[word])
    return shared.values()


def _dampings(documents: Sequence[Sequence[str]]) -> Scores:
    """What makes a word count less in a longer text."""
    lengths = np.array([len(words) for words in documents], dtype=np.float64)
    average = max(lengths.mean(), 1) if documents else 1
    dampings: Scores = _SATURATION * (1 - _LENGTH_SHARE + _LENGTH_SHARE * lengths / average)
    return dampings


def _words(text: str, *, stored: bool = False) -> list[str]:
    words: list[str] = []
    for match in _WORD.finditer(_POSSESSIVE.sub("", fold(text))):
        words += _pieces(match[0], stored=stored) if match["unspaced"] else [match[0][:_LONGEST_WORD]]
    return words


def _pieces(run: str, *, stored: bool) -> list[str]:
    """Neighbouring characters in pairs. What is stored is found by one character, too, if that is all of a query."""
    pairs = [run[start : start + 2] for start in range(len(run) - 1)]
    return pairs + list(run) if stored or not pairs else pairs


def _inverse_frequency(count: int, documents: int) -> float:
    """Above 0 even for a term that all documents have."""
    return math.log(1 + (documents - count + 0.5) / (count + 0.5))


# --- meaning


def _cosines(facts: Sequence[FactLike], query_vector: Vector | None, model: str) -> Scores:
    """NaN where there is nothing to compare."""
    cosines = np.full(len(facts), np.nan)
    if query_vector is None:
        return cosines
    stored = {
        index: fact.embedding
        for index, fact in enumerate(facts)
        if fact.embedding is not None
        and has_length(fact.embedding, len(query_vector))
        and model in ("", fact.embedding_model)
    }
    if stored:
        cosines[list(stored)] = _cosines_of(np.array(list(map(from_bytes, stored.values()))), query_vector)
    return cosines


def _cosines_of(matrix: NDArray[np.float32], query_vector: Vector) -> Scores:
    """0 for a vector without a direction. Rounded, so that equal vectors are equally near wherever they stand."""
    rows, query = matrix.astype(np.float64), query_vector.astype(np.float64)
    lengths = np.linalg.norm(rows, axis=1) * np.linalg.norm(query)
    cosines: Scores = np.divide(rows @ query, lengths, out=np.zeros(len(rows)), where=lengths > 0)
    return cosines.round(_COSINE_DIGITS)
