"""Tools that a model may call: the memory tools, and a host's own.

A tool acts for the caller of the request, whatever ids a model puts into its arguments (K11). What goes wrong in a tool
is told to the model as the tool's result (U57).
"""

import json
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import jsonschema
import regex
from django.db import transaction
from django.utils.module_loading import import_string

from memorygw.conf import component, conf
from memorygw.exceptions import MemorygwError, ToolNotFoundError
from memorygw.models import Persona, Tenant
from memorygw.text import NOBODY, clean, cleaned, one_line
from usermemory.extraction import Operation
from usermemory.models import Owner
from usermemory.review import MEMORY_SAVE, is_reviewed
from usermemory.rows import Source

logger = logging.getLogger(__name__)

NAME = regex.compile(r"[a-zA-Z0-9_-]{1,64}")
"""What providers accept as the name of a function."""

SETS = {
    "gateway": ("remember_user_fact", "forget_user_fact"),
    "persona": ("memory_save", "memory_recall"),
    "recall": ("recall_user_facts",),
    "none": (),
}
"""What ``MEMORYGW_MEMORY_TOOLS`` and a persona's ``memory_tools`` may name, beside tools one by one (C30)."""

MAX_SAVES, MAX_SAVES_A_DAY, MAX_FORGETS, SAVED_CONFIDENCE = 3, 20, 2, 0.9
SAVED = {"applied": "Saved.", "unchanged": "Saved.", "proposed": "Saved for review."}
FORGOTTEN = {"applied": "Forgotten.", "proposed": "A person will decide on that."}
NOT_REMEMBERED = "Nothing was removed: nothing is remembered under this key."


@dataclass(frozen=True)
class ToolCaller:
    """For whom a tool acts, in which thread, with which persona. ``counts``: what was done in this run so far;
    ``is_approved``: a person or a program asked for this call itself."""

    tenant_id: UUID
    user_id: str
    thread_id: UUID | None = None
    persona_id: UUID | None = None
    is_approved: bool = False
    counts: Counter[str] = field(default_factory=Counter, compare=False)


@dataclass(frozen=True, kw_only=True)
class Tool:
    """A function that a model may call.

    ``call`` gets the caller and arguments that fit ``parameters``, a JSON schema of an object; it returns text for the
    model, or anything JSON can hold. With ``needs_approval`` it runs only after a person has said yes. An ``atomic``
    tool runs in the transaction that stores its result, so that there are both or neither: for tools that write to the
    database and wait for nothing else. A model that is offered one with ``replaces_injection`` asks for what is known
    about the user, and is not told unasked (C9).
    """

    name: str
    description: str
    parameters: dict[str, Any]
    call: Callable[[ToolCaller, dict[str, Any]], Any]
    needs_approval: bool = False
    atomic: bool = False
    replaces_injection: bool = False

    @property
    def schema(self) -> dict[str, Any]:
        """The tool as OpenAI's API wants it."""
        function = {"name": self.name, "description": self.description, "parameters": self.parameters}
        return {"type": "function", "function": function}


@dataclass(frozen=True)
class Toolbox:
    """What one run offers: tools that run here by name, and the caller's own as schemas, which run at the caller's."""

    here: dict[str, Tool] = field(default_factory=dict)
    client: Sequence[dict[str, Any]] = ()

    @property
    def schemas(self) -> list[dict[str, Any]]:
        return [*(tool.schema for tool in self.here.values()), *self.client]

    @property
    def replaces_injection(self) -> bool:
        return any(tool.replaces_injection for tool in self.here.values())

    def waits_for(self, name: str) -> str:
        """What a call of this tool has to wait for: "approval", "client", or nothing."""
        if name in self.here:
            return "approval" if self.here[name].needs_approval else ""
        return "client" if any(schema["function"]["name"] == name for schema in self.client) else ""

    def is_atomic(self, name: str) -> bool:
        return name in self.here and self.here[name].atomic

    def run(self, call: dict[str, Any], caller: ToolCaller) -> str:
        """The text to hand back to the model; whatever goes wrong is such a text too."""
        tool = self.here.get(call["function"]["name"])
        if tool is None:
            return "Error: there is no tool of this name."
        try:
            arguments = cleaned(json.loads(call["function"]["arguments"] or "{}"))
        except (ValueError, RecursionError):
            return "Error: the arguments are not valid JSON."
        return run_tool(tool, caller, arguments)


