import pytest
from django.core.checks import run_checks
from pytest_django import Settings

from memorygw import conf as conf_module
from memorygw.checks import PLANNED
from memorygw.conf import conf


def problems() -> list[str]:
    return [f"{message.id}: {message.msg}" for message in run_checks(tags=["memorygw"])]


def test_the_shipped_settings_have_no_problem() -> None:
    assert problems() == []


def test_a_misspelt_name_is_refused_with_a_suggestion(settings: Settings) -> None:
    settings.MEMORYGW_EXTRACT_EVERY_TURN = 5
    [message] = run_checks(tags=["memorygw"])
    assert (message.id, message.hint) == ("memorygw.E001", "Did you mean MEMORYGW_EXTRACT_EVERY_TURNS?")


def test_a_name_of_the_contract_that_is_not_built_yet_is_accepted_with_a_warning(settings: Settings) -> None:
    settings.MEMORYGW_SPECIAL_CATEGORIES = "allow"
    [message] = run_checks(tags=["memorygw"])
    assert (message.id, message.msg) == ("memorygw.W003", "MEMORYGW_SPECIAL_CATEGORIES has no effect yet.")


def test_nothing_is_built_and_planned_at_once() -> None:
    assert not PLANNED & conf_module.kinds().keys()


@pytest.mark.rows("U117", "W15")
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("EXTRACT_EVERY_TURNS", 0),
        ("RECENT_TURNS", -1),
        ("UPDATE_EVERY_TURNS", 0),
        ("NOTES_MAX_CHARS", 0),
        ("LEASE_SECONDS", 0),
        ("MAX_FACTS", -1),
        ("MAX_FACT_CHARS", -5),
        ("INJECTION_BUDGET_CHARS", -1),
        ("CHAT_HISTORY_RATIO", 0),
        ("CHAT_HISTORY_RATIO", 2),
        ("CONTEXT_WINDOW", 0),
        ("MODEL", 3),
        ("EXTRACTION_ENABLED", "yes"),
        ("MAX_FACTS", True),
        ("WORKING_MEMORY", "WINDOW"),
        ("REVIEW_POLICY", "always"),
    ],
)
def test_a_value_out_of_range_is_refused_at_start(settings: Settings, name: str, value: object) -> None:
    setattr(settings, f"MEMORYGW_{name}", value)
    [problem] = problems()
    assert problem.startswith(f"memorygw.E002: MEMORYGW_{name} must be")


@pytest.mark.parametrize("name", ["MAX_FACTS", "MAX_FACT_CHARS", "INJECTION_BUDGET_CHARS"])
def test_zero_means_no_limit_where_it_says_so(settings: Settings, name: str) -> None:
    setattr(settings, f"MEMORYGW_{name}", 0)
    assert problems() == []


def test_a_path_that_leads_nowhere_is_refused(settings: Settings) -> None:
    settings.MEMORYGW_THREAD_STORE = "threads.store.NoSuchStore"
    [problem] = problems()
    assert problem.startswith("memorygw.E003: MEMORYGW_THREAD_STORE:")


def test_a_wrong_entry_for_a_model_is_refused(settings: Settings) -> None:
    settings.MEMORYGW_MODELS = {"m": {"context_windows": 1000}, "n": {"output_reserve": 0}, "o": 5}
    assert len([problem for problem in problems() if problem.startswith("memorygw.E004")]) == 3


@pytest.mark.rows("U84", "U114", "U115", "U116", "W24", "W25", "T83")
def test_the_defaults_are_the_documented_ones() -> None:
    defaults = conf_module.Conf
    assert (defaults.EXTRACT_EVERY_TURNS, defaults.EXTRACTION_ENABLED) == (10, True)
    assert (defaults.MAX_FACTS, defaults.MAX_FACT_CHARS) == (100, 200)
    assert (defaults.RECENT_TURNS, defaults.UPDATE_EVERY_TURNS, defaults.CHAT_HISTORY_RATIO) == (10, 6, 0.7)
    assert defaults.LEASE_SECONDS == 300


@pytest.mark.rows("U20", "W7", "T12")
def test_a_setting_is_read_when_it_is_used(settings: Settings) -> None:
    assert conf.MAX_FACTS == 100
    settings.MEMORYGW_MAX_FACTS = 7
    assert conf.MAX_FACTS == 7


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("HTTPS", "true", True),
        ("HTTPS", "0", False),
        ("MAX_FACTS", "12", 12),
        ("CHAT_HISTORY_RATIO", "0.5", 0.5),
        ("MODELS", '{"m": {"context_window": 8000}}', {"m": {"context_window": 8000}}),
        ("WORKING_MEMORY", "SLIDING_WINDOW", "SLIDING_WINDOW"),
    ],
)
def test_an_environment_variable_is_read_by_its_settings_type(name: str, text: str, value: object) -> None:
    assert conf_module.parse(name, text) == value


@pytest.mark.parametrize(("name", "text"), [("HTTPS", "maybe"), ("MAX_FACTS", "many"), ("MODELS", "{")])
def test_an_unreadable_environment_variable_is_an_error(name: str, text: str) -> None:
    with pytest.raises(ValueError, match=r"\S"):
        conf_module.parse(name, text)


def test_a_gateway_without_a_model_is_warned_about(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    settings.MEMORYGW_LLM_BASE_URL = ""
    [problem] = problems()
    assert problem.startswith("memorygw.W002")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    assert problems() == []
