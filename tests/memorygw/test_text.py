import pytest
from hypothesis import given
from hypothesis import strategies as st

from memorygw.text import clean, cut, depth, is_storable, normalize_key, one_line, unstorable_paths, user_id


def test_text_of_a_model_loses_what_no_database_takes() -> None:
    assert clean("a\x00b\ud83d c") == "ab\ufffd c"


@given(st.text())
def test_cleaned_text_can_be_stored(text: str) -> None:
    assert is_storable(clean(text))


def test_what_cannot_be_stored_is_named_by_its_place() -> None:
    body = {"content": [{"type": "text", "text": "a\x00"}], "metadata": {"ok": 1, "note": {"deep": ["\ude00"]}}}
    assert list(unstorable_paths(body)) == ["content[0].text", "metadata.note.deep[0]"]
    assert list(unstorable_paths({"metadata": {"\ud800": 1}})) == ["metadata"]


def test_depth_has_no_recursion_limit() -> None:
    nested: object = 1
    for _ in range(50_000):
        nested = [nested]
    assert depth(nested) == 50_000
    assert depth({"a": {"b": [1]}}) == 3
    assert depth("flat") == 0


@pytest.mark.rows("U43", "U44")
@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("lang", " Lang "),
        ("favorite   color", "FAVORITE COLOR"),
        ("café order", "cafe\u0301 order"),
        ("ﬁle", "file"),
        ("na\u200bme", "name"),
        ("straße", "STRASSE"),
    ],
)
def test_spellings_of_one_key_are_the_same(one: str, other: str) -> None:
    assert normalize_key(one) == normalize_key(other)


def test_accents_tell_keys_apart() -> None:
    assert normalize_key("cafe") != normalize_key("café")


@pytest.mark.rows("U49")
def test_cutting_counts_code_points_and_splits_no_grapheme() -> None:
    assert cut("abcdef", 3) == "abc"
    assert cut("abc", 0) == "abc"
    family = "👨‍👩‍👧"
    assert cut(f"ab{family}", 4) == "ab"
    assert cut("e\u0301" * 3, 3) == "e\u0301"


@given(st.text(), st.integers(min_value=1, max_value=30))
def test_a_cut_text_is_a_beginning_within_the_limit(text: str, limit: int) -> None:
    piece = cut(text, limit)
    assert len(piece) <= limit
    assert text.startswith(piece)


@pytest.mark.parametrize("separator", ["\n", "\r\n", "\u2028", "\u2029", "\x85", "\v", "\f", "\x1c"])
def test_every_line_break_becomes_a_blank(separator: str) -> None:
    assert one_line(f"a{separator}b") == "a b"


@pytest.mark.parametrize("good", ["user/13", "a%2Fb", "..", "Ünal Ö", "x" * 255, " a ", "0042"])
def test_a_user_id_stays_as_it_is(good: str) -> None:
    assert user_id(good) == good


@pytest.mark.parametrize("bad", ["", " ", "*", "x" * 256, "a\nb", "a\x00b", "\ud800", "\u0085", None, True, 4.2, ["x"]])
def test_what_is_no_user_id_is_none(bad: object) -> None:
    assert user_id(bad) is None


def test_an_integer_user_id_is_its_decimal_text() -> None:
    assert user_id(42) == "42"
