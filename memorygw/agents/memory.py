"""What is remembered about users, as short texts (A13–A87)."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from memorygw import gateway
from memorygw.agents.aio import run_sync
from memorygw.conf import conf
from memorygw.exceptions import (
    ErasureRunningError,
    ExtractionError,
    InvalidError,
    MemoryNotFoundError,
    UsageRefusedError,
)
from memorygw.gateway import TenantLike, UserLike
from memorygw.tools import Tool, recall_tool

logger = logging.getLogger(__name__)

Source = Literal["auto", "manual"]


@dataclass(frozen=True)
class UserFact:
    """One thing that is remembered. ``source``: "auto" when it was learned, "manual" when somebody added it."""

    id: UUID
    fact: str
    created_at: datetime
    source: Source


@dataclass(frozen=True, kw_only=True)
class UserMemory:
    """Facts about the users of a tenant, across all of their sessions.

    ``model`` extracts facts; when empty the agent's own does. ``max_facts``: above so many free texts of a user the
    oldest go (the setting ``MEMORYGW_MAX_FACTS`` holds in any case). With ``enabled=False`` nothing is told to a model
    and nothing is learned; reading, adding, removing and the tool work on (A22–A24).
    """

    model: str = ""
    max_facts: int | None = None
    enabled: bool = True
    tenant: TenantLike = "default"

    def __post_init__(self) -> None:
        if self.max_facts is not None and self.max_facts < 1:
            raise InvalidError(fields={"max_facts": ["At least 1, or None."]})

    def get_facts(self, user_id: UserLike) -> list[UserFact]:
        """Everything that is remembered about a user, in the order in which it came."""
        return [
            UserFact(fact.id, fact.text, fact.created_at, "auto" if fact.origin == "auto" else "manual")
            for fact in gateway.get_user_facts(self.tenant, user_id)
        ]

    def add_facts(self, user_id: UserLike, facts: Sequence[str], source: Source = "manual") -> None:
        """Add short texts; blank ones, and those that are known already in another spelling, are skipped (A34–A45).

        Raises `FactTooLongError`, `FactRefusedError`; then none is added.
        """
        gateway.add_user_facts(self.tenant, user_id, facts, source=source, max_facts=self.max_facts)

    def remove_fact(self, user_id: UserLike, fact_id: UUID | str) -> None:
        """Forget one fact; nothing happens when the user has none of this id (A46–A48)."""
        try:
            gateway.delete_memory(self.tenant, user_id, fact_id)
        except MemoryNotFoundError:
            return

    def clear(self, user_id: UserLike) -> None:
        """Forget every fact about a user."""
        gateway.clear_user_facts(self.tenant, user_id)

    def get_context_string(self, user_id: UserLike) -> str:
        """What is remembered, for a system prompt: a heading and one hyphen line per fact; empty when there is nothing
        to say (A51–A53). As much as fits ``MEMORYGW_INJECTION_BUDGET_CHARS``."""
        return gateway.get_facts_list(self.tenant, user_id) if self.enabled else ""

    def extract_and_store(self, user_id: UserLike, messages: Sequence[Mapping[str, Any]], model: str = "") -> None:
        """Learn from messages in OpenAI's shape, here and now. A model that fails is a warning, no error (A74)."""
        if not self.enabled:
            return
        try:
            gateway.learn_from_messages(
                self.tenant, user_id, messages, model=self.model or model, max_facts=self.max_facts
            )
        except (ExtractionError, UsageRefusedError, ErasureRunningError) as error:
            logger.warning("Nothing was learned: %s", error.code)

    def as_tool(self, name: str = "", description: str = "") -> Tool:
        """A tool for an agent's ``tools``: the model asks for the facts when it wants them, and they are not in its
        prompt (A76–A87). It acts for the user of the run, whatever the model says."""
        return recall_tool(name or f"{conf.TOOL_PREFIX}recall_user_facts", description)

    async def aget_facts(self, user_id: UserLike) -> list[UserFact]:
        return await run_sync(self.get_facts, user_id)

    async def aadd_facts(self, user_id: UserLike, facts: Sequence[str], source: Source = "manual") -> None:
        await run_sync(self.add_facts, user_id, facts, source)

    async def aremove_fact(self, user_id: UserLike, fact_id: UUID | str) -> None:
        await run_sync(self.remove_fact, user_id, fact_id)

    async def aclear(self, user_id: UserLike) -> None:
        await run_sync(self.clear, user_id)

    async def aget_context_string(self, user_id: UserLike) -> str:
        return await run_sync(self.get_context_string, user_id)

    async def aextract_and_store(
        self, user_id: UserLike, messages: Sequence[Mapping[str, Any]], model: str = ""
    ) -> None:
        await run_sync(self.extract_and_store, user_id, messages, model)
