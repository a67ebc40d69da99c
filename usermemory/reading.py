"""What a model is asked when something is to be learned, and what it proposes then."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from memorygw.conf import conf
from memorygw.exceptions import ExtractionCallError, ExtractionReplyError, ModelFailedError, UsageRefusedError
from memorygw.llm.base import CompletionRequest
from memorygw.llm.calls import call_model
from memorygw.models import ModelCall, Persona
from memorygw.prompts import render_prompt
from memorygw.text import one_line
from usermemory.extraction import SCHEMA, Proposal, parse, parse_texts
from usermemory.models import Fact, FactQuerySet, Owner


@dataclass(frozen=True)
class Form:
    """A way to ask: which prompt, how its reply is read (None: it has not the expected structure), how long it is."""

    prompt: str
    parse: Callable[[str], Proposal | None]
    max_output_tokens: int
    schema: dict[str, Any] | None = None


FORMS = {
    Fact.Kind.KEYED: Form("user_memory", parse, 2_000, SCHEMA),
    Fact.Kind.TEXT: Form("user_memory_texts", parse_texts, 500),
}


@dataclass(frozen=True, kw_only=True)
class Reading:
    """A transcript that is read for facts of ``owner``. ``model`` and ``max_facts``: a caller's own, where no persona
    has them."""

    tenant_id: UUID
    owner: Owner
    transcript: str
    kind: str = Fact.Kind.KEYED
    persona: Persona | None = None
    model: str = ""
    max_facts: int | None = None
    thread_id: UUID | None = None


def memory_model(persona: Persona | None, choice: str = "") -> str:
    """The model that is asked what to remember (C14); empty: there is none."""
    own = (persona.memory_model, persona.cheap_model, persona.model) if persona else ("", "", "")
    models = (choice, own[0], conf.MEMORY_MODEL, own[1], conf.CHEAP_MODEL, own[2], conf.MODEL)
    return next((model for model in models if model), "")


def _known(reading: Reading) -> FactQuerySet:
    """What need not be learned again: of a user with a persona, what is known of the user anyway, too."""
    owner, facts = reading.owner, Fact.objects.active()
    if owner.scope == Fact.Scope.PERSONA_USER:
        return facts.in_reach(reading.tenant_id, owner.person, UUID(owner.owner_id)).active().in_order()
    return facts.of(reading.tenant_id, owner).in_order()


def read_for_facts(reading: Reading) -> Proposal:
    """Ask the model; nothing is proposed where there is nothing to read, or no model to read it (A15).

    Raises `ExtractionError` and `UsageRefusedError`. Never call it inside a transaction.
    """
    model, form = memory_model(reading.persona, reading.model), FORMS[Fact.Kind(reading.kind)]
    if not reading.transcript or not model:
        return Proposal([], [])
    known = "\n".join(one_line(fact.text) for fact in _known(reading))
    request = CompletionRequest(
        kind=ModelCall.Kind.MEMORY_USER,
        model=model,
        messages=[
            {"role": "user", "content": render_prompt(form.prompt, facts=known, transcript=reading.transcript)},
        ],
        temperature=0,
        max_output_tokens=form.max_output_tokens,
        json_schema=form.schema,
    )
    try:
        completion = call_model(request, tenant_id=reading.tenant_id, thread_id=reading.thread_id)
    except UsageRefusedError:
        raise
    except ModelFailedError as error:
        raise ExtractionCallError(error.reason) from None
    if completion.finish_reason == "length":
        raise ExtractionReplyError("reply_cut")
    proposal = form.parse(completion.content or "")
    if proposal is None:
        raise ExtractionReplyError("reply_malformed")
    return proposal
