"""Ranking facts by a text: words, meaning, and both. Case O02 without the API around it."""

import time
import unicodedata
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from random import Random
from uuid import UUID, uuid4

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memorygw.embeddings.base import StoredVector, Vector, from_bytes, to_bytes
from usermemory.recall import Hit, rank

START = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Note:
    key: str
    value: str
    confidence: float = 1.0
    updated_at: datetime = START
    embedding: StoredVector | None = None
    embedding_model: str = ""
    id: UUID = field(default_factory=uuid4)


def vector(*numbers: float) -> Vector:
    return np.array(numbers, dtype=np.float32)


def notes(**facts: str) -> list[Note]:
    return [Note(key, value) for key, value in facts.items()]


def found(facts: list[Note], query: str, query_vector: Vector | None = None) -> list[str]:
    return [hit.fact.key for hit in rank(facts, query, query_vector, only_matches=True)]


def ranked(facts: list[Note], query: str, query_vector: Vector | None = None) -> list[str]:
    return [hit.fact.key for hit in rank(facts, query, query_vector, only_matches=False)]


# --- case O02: recall queries people really type

O02 = notes(bot_policy="the bot's password policy rotates monthly", drink="caf\u00e9 au lait")


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("What's your password policy?", "bot_policy"),
        ("cafe\u0301", "drink"),
        ("CAF\u00c9", "drink"),
        ('"rotates" OR &|!():* \\', "bot_policy"),
        ("rotates NOT rotates", "bot_policy"),
    ],
)
def test_what_people_type_finds_what_they_mean(query: str, first: str) -> None:
    assert found(O02, query)[0] == first


@pytest.mark.parametrize("query", ["%", "_", "%_%", "*", "?", '"', "\\", "'", "-", "", " \n", "\x00", "\ud800", "🍕"])
def test_signs_alone_match_no_word(query: str) -> None:
    assert found(O02, query) == []


@pytest.mark.parametrize(
    "query",
    [
        "policy " * 5_000,
        " ".join(f"policy{number}" for number in range(5_000)) + " policy",
        "policy " + "a" * 200_000,
        "policy " + "東" * 20_000,
        "policy " + "'" * 100_000,
    ],
)
def test_a_long_query_is_fast(query: str) -> None:
    facts = O02 + [Note(f"key {number}", "some value or other") for number in range(98)]
    started = time.perf_counter()
    assert found(facts, query) == ["bot_policy"]
    assert time.perf_counter() - started < 2


# --- words


@pytest.mark.parametrize(
    ("value", "query"),
    [
        ("two policies", "policy"),
        ("is connected", "connections"),
        ("mag Hunde", "Hund"),
        ("wohnt in alten Häusern", "Haus"),
        ("aime les chiens", "chien"),
        ("toca canciones", "canción"),
        ("любит собак", "собака"),
        ("Weiße Straße", "WEISSE STRASSE"),
        ("mi piace l'acqua", "acqua"),
        ("東京都に住んでいる", "東京"),
        ("喜欢喝绿茶", "茶"),
        ("コーヒーが好き", "コーヒー"),
        ("서울에 산다", "서울"),
        ("ชอบกาแฟ", "กาแฟ"),
        ("born in 1984", "1984"),
    ],
)
def test_a_word_is_found_in_another_form_and_in_any_script(value: str, query: str) -> None:
    other = "nothing of that 京 kind 7"
    assert found([Note("a", value), Note("b", other)], query) == ["a"]
    decomposed = unicodedata.normalize("NFD", query)
    assert found([Note("a", value), Note("b", other)], decomposed) == ["a"]


def test_an_accent_is_kept_and_one_that_stemming_takes_away_counts_less() -> None:
    assert found(notes(a="un año"), "ano") == []
    assert found(notes(a="cafe", b="café"), "café") == ["b", "a"]


def test_words_are_ored_and_looked_for_in_keys_too() -> None:
    facts = notes(city="Turin", pet="an owl", work="baker")
    assert sorted(found(facts, "Which city has an owl?")) == ["city", "pet"]


def test_a_rare_word_counts_more_than_one_that_many_facts_have() -> None:
    facts = [*(Note(f"the {n}", "the rain") for n in range(9)), Note("pet", "owl")]
    assert ranked(facts, "the owl")[0] == "pet"


def test_a_short_fact_counts_more_than_a_long_one_with_the_same_word() -> None:
    assert found(notes(long="tea with milk and sugar and a biscuit at four", short="tea"), "tea") == ["short", "long"]


def test_the_word_itself_counts_more_than_what_one_language_makes_of_it() -> None:
    assert found(notes(a="care", b="car"), "car") == ["b", "a"]


def test_words_say_that_they_matched() -> None:
    [hit] = rank(O02, "lait", only_matches=True)
    assert (hit.fact.key, hit.why) == ("drink", ("keyword",))
    assert hit.score > 0


# --- without an embedder


def test_without_vectors_words_and_confidence_rank() -> None:
    sure, unsure = Note("sure", "rain", confidence=1.0), Note("unsure", "rain", confidence=0.5)
    hit, other = Note("hit", "an owl", confidence=0.6), Note("other", "wind", confidence=0.9)
    assert ranked([unsure, other, hit, sure], "owl") == ["hit", "sure", "other", "unsure"]
    assert ranked([unsure, sure], "rain") == ["sure", "unsure"]