def schemas_problem(schemas: Sequence[Any]) -> str:
    """Why a provider would refuse these tools of a caller's, or an empty string."""
    if not all(isinstance(schema, dict) and schema.get("type") == "function" for schema in schemas):
        return "Every tool needs type: function."
    functions = [schema.get("function") for schema in schemas]
    if not all(isinstance(function, dict) for function in functions):
        return "Every tool needs a function."
    for field_name, kind in {"parameters": dict, "description": str}.items():
        if not all(isinstance(function.get(field_name, kind()), kind) for function in functions):
            return f"The {field_name} of a function has the wrong type."
    names = [function.get("name") for function in functions]
    if not all(isinstance(name, str) and NAME.fullmatch(name) for name in names):
        return "Every function needs a name of 1 to 64 letters, digits, _ and -."
    return "Every function needs a name of its own." if len(set(names)) < len(names) else ""


def named_tools(choice: str) -> Sequence[str]:
    """The names, without prefix, behind a set's name or a comma-separated list."""
    return SETS[choice] if choice in SETS else [name.strip() for name in choice.split(",") if name.strip()]


def unknown_memory_tools(choice: str) -> list[str]:
    """The names in a choice of memory tools that are none's."""
    known = all_memory_tools()
    return [name for name in named_tools(choice) if conf.TOOL_PREFIX + name not in known]


def spent(results: Iterable[Any]) -> Counter[str]:
    """What the tools of a run have used up, by their results: it holds over pauses and when the run is tried again."""
    kinds = dict.fromkeys(SAVED.values(), "save") | dict.fromkeys(FORGOTTEN.values(), "forget")
    return Counter(kinds[result] for result in results if isinstance(result, str) and result in kinds)


def is_tool_name(name: str) -> bool:
    """Whether a memory tool or a host's has this name, beside the one that recalls everything."""
    tools = (*all_memory_tools().values(), *host_tools())
    return any(tool.name == name for tool in tools if not tool.replaces_injection)


def host_tools() -> list[Tool]:
    return [import_string(path) for path in conf.TOOLS]


def memory_tools(persona: Persona | None = None) -> list[Tool]:
    """The memory tools that a persona chooses, else the setting."""
    known = all_memory_tools()
    choice = (persona and persona.memory_tools) or conf.MEMORY_TOOLS
    tools = [known[name] for name in (conf.TOOL_PREFIX + name for name in named_tools(choice)) if name in known]
    if persona is None:
        return tools
    return [_renamed(tool, persona) if tool.replaces_injection else tool for tool in tools]


def _renamed(tool: Tool, persona: Persona) -> Tool:
    return recall_tool(persona.recall_tool_name or tool.name, persona.recall_tool_description or tool.description)


def recall_tool(name: str, description: str = "") -> Tool:
    """The tool that tells a model everything that is known about the user of the conversation (A76–A87)."""
    return Tool(
        name=name,
        description=description
        or "What is known about the user from earlier conversations. Call it when that matters.",
        parameters={"type": "object", "properties": {}},
        call=_recall_all,
        replaces_injection=True,
    )


