"""What is known about a person as their page shows it. Whatever is stored, it keeps nothing else from being read."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from memorygw import gateway
from memorygw.gateway import MemorySource
from memorygw.pages.forms import FactForm
from memorygw.text import clean, cut
from threads.turns import content_text
from usermemory.review import content_hash

QUOTE_CHARS = 300
KEY_CHARS = 200
VALUE_CHARS = 1_000
NAME_CHARS = 60


@dataclass(frozen=True)
class ShownMemory:
    """A fact, or one that is proposed, with where it comes from."""

    memory: Any
    source: MemorySource

    @property
    def key(self) -> str:
        """Empty for a free text: the key that the API shows it under says nothing to a person."""
        return beginning(self.memory.key, KEY_CHARS)

    @property
    def value(self) -> str:
        return beginning(self.memory.value, VALUE_CHARS)

    @property
    def name(self) -> str:
        """What buttons call it."""
        return beginning(self.memory.key or self.memory.value, NAME_CHARS)

    @property
    def is_long(self) -> bool:
        return len(self.memory.value) > VALUE_CHARS

    @property
    def current(self) -> str:
        """What a proposal would change; empty: nothing."""
        return beginning(self.source.current_value or "", VALUE_CHARS)

    @property
    def is_own(self) -> bool:
        """Whether it is the person's to change: not what a single persona keeps about them."""
        return bool(self.memory.scope == "user")

    @property
    def is_by_hand(self) -> bool:
        return bool(self.memory.origin == "manual")

    @property
    def quote(self) -> str:
        """The beginning of the turn that was quoted for it."""
        content = self.source.turn.content if self.source.turn else None
        # Half a character is no text of a page; JSON may hold one, escaped.
        return beginning(clean(content_text(content)), QUOTE_CHARS) if content else ""

    @property
    def seen(self) -> str:
        """What a decision on it is bound to."""
        return content_hash(self.memory)

    @property
    def form(self) -> FactForm:
        return FactForm(self.memory)


@dataclass(frozen=True)
class ShownFact:
    """A fact that a past answer used, as it is now."""

    key: str
    value: str


@dataclass(frozen=True)
class ShownAnswer:
    run: Any
    facts: Sequence[ShownFact]
    gone: int
    unlisted: int

    @property
    def used(self) -> int:
        return len(self.facts) + self.gone + self.unlisted


def shown_memories(tenant_id: UUID, user_id: str, *pages: Sequence[Any]) -> list[list[ShownMemory]]:
    """Pages of memories with their sources, which are read for all of them together."""
    sources = gateway.get_sources_of(tenant_id, user_id, [memory for page in pages for memory in page])
    return [[ShownMemory(memory, sources[memory.pk]) for memory in page] for page in pages]


def shown_answers(tenant_id: UUID, user_id: str) -> list[ShownAnswer]:
    answers = gateway.list_answers(tenant_id, user_id)
    return [ShownAnswer(one.run, [_shown(fact) for fact in one.facts], one.gone, one.unlisted) for one in answers]


def _shown(fact: Any) -> ShownFact:
    return ShownFact(beginning(fact.key, NAME_CHARS), beginning(fact.value, QUOTE_CHARS))


def beginning(text: str, chars: int) -> str:
    """The text, or as much of a long one, which then ends in an ellipsis."""
    if len(text) <= chars:
        return text
    # One character may be endless: then it is cut through.
    return (cut(text[: chars + 100], chars) or text[:chars]) + " …"
