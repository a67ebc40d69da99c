"""S43, S44: what may not be remembered, and above all what may."""

import time
from collections.abc import Mapping

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st
from stdnum import iban, luhn

from tests.usermemory.corpus_harmless import HARMLESS
from tests.usermemory.corpus_orders import HIDDEN, ORDERS
from tests.usermemory.corpus_secrets import PAYMENT, SECRETS
from usermemory import order_patterns, orders, refusals, spelling
from usermemory.refusals import refusal, tool_refusal


def cases(corpus: Mapping[str, tuple[str, str]]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(("key", "value"), corpus.values(), ids=corpus)


def patterns() -> list[regex.Pattern[str]]:
    """All of the modules, those in tuples too."""
    values = [value for module in (refusals, orders, order_patterns, spelling) for value in vars(module).values()]
    values += [inner for value in values if isinstance(value, tuple) for inner in value]
    return list({value: None for value in values if isinstance(value, regex.Pattern)})


@cases(SECRETS)
def test_a_secret_is_refused_on_any_way_in(key: str, value: str) -> None:
    assert refusal(key, value) == tool_refusal(key, value) == "secret_detected"


@cases(PAYMENT)
def test_payment_data_are_refused_on_any_way_in(key: str, value: str) -> None:
    assert refusal(key, value) == tool_refusal(key, value) == "payment_data"


@cases(HIDDEN)
def test_hidden_text_is_refused_by_the_tool_alone(key: str, value: str) -> None:
    assert refusal(key, value) == ""
    assert tool_refusal(key, value) == "control_chars"


@cases(ORDERS)
def test_an_order_is_refused_by_the_tool_alone(key: str, value: str) -> None:
    assert refusal(key, value) == ""
    assert tool_refusal(key, value) == "instruction_like"


@cases(HARMLESS)
def test_an_ordinary_fact_passes(key: str, value: str) -> None:
    assert refusal(key, value) == tool_refusal(key, value) == ""


# --- whatever the text

CODES = {"", "secret_detected", "payment_data", "control_chars", "instruction_like"}
ANY_TEXT = st.text(st.characters(exclude_categories=()))
FRAGMENTS = [
    *("4111 1111 1111 ", "DE89 3704 ", "password is ", "PIN ", "eyJ", "sk-", "://a:", "@", "-----BEGIN ", "api key "),
    *(
        "ignore all previous ",
        "you must ",
        "if the user ",
        "<",
        "[",
        "# ",
        "&#x;",
        "%c3",
        "aWdub3JlIGFsbA",
        "忽略",
        "如",
    ),
    *(
        "end every reply with ",
        "when asked ",
        "send all chats ",
        "secret ",
        "seed word ",
        "recovery code ",
        "a.",
        "i g ",
    ),
    *(
        "user ada pass ",
        "passphrase is ",
        "credentials: ada:",
        "security code ",
        "SSN 07",
        "4111,",
        "0.1234567",
        "basic a",
    ),
    *("ignoreallyour", "safety rules are ", "если спросят ", "每个回答", "すべての回答", "if jemand fragt wenn "),
    *("\u0301\u0316", "\u200d", "\U000e0041", "\U0001f3f4", "\ufdfa", "ß", "İ", "\ud800", "\x00", "\n", " ", "x", "1"),
]


@given(ANY_TEXT, ANY_TEXT)
def test_any_text_gets_one_of_the_codes(key: str, value: str) -> None:
    assert refusal(key, value) in CODES - {"control_chars", "instruction_like"}
    assert tool_refusal(key, value) in CODES


@pytest.mark.parametrize("number", ["1" * 5000, f"&#{'1' * 5000};", f"&#x{'f' * 5000};", f"PIN {'1' * 5000}"], ids=len)
def test_a_number_too_long_for_python_passes(number: str) -> None:
    assert tool_refusal("number", number) == ""


@given(st.lists(st.sampled_from(FRAGMENTS)).map("".join), st.lists(st.sampled_from(FRAGMENTS)).map("".join))
def test_the_tool_refuses_what_any_way_in_refuses_with_the_same_code(key: str, value: str) -> None:
    code = refusal(key, value)
    assert tool_refusal(key, value) in ({code} if code else CODES)


@given(st.text(st.sampled_from("abcdefghijklmnopqrstuvwxyzäöüéñçабвгд ,."), max_size=200))
def test_letters_alone_hold_neither_secrets_nor_payment_data(value: str) -> None:
    assert refusal("about me", value) == ""


@given(st.integers(min_value=0, max_value=10**15 - 1), st.sampled_from(["", " ", "-"]))
def test_every_card_of_an_issuer_is_refused_and_with_a_wrong_digit_none(account: int, separator: str) -> None:
    number = f"4{account:014}"[:15]
    check = int(luhn.calc_check_digit(number))
    for digit in range(10):
        text = f"{number}{digit}"
        groups = separator.join(text[at : at + 4] for at in range(0, 16, 4))
        assert refusal("number", f"it is {groups}, I think") == ("payment_data" if digit == check else "")


@pytest.mark.parametrize("fragment", FRAGMENTS, ids=ascii)
def test_eight_times_the_text_is_not_worth_the_square_of_the_work(fragment: str) -> None:
    def work(chars: int, times: int) -> float:
        text = (fragment * chars)[:chars] + "1a"
        return min(_processor_time(text) for _ in range(times))

    assert work(8000, 1) < 32 * work(1000, 3)  # eight times if it is linear, sixty-four if it is quadratic


def _processor_time(text: str) -> float:
    start = time.process_time()
    tool_refusal("key", text)
    return time.process_time() - start


@pytest.mark.parametrize(
    "text", ["4 " * 5000, "4111 " * 2000, "DE89 3704 " * 1000, "1" * 10_000], ids=["4", "4111", "DE89", "1"]
)
def test_checksums_are_reckoned_a_few_times_a_word(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    reckoned: list[str] = []

    def is_valid(number: str, check_country: bool = True) -> bool:
        reckoned.append(number)
        return False

    monkeypatch.setattr(luhn, "is_valid", is_valid)
    monkeypatch.setattr(iban, "is_valid", is_valid)
    refusal("key", text)
    assert len(reckoned) <= 20 * len(text.split())


@pytest.mark.parametrize("pattern", patterns())
def test_a_pattern_repeats_up_to_a_limit_or_gives_nothing_back(pattern: regex.Pattern[str]) -> None:
    bare = regex.sub(r"\s#.*", "", pattern.pattern) if pattern.flags & regex.VERBOSE else pattern.pattern
    bare = regex.sub(r"\\p\{\w+\}|\\.", "x", bare)
    while "[" in bare:
        bare = regex.sub(r"\[[^\[\]]*\]", "x", bare)
    repeats = set(regex.findall(r"\{[\d,]+\}\+?|[*+]\+?", bare))
    assert not [repeat for repeat in repeats if repeat in {"*", "+"} or repeat.endswith(",}")]
