"""Sessions and memory tools for the OpenAI Agents SDK; needs the extra ``openai-agents``.

A session is a thread and an item is a turn, so that an agent of the SDK, `memorygw.gateway.ask` and everything that
learns from turns work on one conversation.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, TypeVar, cast
from uuid import UUID

from agents import FunctionTool, Tool, TResponseInputItem
from agents.memory import SessionSettings
from agents.memory.session_settings import resolve_session_limit
from agents.tool_context import ToolContext

from memorygw import gateway
from memorygw.adapters.openai_items import to_draft, to_items, with_calls_at_their_results, without_stray_results
from memorygw.agents.aio import run_sync
from memorygw.exceptions import DoubleResultError, InvalidError, ThreadNotFoundError
from memorygw.gateway import MAX_APPENDED_TURNS, TenantLike, UserLike
from memorygw.text import cleaned
from memorygw.tools import all_memory_tools
from threads.turns import TurnDraft

T = TypeVar("T")


@dataclass(eq=False)
class MemorygwSession:
    """A `Session` of the SDK over the thread that this user's agents call ``session_id``, made when there is none.

    Another user's session of the same id is another one. ``persona`` is the name or id of the persona of a thread that
    is made. Every method may raise what the gateway does, `ThreadBusyError` while a call of the gateway is running on
    the thread.
    """

    session_id: str
    _: KW_ONLY
    user_id: UserLike
    tenant: TenantLike = "default"
    persona: str = ""
    session_settings: SessionSettings | None = None

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        """The items as they were added, oldest first; with a limit, else that of the settings, the newest of them.

        Turns that came in another way are input items of the same meaning.
        """
        items = await run_sync(self._on_thread, self._items)
        most = resolve_session_limit(limit, self.session_settings)
        return items if most is None else items[max(len(items) - most, 0) :]

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        """Store items, a hundred at a time, all or none of each hundred. Learning follows an assistant's last turn.

        What is no valid turn, like a second result of one call, is kept as an item and shown as a placeholder.
        """
        drafts = [to_draft(item) for item in items]
        for start in range(0, len(drafts), MAX_APPENDED_TURNS):
            await run_sync(self._on_thread, self._append, drafts[start : start + MAX_APPENDED_TURNS])

    async def pop_item(self) -> TResponseInputItem | None:
        """Take the newest item away; None where there is none. What was learned from it stays."""
        return await run_sync(self._on_thread, self._pop)

    async def clear_session(self) -> None:
        """Delete the thread. What was learned from it stays. `ThreadBusyError`: nothing is deleted."""
        await run_sync(self._on_thread, self._clear)

    def thread_id(self) -> UUID:
        """The id of the session's thread, made when missing; for `memorygw.gateway`."""
        thread = gateway.open_session(self.tenant, self.user_id, self.session_id, persona=self.persona)
        return cast(UUID, thread.id)

    def _on_thread(self, work: Callable[..., T], *arguments: Any) -> T:
        """``work`` on the thread; on a new one where another call has cleared the session meanwhile."""
        try:
            return work(self.thread_id(), *arguments)
        except ThreadNotFoundError:
            return work(self.thread_id(), *arguments)

    def _items(self, thread_id: UUID) -> list[TResponseInputItem]:
        turns = gateway.get_turns(self.tenant, self.user_id, thread_id)
        return [item for turn in turns for item in to_items(turn)]

    def _append(self, thread_id: UUID, drafts: Sequence[TurnDraft]) -> None:
        place = (self.tenant, self.user_id, thread_id)
        try:
            gateway.append_turns(*place, with_calls_at_their_results(drafts))
        except (InvalidError, DoubleResultError):
            # Results are looked at only now: that takes the whole thread, and nearly all of them are in order.
            drafts = without_stray_results(drafts, gateway.get_turns(*place))
            gateway.append_turns(*place, with_calls_at_their_results(drafts))

    def _pop(self, thread_id: UUID) -> TResponseInputItem | None:
        turn = gateway.pop_turn(self.tenant, self.user_id, thread_id)
        if turn is None:
            return None
        # A turn of the gateway's own may be several items: what was said, and calls.
        *others, newest = to_items(turn)
        if others:
            self._append(thread_id, [to_draft(item) for item in others])
        return newest

    def _clear(self, thread_id: UUID) -> None:
        gateway.delete_threads(self.tenant, self.user_id, [thread_id])


# --- tools


def memory_tools(
    tenant: TenantLike, user_id: UserLike, *, persona: str = "", session: MemorygwSession | None = None
) -> list[Tool]:
    """The memory tools that a persona (else the setting) offers, for an agent's ``tools``.

    They act for this user, whatever the model says, and in the thread of ``session``. One that waits for approval by
    the settings is an interruption of the SDK's run. Raises `PersonaNotFoundError`.
    """
    known = all_memory_tools()

    def run(name: str, arguments: str) -> str:
        try:
            given = cleaned(json.loads(arguments or "{}"))
        except (ValueError, RecursionError):
            return "Error: the arguments are not valid JSON."
        return gateway.call_tool(tenant, user_id, name, given, thread_id=session.thread_id() if session else None)

    def tool(function: dict[str, Any]) -> FunctionTool:
        async def invoke(context: ToolContext[Any], arguments: str) -> str:
            return await run_sync(run, function["name"], arguments)

        return FunctionTool(
            name=function["name"],
            description=function["description"],
            params_json_schema=function["parameters"],
            on_invoke_tool=invoke,
            strict_json_schema=False,
            needs_approval=function["name"] in known and known[function["name"]].needs_approval,
        )

    return [tool(schema["function"]) for schema in gateway.list_tools(tenant, persona=persona)]


async def amemory_tools(
    tenant: TenantLike, user_id: UserLike, *, persona: str = "", session: MemorygwSession | None = None
) -> list[Tool]:
    return await run_sync(memory_tools, tenant, user_id, persona=persona, session=session)
