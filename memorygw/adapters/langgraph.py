"""A store for LangGraph over what is known about users; needs the extra ``langgraph``.

Items are facts: an agent finds what other programs and conversations have taught, and what it puts is in every prompt
that memorygw makes.
"""

import json
import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from django.db import close_old_connections
from langgraph.store.base import (
    BaseStore,
    GetOp,
    InvalidNamespaceError,
    Item,
    ListNamespacesOp,
    MatchCondition,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
)

from memorygw import gateway
from memorygw.agents.aio import run_sync
from memorygw.gateway import TenantLike
from memorygw.text import is_storable, normalize_key

JOINT = " / "
"""What stands in a fact's key between the namespace and the item's key."""

NAMED_FIELDS = ("content", "data", "fact", "memory", "text", "value")
"""A value with one of these fields alone is kept as text; names of other fields could be somebody's own words."""

COMPARISONS = {
    "$eq": operator.eq,
    "$ne": operator.ne,
    "$gt": operator.gt,
    "$gte": operator.ge,
    "$lt": operator.lt,
    "$lte": operator.le,
}

Namespace = tuple[str, ...]


class MemorygwStore(BaseStore):
    """The facts of a tenant's users as LangGraph's long-term memory.

    The part ``user_part`` of every namespace is the user's id, by default the last: ("memories", "ada"). Facts that
    LangGraph did not put are in the namespace with ``home`` as its other parts. An item of that namespace has its key
    as the fact's key; one of ("travel", "eu", "ada") gets "travel.eu / key". Keys are told apart as those of facts
    are: case and blanks make no difference.

    A value that is text in ``text_field`` alone, as those of facts from elsewhere are, is the fact's text; text in
    another of `NAMED_FIELDS` is "field: text"; every other value is compact JSON. Each comes back as it was put.

    The caps of facts hold: `FactTooLongError` above ``MEMORYGW_MAX_FACT_CHARS``, and above ``MEMORYGW_MAX_FACTS`` the
    ones changed longest ago go. `FactRefusedError` for passwords and payment data. No time to live; ``index`` changes
    nothing, every fact can be found.
    """

    def __init__(
        self,
        tenant: TenantLike = "default",
        *,
        user_part: int = -1,
        home: Namespace = ("memories",),
        text_field: str = "text",
    ) -> None:
        self.tenant, self.user_part, self.home, self.text_field = tenant, user_part, tuple(home), text_field
        if not self._has_room(self.home):
            raise ValueError(f"A namespace with the other parts {self.home} has no part {user_part} for the user.")

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Do one after the other, each in a transaction of its own; what came before an error stays.

        A namespace that names no user is an `InvalidNamespaceError`, never everybody's.
        """
        try:
            return [self._do(op) for op in ops]
        finally:
            # LangGraph runs the nodes of a graph in threads that end with the run.
            close_old_connections()

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        return await run_sync(self.batch, list(ops))

    def _do(self, op: Op) -> Result:
        if isinstance(op, GetOp):
            return self._get(op)
        if isinstance(op, PutOp):
            self._put(op)
            return None
        return self._search(op) if isinstance(op, SearchOp) else self._list_namespaces(op)

    def _get(self, op: GetOp) -> Item | None:
        user, others = self._parted(op.namespace)
        wanted = normalize_key(self._fact_key(others, op.key))
        facts = gateway.get_user_facts(self.tenant, user) if gateway.user_memory_enabled(self.tenant, user) else []
        return next((self._item(user, fact) for fact in facts if normalize_key(fact.shown_key) == wanted), None)

    def _put(self, op: PutOp) -> None:
        user, others = self._parted(op.namespace)
        key = self._fact_key(others, op.key)
        if op.value is None:
            gateway.remove_user_fact(self.tenant, user, key)
        elif op.ttl is not None:
            raise NotImplementedError("Facts have no time to live.")
        elif gateway.user_memory_enabled(self.tenant, user):
            gateway.upsert_user_fact(self.tenant, user, key, self._text(op.value))

    def _search(self, op: SearchOp) -> list[SearchItem]:
        """Best first; without a query the last changed first. Only of the user whom the prefix names."""
        user, _ = self._parted(op.namespace_prefix)
        if not gateway.user_memory_enabled(self.tenant, user):
            return []
        facts = gateway.get_user_facts(self.tenant, user)
        if op.query and op.query.strip():
            hits = gateway.search_memories(self.tenant, user, op.query, limit=len(facts))
            found = [self._item(user, hit.fact, score=hit.score) for hit in hits]
        else:
            found = [self._item(user, fact) for fact in facts]
            found.sort(key=operator.attrgetter("updated_at"), reverse=True)
        prefix, wanted = tuple(op.namespace_prefix), op.filter or {}
        fitting = [item for item in found if item.namespace[: len(prefix)] == prefix and _fits(item.value, wanted)]
        return fitting[op.offset : op.offset + op.limit]

    def _list_namespaces(self, op: ListNamespacesOp) -> list[Namespace]:
        conditions = op.match_conditions or ()
        user = self._named_user(conditions)
        namespaces = {self._item(user, fact).namespace for fact in gateway.get_user_facts(self.tenant, user)}
        matching = [name for name in namespaces if all(_matches(name, condition) for condition in conditions)]
        cut = sorted({name[: op.max_depth] for name in matching})
        return cut[op.offset : op.offset + op.limit]

    def _named_user(self, conditions: Iterable[MatchCondition]) -> str:
        """Whose namespaces are listed. Everybody's are not: a condition has to reach the user's part."""
        side = "suffix" if self.user_part < 0 else "prefix"
        for condition in conditions:
            path = condition.path
            if condition.match_type == side and -len(path) <= self.user_part < len(path):
                return path[self.user_part]
        raise InvalidNamespaceError(f"Listing needs a {side} with the part {self.user_part}, which is the user's id.")

    # --- namespaces and keys

    def _has_room(self, others: Namespace) -> bool:
        return -len(others) - 1 <= self.user_part <= len(others)

    def _parted(self, namespace: Namespace) -> tuple[str, Namespace]:
        """The user's id, and the other parts. Raises `InvalidNamespaceError`."""
        others = list(namespace)
        try:
            user = others.pop(self.user_part)
        except IndexError:
            raise InvalidNamespaceError(f"The part {self.user_part} of a namespace has to be the user's id.") from None
        if any(not part or part != part.strip() or {".", "/"} & set(part) for part in others):
            raise InvalidNamespaceError("Parts beside the user's are not blank and have no '.', '/' or outer blanks.")
        return user, tuple(others)

    def _fact_key(self, others: Namespace, key: str) -> str:
        plain = self._place(key) == (others, key)
        return key if plain else f"{'.'.join(others)}{JOINT}{key}".strip()

    def _place(self, fact_key: str) -> tuple[Namespace, str]:
        """The other parts of the namespace, and the item's key."""
        before, joint, key = f" {fact_key}".partition(JOINT)
        others = tuple(before.strip().split(".")) if before.strip() else ()
        return (others, key) if joint and self._has_room(others) else (self.home, fact_key)

    def _item(self, user: str, fact: Any, *, score: float | None = None) -> SearchItem:
        others, key = self._place(fact.shown_key)
        namespace = list(others)
        namespace.insert(self.user_part if self.user_part >= 0 else len(others) + 1 + self.user_part, user)
        # What a model wrote is text, whatever it looks like.
        value = self._value(fact.value) if fact.origin == "manual" else {self.text_field: fact.value}
        return SearchItem(tuple(namespace), key, value, fact.created_at, fact.updated_at, score)

    # --- values

    def _text(self, value: Mapping[str, Any]) -> str:
        """The first spelling that can be stored and comes back as it was put. TypeError, ValueError: it is no JSON."""
        value = json.loads(json.dumps(dict(value), allow_nan=False))
        spellings = [json.dumps(value, separators=(",", ":"), ensure_ascii=ascii_only) for ascii_only in (False, True)]
        if len(value) == 1:
            [(field, text)] = value.items()
            if isinstance(text, str) and field in (self.text_field, *NAMED_FIELDS):
                spellings.insert(0, text if field == self.text_field else f"{field}: {text}")
        stored = ((text, text.strip()) for text in spellings if is_storable(text))
        return next(text for text, kept in stored if kept and self._value(kept) == value)

    def _value(self, text: str) -> dict[str, Any]:
        if text.startswith("{"):
            try:
                return dict(json.loads(text))
            except (ValueError, RecursionError):
                return {self.text_field: text}
        field, joint, rest = text.partition(": ")
        return {field: rest} if joint and field in NAMED_FIELDS else {self.text_field: text}


def _fits(value: Any, wanted: Any) -> bool:
    """Whether a value is what a filter wants: equal, each field fitting, or as its operators say."""
    if not isinstance(wanted, Mapping):
        return bool(value == wanted)
    if any(name.startswith("$") for name in wanted):
        return all(_compares(value, name, operand) for name, operand in wanted.items())
    return isinstance(value, Mapping) and all(_fits(value.get(name), inner) for name, inner in wanted.items())


def _compares(value: Any, name: str, operand: Any) -> bool:
    """Raises ValueError for an unknown operator. What has no order is neither less nor more."""
    if name not in COMPARISONS:
        raise ValueError(f"Unknown operator {name}; there are {', '.join(COMPARISONS)}.")
    try:
        return bool(COMPARISONS[name](value, operand))
    except TypeError:
        return False


def _matches(namespace: Namespace, condition: MatchCondition) -> bool:
    """Whether it begins, or ends, with the path, in which "*" is any part."""
    path: Sequence[str] = condition.path
    if len(path) > len(namespace):
        return False
    parts = namespace[: len(path)] if condition.match_type == "prefix" else namespace[len(namespace) - len(path) :]
    return all(wanted in ("*", part) for part, wanted in zip(parts, path, strict=True))