def test_without_any_match_confidence_then_the_date_rank_and_a_search_is_empty() -> None:
    old = Note("old", "a", confidence=0.9)
    new = Note("new", "b", confidence=0.9, updated_at=START + timedelta(seconds=1))
    sure = Note("sure", "c", confidence=0.95, updated_at=START - timedelta(days=1))
    assert ranked([old, new, sure], "xyz") == ["sure", "new", "old"]
    assert ranked([old, new, sure], "") == ["sure", "new", "old"]
    assert found([old, new, sure], "xyz") == []


# --- meaning

NEAR, FAR = vector(1, 0), vector(0, 1)


def test_a_fact_without_a_common_word_is_found_by_its_meaning() -> None:
    facts = [Note("pet", "owl", embedding=to_bytes(NEAR)), Note("town", "Turin", embedding=to_bytes(FAR))]
    [hit] = rank(facts, "animal", vector(2, 0.1), only_matches=True)
    assert (hit.fact.key, hit.why) == ("pet", ("semantic",))


@pytest.mark.parametrize(("cosine", "matches"), [(0.31, True), (0.3, True), (0.29, False), (-1.0, False)])
def test_what_is_hardly_alike_does_not_match(cosine: float, matches: bool) -> None:
    fact = Note("a", "b", embedding=vector(cosine, (1 - cosine**2) ** 0.5))
    assert found([fact], "xyz", vector(1, 0)) == (["a"] if matches else [])


def test_both_halves_add_up() -> None:
    both = Note("both", "owl", embedding=vector(1, 0.2))
    words = Note("words", "owl", embedding=FAR)
    meaning = Note("meaning", "bird", embedding=NEAR)
    neither = Note("neither", "rain", embedding=FAR)
    hits = rank([neither, meaning, words, both], "owl", NEAR, only_matches=False)
    assert hits[0].fact.key == "both"
    assert hits[-1].fact.key == "neither"
    assert {hit.fact.key: hit.why for hit in hits} == {
        "both": ("keyword", "semantic"),
        "words": ("keyword",),
        "meaning": ("semantic",),
        "neither": (),
    }


def test_what_is_not_alike_gains_nothing_from_being_the_most_alike() -> None:
    facts = [Note("a", "rain", embedding=vector(0.2, 1)), Note("b", "wind", embedding=FAR), Note("c", "owl")]
    assert ranked(facts, "owl", NEAR)[0] == "c"
    assert found(facts, "owl", NEAR) == ["c"]


def test_vectors_of_another_length_or_model_are_ignored() -> None:
    facts = [
        Note("same", "a", embedding=NEAR, embedding_model="new"),
        Note("longer", "b", embedding=vector(1, 0, 0), embedding_model="new"),
        Note("older", "c", embedding=NEAR, embedding_model="old"),
        Note("none", "d"),
    ]
    assert [hit.fact.key for hit in rank(facts, "xyz", NEAR, only_matches=True, model="new")] == ["same"]
    assert sorted(found(facts, "xyz", NEAR)) == ["older", "same"]


def test_a_fact_that_has_no_vector_yet_is_found_by_its_words() -> None:
    facts = [Note("pet", "owl", embedding=FAR), Note("bird", "an owl too")]
    assert found(facts, "owl", NEAR) == ["pet", "bird"]


def test_a_vector_without_direction_is_like_nothing() -> None:
    facts = [Note("a", "b", embedding=vector(0, 0)), Note("c", "d", embedding=NEAR)]
    assert found(facts, "xyz", NEAR) == ["c"]
    assert found(facts, "xyz", vector(0, 0)) == []


def test_a_vector_is_stored_as_float32_little_endian() -> None:
    assert to_bytes(vector(1, -2)) == b"\x00\x00\x80\x3f\x00\x00\x00\xc0"
    assert from_bytes(memoryview(to_bytes(vector(1, -2)))).tolist() == [1, -2]


# --- order

words = st.sampled_from(["tea", "teas", "owl", "the", "東京", "café", "", "%"])
texts = st.lists(words, max_size=4).map(" ".join)
vectors = st.none() | st.lists(st.sampled_from([-1.0, 0.0, 0.5, 1.0]), min_size=2, max_size=3).map(
    lambda numbers: vector(*numbers)
)
some_notes = st.lists(
    st.builds(
        Note,
        key=texts,
        value=texts | st.text(max_size=20),
        confidence=st.sampled_from([0.0, 0.5, 1.0]),
        updated_at=st.sampled_from([START, START + timedelta(days=1)]),
        embedding=vectors,
        id=st.uuids(),
    ),
    max_size=8,
    unique_by=lambda note: note.id,
)


def summary(hits: list[Hit]) -> list[tuple[UUID, float, tuple[str, ...]]]:
    return [(hit.fact.id, hit.score, hit.why) for hit in hits]


@given(facts=some_notes, query=texts | st.text(max_size=30), query_vector=vectors, seed=st.integers())
def test_the_ranking_is_total_and_the_order_of_the_facts_means_nothing(
    facts: list[Note], query: str, query_vector: Vector | None, seed: int
) -> None:
    everything = summary(rank(facts, query, query_vector, only_matches=False))
    assert sorted(fact_id for fact_id, _, _ in everything) == sorted(fact.id for fact in facts)
    shuffled = Random(seed).sample(facts, len(facts))
    assert summary(rank(shuffled, query, query_vector, only_matches=False)) == everything
    assert summary(rank(shuffled, query, query_vector, only_matches=True)) == [hit for hit in everything if hit[2]]
    assert [score for _, score, _ in everything] == sorted((score for _, score, _ in everything), reverse=True)