def all_memory_tools() -> dict[str, Tool]:
    """Every memory tool by its name, whatever is offered."""
    prefix = conf.TOOL_PREFIX
    tools = (
        Tool(
            name=f"{prefix}remember_user_fact",
            description="Remember something lasting that the user said about themself, for all later conversations. "
            "A key that is known already gets the new value.",
            parameters=_texts(
                key="What it is about, in a few words: a known key where there is one.",
                value="What to remember, short and complete on its own, in the user's language.",
            ),
            call=_remember,
            needs_approval=conf.REMEMBER_APPROVAL,
            atomic=True,
        ),
        Tool(
            name=f"{prefix}forget_user_fact",
            description="Forget one thing that is remembered about the user, when they ask for it.",
            parameters=_texts(key="The key under which it is remembered."),
            call=_forget,
            needs_approval=conf.FORGET_APPROVAL,
            atomic=True,
        ),
        Tool(
            name=f"{prefix}memory_save",
            description="Save something lasting about the user, in a few words. A known key gets the new value.",
            parameters=_save_parameters(),
            call=_save,
            needs_approval=conf.MEMORY_SAVE_APPROVAL,
            atomic=True,
        ),
        Tool(
            name=f"{prefix}memory_recall",
            description="Search what is remembered about the user.",
            parameters=_recall_parameters(),
            call=_recall,
        ),
        recall_tool(f"{prefix}recall_user_facts"),
    )
    return {tool.name: tool for tool in tools}


def call_memory_tool(name: str, caller: ToolCaller, arguments: dict[str, Any]) -> str:
    """Run a memory tool for a caller who runs their own model; being asked is the approval."""
    tool = all_memory_tools().get(name)
    if tool is None and Persona.objects.filter(tenant_id=caller.tenant_id, recall_tool_name=name or None).exists():
        tool = recall_tool(name)
    if tool is None:
        raise ToolNotFoundError
    return run_tool(tool, caller, arguments)


def run_tool(tool: Tool, caller: ToolCaller, arguments: Any) -> str:
    """The result as text; whatever goes wrong is told, and of an atomic tool nothing is left then."""
    try:
        problems = jsonschema.Draft202012Validator(tool.parameters).iter_errors(arguments)
        if worst := jsonschema.exceptions.best_match(problems):
            return f"Error: {worst.message}"
        with transaction.atomic() if tool.atomic else nullcontext():
            result = tool.call(caller, arguments)
        text = result if isinstance(result, str) else json.dumps(result, ensure_ascii=False, default=str)
    except MemorygwError as error:
        return f"Error: {error}"
    except Exception as error:
        # The edge to a host's code. Its message may hold what a person said, so only the type is logged.
        logger.error("The tool %s failed: %s", tool.name, type(error).__name__)
        return "Error: the tool failed."
    return clean(text.replace("\\u0000", ""))


def _remember(caller: ToolCaller, arguments: dict[str, Any]) -> str:
    """At once when a person has agreed; else as any other wish of a model."""
    key, value = arguments["key"], arguments["value"]
    if not (caller.is_approved or conf.REMEMBER_APPROVAL):
        return _suggest(caller, Owner.user(caller.user_id), Operation("SET", key, value), SAVED_CONFIDENCE)
    component("USER_MEMORY_STORE").upsert_fact(caller.tenant_id, caller.user_id, key, value, origin="tool")
    return "Remembered."


def _forget(caller: ToolCaller, arguments: dict[str, Any]) -> str:
    """At once when a person has agreed. Else only a few: many deletions at once wait for one, as those of learning."""
    store, key = component("USER_MEMORY_STORE"), arguments["key"]
    if caller.is_approved or conf.FORGET_APPROVAL:
        removed = store.remove_fact(caller.tenant_id, caller.user_id, key)
        return FORGOTTEN["applied"] if removed else NOT_REMEMBERED
    caller.counts["forget"] += 1
    owner, operation = Owner.user(caller.user_id), Operation("DELETE", key)
    source = Source("tool", thread_id=caller.thread_id)
    review = caller.counts["forget"] > MAX_FORGETS
    outcome = store.suggest(caller.tenant_id, owner, operation, source, review=review)
    return FORGOTTEN.get(outcome, NOT_REMEMBERED)


