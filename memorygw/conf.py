"""Typed settings: the only reader of ``MEMORYGW_*``.

Every name is read from Django's settings when it is used, never at import, so ``override_settings`` needs no help.
The annotation says what a value may be; `memorygw.checks` refuses anything else at start (rows U117, W15).
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from threading import RLock
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from django.conf import settings
from django.core.signals import setting_changed
from django.utils.module_loading import import_string


@dataclass(frozen=True)
class Range:
    """Bounds of a number; ``zero`` allows 0 as "no limit" below the lower bound."""

    low: float
    high: float = float("inf")
    zero: bool = False

    def holds(self, value: float) -> bool:
        return (self.zero and value == 0) or self.low <= value <= self.high

    def __str__(self) -> str:
        upper = "" if self.high == float("inf") else f" and at most {self.high:g}"
        return f"at least {self.low:g}{upper}{', or 0 for no limit' if self.zero else ''}"


_SECONDS = {"sec": 1, "min": 60, "hour": 3_600, "day": 86_400}


@dataclass(frozen=True)
class Rate:
    """So many per so long, as in "120/min"; empty: no limit."""

    def holds(self, value: str) -> bool:
        try:
            return rate_of(value)[0] >= 0
        except (ValueError, KeyError):
            return False

    def __str__(self) -> str:
        return "a number per sec, min, hour or day as in 120/min, or empty for no limit"


def rate_of(text: str) -> tuple[int, int]:
    """The number and the seconds of a rate; 0: no limit."""
    number, _, period = (text or "0/min").partition("/")
    return int(number), _SECONDS[period]


Positive = Annotated[int, Range(1)]
Limit = Annotated[int, Range(1, zero=True)]
Path = Annotated[str, "dotted path"]
Triggers = Literal["turns", "scanner", "turns,scanner"]
Evidence = Literal["optional", "required"]
LogFormat = Literal["plain", "json"]
Strategy = Literal["SUMMARY_BUFFER", "SLIDING_WINDOW"]
ReviewPolicy = Literal["never", "scanner", "always_extracted", "all_model_writes"]


class Conf:
    """One attribute per setting, with its default. ``conf.MODEL`` reads ``settings.MEMORYGW_MODEL``."""

    # What a host may replace.
    LLM_CLIENT: Path = "memorygw.llm.openai.OpenAIClient"
    LLM_OPTIONS: dict[str, Any] = {}
    EMBEDDER: Path = "memorygw.embeddings.openai.OpenAIEmbedder"
    TOKENIZER: Path = "memorygw.tokens.TiktokenTokenizer"
    THREAD_STORE: Path = "threads.store.ThreadStore"
    USER_MEMORY_STORE: Path = "usermemory.store.UserMemoryStore"
    WORKING_MEMORY_STORE: Path = "workingmemory.memory.WorkingMemory"
    USAGE_GUARD: Path = "memorygw.llm.calls.AllowAll"
    IDENTITY: Path = "memorygw.api.auth.session_identity"

    # The model.
    LLM_BASE_URL: str = ""
    LLM_API_KEY: str = ""
    LLM_TIMEOUT_SECONDS: Annotated[float, Range(0.01)] = 60.0
    LLM_RETRIES: Annotated[int, Range(0)] = 2
    BREAKER_FAILURES: Limit = 5
    BREAKER_SECONDS: Positive = 30
    MODEL: str = "gpt-5.4-mini"
    CHEAP_MODEL: str = "gpt-5.4-nano"
    MEMORY_MODEL: str = ""
    MODELS: dict[str, dict[str, Any]] = {}
    CONTEXT_WINDOW: Positive = 128_000
    OUTPUT_RESERVE: Positive = 4_096

    # The embedder.
    EMBEDDING_MODEL: str = ""
    EMBEDDING_BASE_URL: str = ""
    EMBEDDING_API_KEY: str = ""
    EMBEDDING_TIMEOUT_SECONDS: Annotated[float, Range(0.01)] = 10.0

    # User memory.
    EXTRACTION_ENABLED: bool = True
    INJECTION_ENABLED: bool = True
    EXTRACTION_TRIGGERS: Triggers = "turns"
    EXTRACT_EVERY_TURNS: Positive = 10
    ACTIVE_CONFIDENCE: Annotated[float, Range(0, 1)] = 0.5
    EVIDENCE: Evidence = "optional"
    PROTECT_MANUAL: bool = False
    USER_CAN_APPROVE: bool = True
    SCAN_MIN_TURNS: Positive = 6
    SCAN_IDLE_SECONDS: Annotated[int, Range(0)] = 120
    SCAN_EVERY_SECONDS: Positive = 300
    REVIEW_POLICY: ReviewPolicy = "scanner"
    MAX_FACTS: Limit = 100
    MAX_FACT_CHARS: Limit = 200
    INJECTION_BUDGET_CHARS: Limit = 6_000
    VOICE_IDLE_SECONDS: Positive = 900

    # Tools.
    MEMORY_TOOLS: str = "gateway"
    TOOL_PREFIX: str = ""
    TOOLS: list[str] = []
    MAX_TOOL_STEPS: Positive = 8
    REMEMBER_APPROVAL: bool = True
    FORGET_APPROVAL: bool = True
    MEMORY_SAVE_APPROVAL: bool = False

    # Titles.
    TITLES_ENABLED: bool = True

    # Working memory.
    WORKING_MEMORY_ENABLED: bool = True
    WORKING_MEMORY: Strategy = "SUMMARY_BUFFER"
    RECENT_TURNS: Positive = 10
    UPDATE_EVERY_TURNS: Positive = 6
    NOTES_MAX_CHARS: Positive = 4_000
    CHAT_HISTORY_RATIO: Annotated[float, Range(0.01, 1)] = 0.7

    # A person's rights.
    PEPPER: str = ""
    ERASURE_LEDGER: str = ""
    ERASERS: list[str] = []
    BACKUP_DAYS: Limit = 30
    RETENTION_DAYS: dict[str, Any] = {}
    FORGET_ON_USER_DELETE: bool = False

    # Running it.
    LEASE_SECONDS: Positive = 300
    SWEEP_EVERY_SECONDS: Positive = 30
    THROTTLE_KEY: Annotated[str, Rate()] = "1200/min"
    THROTTLE_USER: Annotated[str, Rate()] = "120/min"

    # Read by the standalone settings module only.
    BROKER_URL: str = ""
    DB_POOL_SIZE: Positive = 10
    HTTPS: bool = False
    LOG_FORMAT: LogFormat = "plain"

    def __getattribute__(self, name: str) -> Any:
        default = super().__getattribute__(name)
        return getattr(settings, f"MEMORYGW_{name}", default) if name.isupper() else default


conf = Conf()

MODEL_VARIABLES: tuple[str, ...] = (
    "MEMORYGW_LLM_CLIENT",
    "MEMORYGW_LLM_BASE_URL",
    "MEMORYGW_LLM_API_KEY",
    "OPENAI_API_KEY",
)
"""Environment variables of which any one says which model to use."""

Kind = Any  # what `kinds` gives: a type, or one of the annotations above


@cache
def kinds() -> Mapping[str, Kind]:
    """Setting name without prefix → its annotation."""
    return {name: hint for name, hint in get_type_hints(Conf, include_extras=True).items() if name.isupper()}


def plain_type(kind: Kind) -> type:
    """The bare Python type of an annotation: ``Annotated[int, …]`` → int, ``dict[str, Any]`` → dict."""
    origin: Any = get_origin(kind)
    if origin is Annotated:
        return plain_type(get_args(kind)[0])
    if origin is Literal:
        return str
    bare: type = origin or kind
    return bare


def parse(name: str, text: str) -> Any:
    """The value of setting ``name`` as an environment variable spells it. Raises ValueError when it cannot be read."""
    kind = plain_type(kinds()[name])
    if kind is bool:
        return _parse_bool(text)
    if kind in (dict, list):
        return json.loads(text)
    return kind(text)


def _parse_bool(text: str) -> bool:
    words = {"true": True, "1": True, "yes": True, "on": True, "false": False, "0": False, "no": False, "off": False}
    try:
        return words[text.strip().lower()]
    except KeyError:
        raise ValueError(f"{text!r} is neither true nor false") from None


_components: dict[str, Any] = {}
_making = RLock()


def component(name: str) -> Any:
    """The object behind a replaceable part, as in ``component("LLM_CLIENT")``; made anew when settings change."""
    if name not in _components:
        # Of two threads that both made one, nobody would close the one that is lost.
        with _making:
            if name not in _components:
                options: dict[str, Any] = conf.LLM_OPTIONS if name == "LLM_CLIENT" else {}
                _components[name] = import_string(getattr(conf, name))(**options)
    return _components[name]


def _forget_components(*, setting: str, **_: Any) -> None:
    if setting.startswith("MEMORYGW_"):
        for name in list(_components):
            close = getattr(_components.pop(name), "close", None)
            if close:
                close()


setting_changed.connect(_forget_components)
