"""The facade: everything memorygw does, in the words of its documents. The one package a host imports.

Every function takes the tenant (the object, its id or its name) and, where a person is meant, that person's external
id: text or an integer, 1–255 characters. Somebody else's row is never told apart from one that does not exist.
"""

from memorygw.gateway.access import MAX_TOKEN_SECONDS, UserToken, create_api_key, create_user_token, user_of_token
from memorygw.gateway.arguments import TenantLike, UserLike, external_user_id, tenant_id
from memorygw.gateway.asking import (
    answer_again,
    ask,
    call_tool,
    cancel_run,
    continue_run,
    get_context,
    get_run,
    list_tools,
)
from memorygw.gateway.conversations import (
    MAX_APPENDED_TURNS,
    MAX_TITLE_CHARS,
    Lease,
    acquire_lease,
    append_turns,
    create_thread,
    delete_threads,
    get_thread,
    get_thread_memory,
    get_turns,
    get_turns_from,
    has_id,
    list_threads,
    release_lease,
    rename_thread,
    reset_thread_memory,
)
from memorygw.gateway.people import (
    clear_user_facts,
    forget_user,
    get_facts_text,
    get_user_facts,
    remove_user_fact,
    upsert_user_fact,
)
from memorygw.running import Answer, Decision

__all__ = [
    "MAX_APPENDED_TURNS",
    "MAX_TITLE_CHARS",
    "MAX_TOKEN_SECONDS",
    "Answer",
    "Decision",
    "Lease",
    "TenantLike",
    "UserLike",
    "UserToken",
    "acquire_lease",
    "answer_again",
    "append_turns",
    "ask",
    "call_tool",
    "cancel_run",
    "clear_user_facts",
    "continue_run",
    "create_api_key",
    "create_thread",
    "create_user_token",
    "delete_threads",
    "external_user_id",
    "forget_user",
    "get_context",
    "get_facts_text",
    "get_run",
    "get_thread",
    "get_thread_memory",
    "get_turns",
    "get_turns_from",
    "get_user_facts",
    "has_id",
    "list_threads",
    "list_tools",
    "release_lease",
    "remove_user_fact",
    "rename_thread",
    "reset_thread_memory",
    "tenant_id",
    "upsert_user_fact",
    "user_of_token",
]
