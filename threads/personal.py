"""What the tables of this app hold of a person."""

from uuid import UUID

from django.db.models import QuerySet

from memorygw.personal_data import CONTENT, IDENTIFIER, INTERNAL, PersonalData, declare
from threads.models import Run, Thread, TitleState, Turn

LATE_WORK = {"last_error": INTERNAL, "claim_token": INTERNAL}


def threads_of(tenant_id: UUID, user_id: str) -> "QuerySet[Thread]":
    """A person's threads, those that a host has marked as deleted too."""
    return Thread.objects.filter(tenant_id=tenant_id, user_id=user_id)


declare(
    PersonalData(
        model=Turn,
        name="turns",
        rows=lambda tenant_id, user_id: Turn.objects.filter(thread__tenant_id=tenant_id, thread__user_id=user_id),
        columns={
            "role": INTERNAL,
            "content": CONTENT,
            "tool_calls": CONTENT,
            "tool_call_id": CONTENT,
            "refusal": CONTENT,
            "model": INTERNAL,
            "status": INTERNAL,
            "history": INTERNAL,
            "client_view": CONTENT,
            "extras": CONTENT,
            "metadata": CONTENT,
        },
    ),
    PersonalData(
        model=Run,
        name="runs",
        rows=lambda tenant_id, user_id: Run.objects.filter(thread__tenant_id=tenant_id, thread__user_id=user_id),
        columns={
            "status": INTERNAL,
            "error": INTERNAL,
            "model": INTERNAL,
            "tools": CONTENT,
            "pending": CONTENT,
            "memories": INTERNAL,
            "warnings": INTERNAL,
            "lease_token": INTERNAL,
        },
    ),
    PersonalData(
        model=TitleState,
        name="title_states",
        rows=lambda tenant_id, user_id: TitleState.objects.filter(thread__tenant_id=tenant_id, thread__user_id=user_id),
        columns=LATE_WORK,
    ),
    PersonalData(
        model=Thread,
        name="threads",
        rows=threads_of,
        columns={
            "user_id": IDENTIFIER,
            "session_id": CONTENT,
            "title": CONTENT,
            "status": INTERNAL,
            "history": INTERNAL,
            "lease_token": INTERNAL,
        },
        # T103–T109: id, turn count and dates stay.
        skeleton={
            "session_id": None,
            "title": "",
            "status": Thread.Status.CLOSED,
            "history": None,
            "instructions_seq": None,
            "lease_token": None,
            "lease_expires_at": None,
        },
    ),
)
