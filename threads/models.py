"""Conversations: a thread, its turns in order, and the runs that answered them."""

from typing import Any
from uuid import UUID

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from memorygw.claims import LateWork
from memorygw.ids import new_id
from memorygw.models import Persona, Tenant
from memorygw.retention import kept


class ThreadQuerySet(models.QuerySet["Thread"]):
    def live(self, tenant_id: UUID | None) -> "ThreadQuerySet":
        """Threads of a tenant that the host has not marked as deleted, and whose time is not over. Every read of
        threads starts here."""
        if tenant_id is None:
            raise ValueError("A tenant is required.")
        return self.filter(kept(tenant_id, "threads"), tenant_id=tenant_id, deleted_at__isnull=True)

    def of_user(self, tenant_id: UUID | None, user_id: str) -> "ThreadQuerySet":
        if not user_id:
            raise ValueError("A user is required.")
        return self.live(tenant_id).filter(user_id=user_id)

    def unleased(self) -> "ThreadQuerySet":
        """Threads no call holds, or only an expired lease does."""
        return self.exclude(lease_expires_at__gt=Now())

    def leased(self) -> "ThreadQuerySet":
        return self.filter(lease_expires_at__gt=Now())


class Thread(models.Model):
    """One conversation of one user. Its title, turn count and times stay when nothing else does (T109)."""

    class Status(models.TextChoices):
        OPEN = "OPEN"
        AWAITING_HUMAN = "AWAITING_HUMAN"
        CLOSED = "CLOSED"

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    tenant = models.ForeignKey(Tenant, models.CASCADE, related_name="+", db_index=False)
    user_id = models.CharField(max_length=255, help_text="The external id, exactly as given; * for nobody.")
    session_id = models.CharField(
        max_length=255, null=True, blank=True, help_text="An agent's own name for the thread, once per user."
    )
    title = models.CharField(max_length=200, blank=True, default="")
    status = models.CharField(max_length=20, choices=Status, default=Status.OPEN)
    persona = models.ForeignKey(Persona, models.SET_NULL, null=True, blank=True, related_name="+")
    turn_count = models.PositiveIntegerField(default=0)
    token_count = models.PositiveBigIntegerField(default=0, help_text="Tokens of all turns that windows count.")
    instructions_seq = models.PositiveIntegerField(
        null=True, blank=True, editable=False, help_text="The latest turn of role system or developer."
    )
    history = models.UUIDField(
        null=True, editable=False, help_text="Digest of what a client has seen, from the first turn to the last."
    )
    created_at = models.DateTimeField(db_default=Now(), editable=False)
    updated_at = models.DateTimeField(db_default=Now(), editable=False)
    deleted_at = models.DateTimeField(null=True, blank=True, help_text="Set by a host: the thread reads as gone.")
    lease_token = models.UUIDField(null=True, blank=True, editable=False)
    lease_expires_at = models.DateTimeField(null=True, blank=True, editable=False)

    objects = ThreadQuerySet.as_manager()

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(status__in=["OPEN", "AWAITING_HUMAN", "CLOSED"]), name="thread_status_is_known"
            ),
            models.UniqueConstraint(
                fields=["tenant", "user_id", "session_id"],
                condition=Q(session_id__isnull=False),
                name="thread_session_once_per_user",
            ),
        ]
        indexes = [models.Index(fields=["tenant", "user_id", "-created_at", "-id"], name="thread_of_user_newest_first")]

    def __str__(self) -> str:
        return f"Thread {self.id}"


