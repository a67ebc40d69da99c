"""A voice agent: facts go into its instructions when a user connects, and are learned when they hang up (A88–A103)."""

from collections.abc import Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Self
from uuid import UUID

from memorygw import gateway
from memorygw.agents.agent import Agent
from memorygw.agents.aio import run_sync
from memorygw.exceptions import MemorygwError
from memorygw.gateway import TenantLike, UserLike
from memorygw.llm.base import Message


@dataclass(frozen=True)
class VoiceConnection:
    """A spoken conversation: ``instructions`` for the realtime model, then what both said, then the end.

    As a context manager it closes itself.
    """

    tenant: TenantLike
    user_id: UserLike | None
    id: UUID
    instructions: str

    def add(self, role: str, text: str) -> None:
        """One fragment of what the user or the assistant said, as the realtime model sent it."""
        self.add_all([(role, text)])

    def add_all(self, fragments: Sequence[tuple[str, str]]) -> None:
        """Several fragments, each its role and its text: one request to the database."""
        gateway.add_voice_fragments(self.tenant, self.user_id, self.id, fragments)

    def close(self) -> list[Message]:
        """What was said, as messages. Facts are learned from it in the background, once, however often it is closed."""
        return gateway.close_voice_session(self.tenant, self.user_id, self.id)

    async def aadd(self, role: str, text: str) -> None:
        await run_sync(self.add, role, text)

    async def aadd_all(self, fragments: Sequence[tuple[str, str]]) -> None:
        await run_sync(self.add_all, fragments)

    async def aclose(self) -> list[Message]:
        return await run_sync(self.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # What went wrong inside is what its caller wants to know.
        with suppress(MemorygwError) if error else nullcontext():
            self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await run_sync(self.__exit__, kind, error, trace)


@dataclass(kw_only=True)
class VoiceAgent(Agent):
    """An agent that talks through a realtime model of the host's own.

    ``model`` is a text model: it, or the memory's, extracts the facts (A100).
    """

    user_id: UserLike | None = None

    def connect(self, user_id: UserLike | None = None) -> VoiceConnection:
        """Begin a conversation with a user, by default the configured one (A90). Without one nothing is told and
        nothing learned."""
        user = self.user_id if user_id is None else user_id
        session = gateway.open_voice_session(self.owner, user, persona=self.save())
        return VoiceConnection(self.owner, user, session.id, session.instructions)

    async def aconnect(self, user_id: UserLike | None = None) -> VoiceConnection:
        return await run_sync(self.connect, user_id)
