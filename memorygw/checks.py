"""System checks: a misspelt or impossible setting is refused at start, with the fix in the hint (rows U117, W15)."""

import os
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from typing import Annotated, Any, Literal, cast, get_args, get_origin

import jsonschema
from django.conf import settings
from django.core import checks
from django.core.checks import CheckMessage, Error, register
from django.db import connections
from django.utils.module_loading import import_string

from memorygw import retention
from memorygw.claims import has_broker
from memorygw.conf import Conf, Kind, Path, Range, Rate, conf, kinds, plain_type
from memorygw.personal_data import personal_data, undeclared
from memorygw.receipts import pepper_problem
from memorygw.tools import NAME, Tool, all_memory_tools, unknown_memory_tools

PREFIX = "MEMORYGW_"

# Names of the contract whose parts are not built yet: setting one is no mistake, but does nothing.
PLANNED = frozenset({"SPECIAL_CATEGORIES"})


@register("memorygw")
def check_names(**_: Any) -> list[CheckMessage]:
    return [_unknown(name) for name in dir(settings) if name.startswith(PREFIX) and name[len(PREFIX) :] not in kinds()]


@register("memorygw")
def check_values(**_: Any) -> list[CheckMessage]:
    problems = ((name, _problem(kind, getattr(conf, name))) for name, kind in kinds().items())
    return [
        Error(f"{PREFIX}{name} {problem}.", hint=f"The default is {getattr(Conf, name)!r}.", id="memorygw.E002")
        for name, problem in problems
        if problem
    ]


@register("memorygw")
def check_models(**_: Any) -> list[CheckMessage]:
    return [
        Error(f"{PREFIX}MODELS[{model!r}] {problem}.", hint="See docs/reference/settings.md.", id="memorygw.E004")
        for model, options in _entries(conf.MODELS)
        for problem in _model_problems(options)
    ]


@register("memorygw")
def check_paths(**_: Any) -> list[CheckMessage]:
    errors: list[CheckMessage] = []
    for name, kind in kinds().items():
        if kind == Path:
            try:
                import_string(getattr(conf, name))
            except (ImportError, AttributeError) as error:
                errors.append(Error(f"{PREFIX}{name}: {error}", id="memorygw.E003"))
    return errors


@register("memorygw")
def check_tools(**_: Any) -> list[CheckMessage]:
    return [Error(problem, hint="See docs/how-to/tools.md.", id="memorygw.E005") for problem in _tool_problems()]


@register("memorygw")
def check_sqlite(**_: Any) -> list[CheckMessage]:
    """Writers in several threads need IMMEDIATE transactions, or the second one fails instead of waiting."""
    database = connections["default"].settings_dict
    if not database["ENGINE"].endswith("sqlite3") or database["OPTIONS"].get("transaction_mode") == "IMMEDIATE":
        return []
    hint = 'Set DATABASES["default"]["OPTIONS"] = {"transaction_mode": "IMMEDIATE", "timeout": 20}.'
    return [checks.Warning("SQLite transactions start without a write lock.", hint=hint, id="memorygw.W001")]


@register("memorygw")
def check_model(**_: Any) -> list[CheckMessage]:
    configured = conf.LLM_BASE_URL or conf.LLM_API_KEY or os.environ.get("OPENAI_API_KEY")
    if configured or Conf.LLM_CLIENT != conf.LLM_CLIENT:
        return []
    hint = "Set MEMORYGW_LLM_API_KEY (or OPENAI_API_KEY), or MEMORYGW_LLM_BASE_URL of a compatible server."
    return [checks.Warning("No model is configured: every ask will fail.", hint=hint, id="memorygw.W002")]


@register("memorygw", deploy=True)
def check_cache(**_: Any) -> list[CheckMessage]:
    """Where there are several processes, as a broker says, a cache of one process lets each of them count alone."""
    is_local = str(settings.CACHES["default"]["BACKEND"]).endswith(("LocMemCache", "DummyCache"))
    if not (is_local and has_broker() and (conf.THROTTLE_KEY or conf.THROTTLE_USER)):
        return []
    hint = 'Name a cache that processes share in CACHES["default"].'
    return [checks.Warning("MEMORYGW_THROTTLE_* hold for each process alone.", hint=hint, id="memorygw.W004")]


@register("memorygw")
def check_personal_data(**_: Any) -> list[CheckMessage]:
    """What is not declared would outlive a person (S2)."""
    hint = "Declare in personal.py of its app what it holds of a person: see memorygw.personal_data."
    return [Error(f"Nobody says what {place} holds.", hint=hint, id="memorygw.E006") for place in undeclared()]