def _save(caller: ToolCaller, arguments: dict[str, Any]) -> str:
    """Active at once, unless the policy has every model's write reviewed (R70, C1)."""
    scope, owner = arguments.get("scope", "user"), Owner.user(caller.user_id)
    if scope == "persona_user" and caller.persona_id:
        owner = Owner.persona_user(caller.persona_id, caller.user_id)
    elif scope != "user":
        return "Not saved: scope_forbidden."
    operation = Operation("SET", arguments["key"], arguments["value"])
    return _suggest(caller, owner, operation, arguments.get("confidence", SAVED_CONFIDENCE))


def _suggest(caller: ToolCaller, owner: Owner, operation: Operation, confidence: float) -> str:
    """What became of a model's wish to save, for the model; so many in a call and in a day (S48)."""
    store = component("USER_MEMORY_STORE")
    saved = store.count_tool_writes(caller.tenant_id, caller.user_id)
    if caller.counts["save"] >= MAX_SAVES or saved >= MAX_SAVES_A_DAY:
        return "Not saved: budget_exceeded."
    tenant = Tenant.objects.get(pk=caller.tenant_id)
    persona = Persona.objects.filter(tenant=tenant, pk=caller.persona_id).first() if caller.persona_id else None
    if owner.scope == "persona_user" and persona is None:
        return "Not saved: scope_forbidden."
    source = Source("tool", confidence, caller.thread_id)
    review = is_reviewed(MEMORY_SAVE, persona, tenant)
    outcome = store.suggest(caller.tenant_id, owner, operation, source, review=review)
    if outcome in SAVED:
        caller.counts["save"] += outcome != "unchanged"
        return SAVED[outcome]
    return f"Not saved: {outcome}."


def _recall(caller: ToolCaller, arguments: dict[str, Any]) -> Any:
    query, limit = arguments["query"], int(arguments.get("limit", 10))
    store = component("USER_MEMORY_STORE")
    hits = store.recall(caller.tenant_id, caller.user_id, query, persona_id=caller.persona_id)
    found = [hit.fact for hit in hits[:limit]]
    names = {"key": "shown_key", "value": "value", "confidence": "confidence", "scope": "scope"}
    shown = [{name: getattr(fact, attribute) for name, attribute in names.items()} for fact in found]
    return shown or "Nothing is remembered about that."


def _recall_all(caller: ToolCaller, arguments: dict[str, Any]) -> str:
    """One hyphen line for each fact in reach (A81–A83)."""
    if caller.user_id == NOBODY:
        return "It is not known who the user is, so nothing is remembered about them."
    store = component("USER_MEMORY_STORE")
    facts = store.get_facts_in_reach(caller.tenant_id, caller.user_id, caller.persona_id)
    return "\n".join(f"- {one_line(fact.text)}" for fact in facts) or "Nothing is remembered about the user yet."


def _save_parameters() -> dict[str, Any]:
    schema = _texts(
        key="What it is about, in a few words: a known key where there is one.",
        value="What to save, short and complete on its own, in the user's language.",
    )
    schema["properties"] |= {
        "confidence": {"type": "number", "minimum": 0, "maximum": 1, "description": "How sure it is; 0.9 if unsaid."},
        "scope": {
            "type": "string",
            "enum": ["user", "persona_user", "persona"],
            "description": "user: for all conversations (the default). persona_user: only for those with you.",
        },
    }
    return schema


def _recall_parameters() -> dict[str, Any]:
    schema = _texts(query="What to look for, in words or as a question.")
    schema["properties"]["limit"] = {"type": "integer", "minimum": 1, "maximum": 50, "description": "10 if unsaid."}
    return schema


def _texts(**descriptions: str) -> dict[str, Any]:
    """A JSON schema: an object of these texts, all of them required; what else a model adds is ignored (K11)."""
    properties = {name: {"type": "string", "description": text} for name, text in descriptions.items()}
    return {"type": "object", "properties": properties, "required": list(properties)}
