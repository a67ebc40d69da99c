"""An agent: a persona of the gateway that remembers its users (A1–A12)."""

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import TypedDict
from uuid import UUID

from memorygw import gateway
from memorygw.agents.aio import run_sync
from memorygw.agents.memory import UserMemory
from memorygw.conf import conf
from memorygw.exceptions import InvalidError
from memorygw.gateway import Answer, Decision, Event, Events, TenantLike, UserLike
from memorygw.models import Persona, Tenant
from memorygw.tools import NAME, Tool
from threads.turns import Content, content_problem


class _CallOptions(TypedDict):
    thread_id: UUID | None
    persona: Persona
    own_tools: Sequence[Tool]


@dataclass(kw_only=True)
class Agent:
    """Instructions, a model, tools, and what is remembered about users.

    It is the tenant's persona of this name: made or changed to what is said here when it first runs. Without
    ``user_memory`` it neither learns facts nor is told any. ``tools`` run in this process; one made by
    `UserMemory.as_tool` takes the place of facts in the prompt. The tenant is the memory's, where there is one.
    """

    name: str
    instructions: str = ""
    model: str = ""
    user_memory: UserMemory | None = None
    tools: Sequence[Tool] = ()
    tenant: TenantLike | None = None

    def __post_init__(self) -> None:
        names = [tool.name for tool in self.tools]
        if len(set(names)) < len(names) or not all(NAME.fullmatch(tool.name) for tool in self._own_tools()):
            raise InvalidError(fields={"tools": ["Every tool needs a name of its own, of letters, digits, _ and -."]})
        if self.tenant is not None and self.user_memory and self.user_memory.tenant != self.tenant:
            raise InvalidError(fields={"tenant": ["The agent and its memory belong to two."]})

    @property
    def owner(self) -> TenantLike:
        """The tenant it belongs to."""
        return self.user_memory.tenant if self.user_memory else self.tenant or Tenant.DEFAULT

    def run(self, input: Content, *, user_id: UserLike | None = None, session_id: str = "") -> Answer:
        """Answer one message of a user; facts are learned from it afterwards, in the background (A4).

        A session keeps its conversation, and is made when there is none of this id (C24); without one every run is a
        new conversation. Without a user nothing is told and nothing learned (A12). Raises what `memorygw.gateway.ask`
        does.
        """
        return gateway.ask(self.owner, user_id, input, **self._call(input, user_id, session_id))

    def stream(self, input: Content, *, user_id: UserLike | None = None, session_id: str = "") -> Events:
        """The same, told as it happens: ``delta`` events have the text, the last one, ``done``, has the answer."""
        return gateway.stream(self.owner, user_id, input, **self._call(input, user_id, session_id))

    def continue_run(
        self, run_id: UUID | str, decisions: Sequence[Decision], *, user_id: UserLike | None = None
    ) -> Answer:
        """Go on with a run that waits for a person's approval of a tool call."""
        return gateway.continue_run(
            self.owner, user_id, run_id, decisions, persona=self.save(), own_tools=self._own_tools()
        )

    async def arun(self, input: Content, *, user_id: UserLike | None = None, session_id: str = "") -> Answer:
        return await run_sync(self.run, input, user_id=user_id, session_id=session_id)

    async def astream(
        self,
        input: Content,
        *,
        user_id: UserLike | None = None,
        session_id: str = "",
    ) -> AsyncGenerator[Event, None]:
        events = await run_sync(self.stream, input, user_id=user_id, session_id=session_id)
        try:
            while event := await run_sync(next, events, None):
                yield event
        finally:
            await run_sync(events.close)

    async def acontinue_run(
        self, run_id: UUID | str, decisions: Sequence[Decision], *, user_id: UserLike | None = None
    ) -> Answer:
        return await run_sync(self.continue_run, run_id, decisions, user_id=user_id)

    def save(self) -> Persona:
        """Make the tenant's persona of this name what is said here, if it is not already.

        Whether facts are told and learned is a matter of each run, and an operator's, who may switch it off there.
        """
        memory = self.user_memory
        recalls = next((tool for tool in self.tools if tool.replaces_injection), None)
        persona = gateway.save_persona(
            self.owner,
            self.name,
            instructions=self.instructions,
            model=self.model,
            memory_model=(memory.model if memory else "") or conf.MEMORY_MODEL or self.model,
            fact_kind="text",
            max_facts=memory.max_facts if memory else None,
            memory_tools="recall" if recalls else "none",
            recall_tool_name=recalls.name if recalls else "",
            recall_tool_description=recalls.description if recalls else "",
        )
        remembers = memory is not None and memory.enabled
        persona.memory_enabled &= remembers
        persona.memory_injection_enabled &= remembers
        return persona

    async def asave(self) -> Persona:
        return await run_sync(self.save)

    def _own_tools(self) -> list[Tool]:
        return [tool for tool in self.tools if not tool.replaces_injection]

    def _call(self, content: Content, user_id: UserLike | None, session_id: str) -> _CallOptions:
        if problem := content_problem(content):
            raise InvalidError(fields={"content": [problem]})
        persona, thread_id = self.save(), None
        if session_id:
            thread_id = gateway.open_session(self.owner, user_id, session_id, persona=persona).id
        return {"thread_id": thread_id, "persona": persona, "own_tools": self._own_tools()}
