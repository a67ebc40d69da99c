"""Every URL of ours; a host includes this module under a prefix of its choice."""

from collections.abc import Callable

from django.db import transaction
from django.http import HttpResponseBase
from django.urls import include, path

from memorygw.api import errors, health, metrics, schema
from memorygw.api.asking import AskViewSet
from memorygw.api.chat import ChatViewSet
from memorygw.api.facts import FactViewSet
from memorygw.api.memories import MemoryViewSet, ReviewViewSet
from memorygw.api.observing import observed
from memorygw.api.personas import PersonaFactViewSet, PersonaViewSet, TenantViewSet
from memorygw.api.rights import OwnMemoryViewSet, RightsViewSet
from memorygw.api.threads import ThreadViewSet
from memorygw.api.tokens import TokenViewSet
from memorygw.api.tools import ToolViewSet
from memorygw.api.views import GatewayViewSet
from memorygw.api.voice import VoiceViewSet

app_name = "memorygw"


def view(viewset: type[GatewayViewSet], **actions: str) -> Callable[..., HttpResponseBase]:
    """HTTP methods → actions. Never inside a host's ATOMIC_REQUESTS: a model call must not hold a transaction open."""
    return transaction.non_atomic_requests(observed(viewset.as_view(dict(actions))))


api = [
    path("threads", view(ThreadViewSet, get="list", post="create")),
    path("threads/delete", view(ThreadViewSet, post="delete_many")),
    path("threads/<str:thread_id>", view(ThreadViewSet, get="retrieve", patch="partial_update", delete="destroy")),
    path("threads/<str:thread_id>/turns", view(ThreadViewSet, get="turns", post="append_turns")),
    path("threads/<str:thread_id>/turns/<str:turn_id>", view(ThreadViewSet, delete="forget_turn")),
    path("threads/<str:thread_id>/lease", view(ThreadViewSet, post="acquire_lease")),
    path("threads/<str:thread_id>/lease/release", view(ThreadViewSet, post="release_lease")),
    path("threads/<str:thread_id>/context", view(ThreadViewSet, post="context")),
    path("threads/<str:thread_id>/memory", view(ThreadViewSet, get="memory", delete="reset_memory")),
    path("threads/<str:thread_id>/ask", view(AskViewSet, post="ask")),
    path("ask", view(AskViewSet, post="ask_anew")),
    path("runs/<str:run_id>", view(AskViewSet, get="run")),
    path("runs/<str:run_id>/continue", view(AskViewSet, post="continue_run")),
    path("runs/<str:run_id>/cancel", view(AskViewSet, post="cancel_run")),
    path("tools", view(ToolViewSet, get="list")),
    path("tools/<str:name>", view(ToolViewSet, post="call")),
    path("facts", view(FactViewSet, get="list", post="add", put="put", delete="delete")),
    path("facts/context", view(FactViewSet, get="context", put="put_context", delete="delete_context")),
    path("facts/<path:key>", view(FactViewSet, put="put_key", delete="delete_key")),
    path("memories", view(MemoryViewSet, get="list")),
    path("memories/count", view(MemoryViewSet, get="count")),
    path("memories/search", view(MemoryViewSet, get="search")),
    path("memories/<str:memory_id>", view(MemoryViewSet, put="update", delete="destroy")),
    path("memories/<str:memory_id>/approve", view(MemoryViewSet, post="approve")),
    path("memories/<str:memory_id>/reject", view(MemoryViewSet, post="reject")),
    path("memories/<str:memory_id>/sources", view(MemoryViewSet, get="sources")),
    path("admin/memories/pending", view(ReviewViewSet, get="pending")),
    path("admin/memories/bulk-approve", view(ReviewViewSet, post="approve")),
    path("admin/memories/bulk-reject", view(ReviewViewSet, post="reject")),
    path("voice/sessions", view(VoiceViewSet, post="create")),
    path("voice/sessions/<str:session_id>/fragments", view(VoiceViewSet, post="fragments")),
    path("voice/sessions/<str:session_id>/close", view(VoiceViewSet, post="close")),
    path("personas", view(PersonaViewSet, get="list", post="create")),
    path("personas/<str:persona_id>", view(PersonaViewSet, get="retrieve", patch="partial_update", delete="destroy")),
    path("personas/<str:persona_id>/facts/<path:key>", view(PersonaFactViewSet, put="put", delete="delete")),
    path("tenant", view(TenantViewSet, get="retrieve", patch="partial_update")),
    path("user-tokens", view(TokenViewSet, post="create")),
    path("users/forget", view(RightsViewSet, post="forget_by_query")),
    path("users/export", view(RightsViewSet, get="export_by_query")),
    path("users/<path:user_id>/forget", view(RightsViewSet, post="forget")),
    path("users/<path:user_id>/memory", view(RightsViewSet, put="switch")),
    path("me/memory", view(OwnMemoryViewSet, get="retrieve", put="update")),
    path("erasures", view(RightsViewSet, get="list")),
    path("erasures/<str:receipt_id>", view(RightsViewSet, get="retrieve")),
    path("users/<path:user_id>/export", view(RightsViewSet, get="export")),
    path("schema", schema.schema, name="schema"),
    path("docs", schema.docs, name="docs"),
]

openai = [
    path("chat/completions", view(ChatViewSet, post="create")),
    path("models", view(ChatViewSet, get="models")),
]

urlpatterns = [
    path("api/v1/", include(api)),
    path("v1/", include(openai)),
    path("v1/<path:unknown>", observed(errors.unknown_path)),
    path("api/v1/<path:unknown>", observed(errors.unknown_path)),
    path("livez", health.livez, name="livez"),
    path("readyz", health.readyz, name="readyz"),
    path("metrics", metrics.metrics, name="metrics"),
]
