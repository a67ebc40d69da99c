"""What a model wants to change, whichever way it says so: taken, put into the queue, or refused. Decided here alone.

A person's own edits do not come here: they are taken as they are, unless nobody may keep such a thing (`refusal`).
"""

from dataclasses import replace
from uuid import UUID

from memorygw.conf import conf
from memorygw.text import cut, normalize_key, normalize_text, one_line
from usermemory.extraction import Operation
from usermemory.models import Fact, FactQuerySet, Owner, identity, is_shown_key
from usermemory.orders import speaks_to_assistant
from usermemory.refusals import tool_refusal
from usermemory.rows import Source, content, next_dropped, origin_of, propose, write

APPLIED, PROPOSED = "applied", "proposed"
_ORDERS = "instruction_like"


def fitted(operation: Operation) -> Operation:
    """The operation with a key and a value as they are stored: what is too long is cut (C20)."""
    limit = conf.MAX_FACT_CHARS
    return replace(operation, key=cut(one_line(operation.key), limit), value=cut(operation.value, limit))


def change(tenant_id: UUID, owner: Owner, said: Operation, source: Source, *, review: bool) -> str:
    """What became of an operation: `APPLIED`, `PROPOSED`, or the code of why it did nothing. Under the owner's lock.

    Whatever ``review`` says, what is doubtful waits for a person.
    """
    operation, deletes = fitted(said), said.op == "DELETE"
    same = Fact.objects.of(tenant_id, owner).filter(identity=identity(operation.key, operation.value))
    known = same.active().first()
    if code := _pointless(operation, known) or ("" if deletes else _known(tenant_id, owner, operation, same)):
        return code
    # Before it is cut, since a cut number is no number.
    refused, doubtful = ("", False) if deletes else _objection(said, source)
    if refused:
        return refused
    if review or doubtful or _is_doubtful(source) or _touches_manual(tenant_id, owner, known):
        shown = (known.key, known.value) if deletes and known else (operation.key, operation.value)
        kind = Fact.Operation.DELETE if deletes else Fact.Operation.SET
        return propose(tenant_id, owner, Fact(operation=kind, **content(*shown), **origin_of(source))) or PROPOSED
    if deletes:
        same.active().delete()
    else:
        write(tenant_id, owner, operation.key, operation.value, source)
    return APPLIED


def _pointless(operation: Operation, known: Fact | None) -> str:
    """The code of why there is nothing to do, as far as the operation and the fact in its place say so."""
    if operation.key and not normalize_key(operation.key):
        return "no_key"
    if is_shown_key(operation.key):
        return "reserved_key"
    if operation.op == "DELETE":
        return "" if known else "unknown_key"
    if not operation.value:
        return "no_value"
    return "unchanged" if known and _are_alike(known.value, operation.value) else ""


def _known(tenant_id: UUID, owner: Owner, operation: Operation, same: FactQuerySet) -> str:
    """The code for a value that is the user's own already, whoever they talk to, or that a person has rejected (C16,
    R57)."""
    rejected = same.filter(rejected=True, operation=Fact.Operation.SET).values_list("value", flat=True)
    if any(_are_alike(value, operation.value) for value in rejected):
        return "rejected_before"
    if owner.scope != Fact.Scope.PERSONA_USER:
        return ""
    own = Fact.objects.of(tenant_id, Owner.user(owner.person)).active()
    values = own.filter(identity=identity(operation.key, operation.value)).values_list("value", flat=True)
    return "unchanged" if any(_are_alike(value, operation.value) for value in values) else ""


def _objection(said: Operation, source: Source) -> tuple[str, bool]:
    """The code of why it is refused, and whether it waits for a person instead: a conversation may be about orders to
    an assistant, about links and code, while what a tool saves on its own has no reason to be."""
    code = tool_refusal(said.key, said.value)
    if code == _ORDERS and source.origin == Fact.Origin.AUTO:
        return "", any(map(speaks_to_assistant, (said.key, said.value)))
    return code, False


def _are_alike(one: str, other: str) -> bool:
    """Whether two values say the same in another spelling; it is no change of a model's to make."""
    return normalize_text(one) == normalize_text(other)


def _touches_manual(tenant_id: UUID, owner: Owner, known: Fact | None) -> bool:
    """Whether what was set by hand, and is protected, would change, or go because of the cap (C18)."""
    if not conf.PROTECT_MANUAL:
        return False
    lost = known or next_dropped(tenant_id, owner)
    return lost is not None and lost.origin == Fact.Origin.MANUAL


def _is_doubtful(source: Source) -> bool:
    """What was read out of a conversation without certainty, or without a quote where that is required."""
    unproven = source.seq is None and conf.EVIDENCE == "required"
    return source.origin == Fact.Origin.AUTO and (source.confidence < conf.ACTIVE_CONFIDENCE or unproven)
