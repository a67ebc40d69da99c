"""What a request is made of, read from the stores in a fixed number of queries whatever the history's length."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from memorygw.conf import component, conf
from memorygw.context import (
    Context,
    FactsBlock,
    ModelLimits,
    Parts,
    assemble,
    facts_block,
    history_budget,
    system_prompt,
)
from memorygw.exceptions import InvalidError, PersonaNotFoundError
from memorygw.models import Persona
from memorygw.text import NOBODY, is_storable
from memorygw.tokens import count_tokens
from memorygw.tools import Tool, Toolbox, host_tools, memory_tools
from threads.turns import ThreadLike, TurnDraft, text_of, turn_tokens
from workingmemory.memory import Window


@dataclass(frozen=True, kw_only=True)
class ContextQuery:
    """What a context is read for: the user, the model, the tools that it is offered, and the user turn about to be
    stored, if there is one. ``instructions`` are the caller's, behind those of persona and thread; without
    ``remembers`` neither facts nor notes are told. Where not all facts fit, those that fit ``about`` best are taken,
    else that turn. ``budget_tokens`` replaces the history budget after everything has come off it."""

    tenant_id: UUID
    user_id: str
    persona: Persona | None
    model: str
    tools: Toolbox = field(default_factory=Toolbox)
    upcoming: TurnDraft | None = None
    instructions: str = ""
    remembers: bool = True
    about: str = ""
    budget_tokens: int | None = None


def find_persona(tenant_id: UUID, name_or_id: str | Persona) -> Persona:
    """The tenant's persona; one that is given is taken as it is, whatever its row says by now."""
    if isinstance(name_or_id, Persona):
        return name_or_id
    if not is_storable(name_or_id):
        raise PersonaNotFoundError
    personas = Persona.objects.filter(tenant_id=tenant_id)
    persona = personas.filter(name=name_or_id).first()
    if persona is None:
        try:
            persona = personas.filter(pk=UUID(name_or_id)).first()
        except ValueError:
            persona = None
    if persona is None:
        raise PersonaNotFoundError
    return persona


def model_of(persona: Persona | None, choice: str = "") -> str:
    """The model to ask: the caller's choice, the persona's, the setting's."""
    return choice or (persona.model if persona else "") or conf.MODEL


def offered_tools(
    persona: Persona | None,
    model: str,
    user_id: str,
    *,
    client: Sequence[dict[str, Any]] = (),
    own: Sequence[Tool] = (),
    remembers: bool = True,
    unattended: bool = False,
) -> Toolbox:
    """What a run offers the model: memory tools as the persona or the setting says, a host's, an agent's ``own``, and
    the ``client``'s, which run at the client's.

    A model whose room the memory tools would take a quarter of, or more, is not offered them; nor are those that write
    where there is no user. Where nobody attends a run, so ``unattended``, none is offered that a person would have to
    approve. `InvalidError` when the client's tools bear a name of ours; unattended, the client's go before ours.
    """
    memory = [tool for tool in memory_tools(persona) if user_id != NOBODY or tool.replaces_injection]
    memory = memory if remembers else []
    own = [tool for tool in own if remembers or not tool.replaces_injection]
    if 4 * _tokens([tool.schema for tool in memory], model) > ModelLimits.of(model).prompt_tokens:
        memory = []
    here = {tool.name: tool for tool in (*memory, *host_tools(), *own)}
    if unattended:
        names = {schema["function"]["name"] for schema in client}
        here = {name: tool for name, tool in here.items() if not tool.needs_approval and name not in names}
    if taken := [name for schema in client if (name := schema["function"]["name"]) in here]:
        raise InvalidError(fields={"tools": [f"The gateway has a tool of this name: {', '.join(taken)}."]})
    return Toolbox(here, client)


def read_context(thread: ThreadLike | None, query: ContextQuery) -> Context:
    """Facts, notes, window, and the thread's own instructions where it has some. No model call, no write."""
    persona, model = query.persona, query.model
    instructions = _instructions(persona, thread)
    block = _facts_block(query, thread) if injects(query) else facts_block(())
    prompt = system_prompt(model, instructions, block.text, client=query.instructions)
    tool_tokens = _tokens(query.tools.schemas, model)
    budget = query.budget_tokens
    if budget is None:
        budget = history_budget(model, prompt, thread, tool_tokens)
    return assemble(
        Parts(
            model=model,
            instructions=instructions,
            client_instructions=query.instructions,
            block=block,
            prompt=prompt,
            window=_window(thread, query, budget),
            upcoming=query.upcoming,
            tool_tokens=tool_tokens,
        )
    )


def injects(query: ContextQuery) -> bool:
    """Nothing is told of a person that nobody named, nor what the model can ask a tool for (A12, A84, C6, C9)."""
    wanted = conf.INJECTION_ENABLED and (query.persona is None or query.persona.memory_injection_enabled)
    return wanted and query.remembers and query.user_id != NOBODY and not query.tools.replaces_injection


def _facts_block(query: ContextQuery, thread: ThreadLike | None) -> FactsBlock:
    """Every fact in reach while they fit; else those that fit the question best (R93–R98, C8)."""
    persona_id = query.persona.pk if query.persona else None
    store = component("USER_MEMORY_STORE")
    facts = store.get_facts_in_reach(query.tenant_id, query.user_id, persona_id)
    block = facts_block(facts)
    budget = _chars_for(block.text, query.model)
    if not block.left_out and budget is None:
        return block
    question = _question(query, thread)
    hits = store.recall(query.tenant_id, query.user_id, question, persona_id=persona_id, only_matches=False)
    return facts_block(facts, best_first=[hit.fact for hit in hits], budget_chars=budget)


def _chars_for(text: str, model: str) -> int | None:
    """How much of a block a model with little room takes, so that facts never make a question too large; None: all.

    A quarter of what it takes, as for tools.
    """
    room = ModelLimits.of(model).prompt_tokens // 4
    # A token is at least a byte.
    if len(text.encode()) <= room or (tokens := count_tokens(text, model)) <= room:
        return None
    return max(len(text) * room // tokens, 1)


def _question(query: ContextQuery, thread: ThreadLike | None) -> str:
    """What the facts are wanted for: what the caller says, the turn about to be stored, else the thread's latest."""
    if query.about or query.upcoming:
        return query.about or text_of(query.upcoming.content if query.upcoming else None)
    turn = component("THREAD_STORE").get_question(thread) if thread else None
    return text_of(turn.content) if turn else ""


def _window(thread: ThreadLike | None, query: ContextQuery, budget_tokens: int) -> Window:
    exact = query.budget_tokens is not None
    if thread is None:
        return Window((), budget_tokens, exact=exact)
    memory = component("WORKING_MEMORY_STORE")
    strategy = memory.strategy(query.persona.working_memory if query.persona else "") if query.remembers else None
    window: Window = memory.load(
        thread,
        strategy=strategy,
        budget_tokens=budget_tokens,
        upcoming_tokens=turn_tokens(query.upcoming, query.model) if query.upcoming else None,
        exact=exact,
    )
    return window


def _tokens(schemas: Sequence[dict[str, Any]], model: str) -> int:
    return count_tokens(json.dumps(schemas, ensure_ascii=False), model) if schemas else 0


def _instructions(persona: Persona | None, thread: ThreadLike | None) -> str:
    """The persona's, then the thread's latest system or developer turn: one system message for any provider (K21)."""
    turn = component("THREAD_STORE").get_instructions(thread) if thread else None
    parts = (persona.instructions if persona else "", text_of(turn.content) if turn else "")
    return "\n\n".join(part for part in parts if part)