class Turn(models.Model):
    """One message as it was said, in no provider's format. Never changed after it is stored (T1, W4)."""

    class Role(models.TextChoices):
        USER = "user"
        ASSISTANT = "assistant"
        TOOL = "tool"
        SYSTEM = "system"
        DEVELOPER = "developer"

    class Status(models.TextChoices):
        COMPLETE = "complete"
        INTERRUPTED = "interrupted"
        FORGOTTEN = "forgotten"

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    thread = models.ForeignKey(Thread, models.CASCADE, related_name="turns", db_index=False)
    seq = models.PositiveIntegerField(help_text="1 for the first turn of the thread; gapless.")
    role = models.CharField(max_length=10, choices=Role)
    content: "models.JSONField[Any, Any]" = models.JSONField(null=True, help_text="Text, a list of parts, or nothing.")
    tool_calls: "models.JSONField[Any, Any]" = models.JSONField(null=True, blank=True)
    tool_call_id = models.CharField(max_length=200, null=True, blank=True)
    refusal = models.TextField(null=True, blank=True)
    model = models.CharField(max_length=200, blank=True, default="", help_text="The model that answered.")
    status = models.CharField(max_length=12, choices=Status, default=Status.COMPLETE)
    token_count = models.PositiveIntegerField(default=0, help_text="Content and calls, without per-message overhead.")
    history = models.UUIDField(
        null=True, editable=False, help_text="The thread's, up to and with this turn; empty: no client sees it."
    )
    client_view: "models.JSONField[Any, Any]" = models.JSONField(
        null=True, editable=False, help_text="The message that a client got instead of it; empty: itself."
    )
    extras: "models.JSONField[Any, Any]" = models.JSONField(
        null=True, editable=False, help_text="What a client's message has beside what is known here: sent with it."
    )
    tokens_through = models.PositiveBigIntegerField(help_text="The thread's token count up to and with this turn.")
    metadata: "models.JSONField[Any, Any]" = models.JSONField(default=dict, blank=True)
    learnable = models.BooleanField(default=True, help_text="False: stored while memory was off, never learned from.")
    teaches_facts = models.BooleanField(default=True, help_text="False: notes are made of it, but no facts learned.")
    created_at = models.DateTimeField(db_default=Now(), help_text="The client's clock.")
    stored_at = models.DateTimeField(db_default=Now(), editable=False, help_text="The database's clock.")

    class Meta:
        ordering = ["seq"]
        constraints = [models.UniqueConstraint(fields=["thread", "seq"], name="turn_seq_once_per_thread")]
        # A window that holds N tokens is one range of this index, however long the thread is.
        indexes = [
            models.Index(fields=["thread", "tokens_through"], name="turn_by_tokens_through"),
            models.Index(fields=["history"], condition=Q(history__isnull=False), name="turn_by_history"),
            # The few turns that call a tool or answer a call: what a new result is checked against.
            models.Index(
                fields=["thread", "seq"],
                condition=Q(tool_calls__isnull=False) | Q(tool_call_id__isnull=False),
                name="turn_of_tools",
            ),
        ]

    def __str__(self) -> str:
        return f"Turn {self.seq} of thread {self.thread_id}"


class TitleState(LateWork):
    """Whether a thread without a title has been given one."""

    kind = "title"

    thread = models.OneToOneField(Thread, models.CASCADE, primary_key=True, related_name="+")

    class Meta(LateWork.Meta):
        pass

    def __str__(self) -> str:
        return f"Title of thread {self.thread_id}"


class Run(models.Model):
    """One answer in the making: from the user's turn to the settled answer, over every pause for a decision."""

    class Status(models.TextChoices):
        RUNNING = "running"
        AWAITING_HUMAN = "awaiting_human"
        COMPLETED = "completed"
        FAILED = "failed"
        CANCELLED = "cancelled"

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    thread = models.ForeignKey(Thread, models.CASCADE, related_name="runs")
    status = models.CharField(max_length=16, choices=Status, default=Status.RUNNING)
    error = models.CharField(max_length=64, blank=True, default="", help_text="A code, never content.")
    persona = models.ForeignKey(Persona, models.SET_NULL, null=True, blank=True, related_name="+")
    model = models.CharField(max_length=200, blank=True, default="", help_text="The model that is asked.")
    tools: "models.JSONField[Any, Any]" = models.JSONField(
        default=list, blank=True, help_text="The caller's own tools."
    )
    pending: "models.JSONField[Any, Any]" = models.JSONField(
        default=list,
        blank=True,
        help_text="The calls it waits for (or waited for last): tool_call_id, name, arguments, kind.",
    )
    memories: "models.JSONField[Any, Any]" = models.JSONField(default=list, help_text="Ids of the facts in its prompt.")
    warnings: "models.JSONField[Any, Any]" = models.JSONField(
        default=dict, blank=True, help_text="Code → count: what its prompt had no room for."
    )
    lease_token = models.UUIDField(null=True, blank=True, editable=False, help_text="The lease it runs under.")
    first_seq = models.PositiveIntegerField(help_text="The user's turn.")
    last_seq = models.PositiveIntegerField(help_text="Its last turn so far, as of its last pause or its end.")
    tool_steps = models.PositiveSmallIntegerField(default=0, help_text="How often the model has called tools.")
    prompt_tokens = models.PositiveBigIntegerField(default=0)
    completion_tokens = models.PositiveBigIntegerField(default=0)
    created_at = models.DateTimeField(db_default=Now(), editable=False)
    finished_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(status__in=["running", "awaiting_human"], finished_at__isnull=True)
                | Q(status__in=["completed", "failed", "cancelled"], finished_at__isnull=False),
                name="run_finished_when_over",
            ),
        ]
        indexes = [
            # What the sweep and a waiting thread look for: the few runs that are not over.
            models.Index(fields=["thread"], condition=Q(status__in=["running", "awaiting_human"]), name="run_not_over")
        ]

    def __str__(self) -> str:
        return f"Run {self.id} {self.status}"