@register("memorygw")
def check_erasure(**_: Any) -> list[CheckMessage]:
    errors: list[CheckMessage] = []
    if wrong := pepper_problem():
        hint = "A secret of your own: receipts of erasures name people by a hash that is made with it."
        errors.append(Error(f"{PREFIX}PEPPER {wrong}.", hint=hint, id="memorygw.E007"))
    if wrong := retention.problem(conf.RETENTION_DAYS):
        errors.append(
            Error(f"{PREFIX}RETENTION_DAYS {wrong}.", hint="See docs/reference/settings.md.", id="memorygw.E002")
        )
    for path in conf.ERASERS:
        try:
            name = import_string(path).name
        except (ImportError, AttributeError) as error:
            errors.append(Error(f"{PREFIX}ERASERS: {error}", id="memorygw.E003"))
            continue
        if name in {table.name for table in personal_data()}:
            hint = "Receipts count its rows under this name."
            errors.append(Error(f"{PREFIX}ERASERS: a table of ours is called {name!r}.", hint=hint, id="memorygw.E003"))
    return errors


@register("memorygw", deploy=True)
def check_ledger(**_: Any) -> list[CheckMessage]:
    if conf.ERASURE_LEDGER:
        return []
    hint = "A folder that is not restored with the database, or a name of STORAGES."
    problem = "Without MEMORYGW_ERASURE_LEDGER a restored backup brings erased people back."
    return [checks.Warning(problem, hint=hint, id="memorygw.W005")]


def _unknown(name: str) -> CheckMessage:
    if name.removeprefix(PREFIX) in PLANNED:
        return checks.Warning(f"{name} has no effect yet.", hint="Its part is planned.", id="memorygw.W003")
    near = get_close_matches(name, [PREFIX + known for known in kinds()], n=1)
    hint = f"Did you mean {near[0]}?" if near else "See docs/reference/settings.md for the names."
    return Error(f"Unknown setting {name}.", hint=hint, id="memorygw.E001")


def _problem(kind: Kind, value: Any) -> str:
    """What is wrong with a value, or an empty string."""
    base, origin = plain_type(kind), cast("object", get_origin(kind))
    allowed = (int, float) if base is float else base
    if not isinstance(value, allowed) or (isinstance(value, bool) and base is not bool):
        return f"must be of type {base.__name__}"
    if origin is Literal and value not in get_args(kind):
        return f"must be one of {', '.join(get_args(kind))}"
    if origin is Annotated:
        bounds: Any = get_args(kind)[1]
        if isinstance(bounds, Range | Rate) and not bounds.holds(cast("Any", value)):
            return f"must be {bounds}"
    return ""


def _entries(models: object) -> Iterable[tuple[str, object]]:
    return models.items() if isinstance(models, dict) else ()


def _tool_problems() -> Iterator[str]:
    if any(_problem(kinds()[name], getattr(conf, name)) for name in ("MEMORY_TOOLS", "TOOL_PREFIX", "TOOLS")):
        # Of the wrong type, which another check says.
        return
    if unknown := unknown_memory_tools(conf.MEMORY_TOOLS):
        yield f"{PREFIX}MEMORY_TOOLS names no set and no memory tool: {', '.join(unknown)}."
    names = list(all_memory_tools())
    for path in conf.TOOLS:
        try:
            tool = import_string(path)
        except (ImportError, AttributeError) as error:
            yield f"{PREFIX}TOOLS: {error}"
            continue
        if not isinstance(tool, Tool):
            yield f"{PREFIX}TOOLS: {path} is no memorygw.tools.Tool."
            continue
        names.append(tool.name)
        try:
            jsonschema.Draft202012Validator.check_schema(tool.parameters)
        except jsonschema.SchemaError as error:
            yield f"The parameters of the tool {tool.name!r} are no JSON schema: {error.message}."
    yield from (f"No provider takes {name!r} as the name of a tool." for name in names if not NAME.fullmatch(name))
    yield from (f"Two tools are called {name!r}." for name in sorted(set(names)) if names.count(name) > 1)


_MODEL_ENTRIES: dict[object, type] = {
    "context_window": int,
    "output_reserve": int,
    "encoding": str,
    "developer_role": bool,
}


def _model_problems(options: object) -> Iterator[str]:
    if not isinstance(options, dict):
        yield "must be an object"
        return
    for name, value in options.items():
        expected = _MODEL_ENTRIES.get(name)
        if expected is None:
            yield f"has an unknown entry {name!r}"
        elif not isinstance(value, expected) or (isinstance(value, int) and expected is int and value < 1):
            yield f"has a wrong value for {name!r}"
