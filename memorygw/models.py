"""Who calls (Tenant, ApiKey), as whom (Persona), by voice (VoiceSession), and what the calls cost (ModelCall)."""

from typing import Any, get_args

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from memorygw.claims import LateWork
from memorygw.conf import ReviewPolicy
from memorygw.ids import new_id

REVIEW_POLICIES = [(policy, policy.replace("_", " ").capitalize()) for policy in get_args(ReviewPolicy)]


class Tenant(models.Model):
    """The owner of everything: threads, facts, personas and keys of two tenants never meet (K11)."""

    DEFAULT = "default"

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    name = models.CharField(max_length=100, unique=True)
    memory_extraction_enabled = models.BooleanField(default=True, help_text="Learn facts from its threads.")
    review_policy = models.CharField(
        max_length=20, blank=True, default="", choices=REVIEW_POLICIES, help_text="Empty: the setting's."
    )
    created_at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        permissions = [
            ("read_content", "Can read what people said and what is known about them"),
            ("retry_learning", "Can retry what is learned late"),
        ]

    def __str__(self) -> str:
        return self.name


class ApiKeyQuerySet(models.QuerySet["ApiKey"]):
    def usable(self) -> "ApiKeyQuerySet":
        """Keys that are neither revoked nor expired."""
        return self.filter(revoked_at__isnull=True).exclude(expires_at__lte=Now())


class ApiKey(models.Model):
    """A credential of a tenant. Only a digest is stored; the key itself is shown once, when it is made."""

    class Role(models.TextChoices):
        SERVICE = "service"
        ADMIN = "admin"

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    tenant = models.ForeignKey(Tenant, models.CASCADE, related_name="api_keys")
    name = models.CharField(max_length=100)
    role = models.CharField(max_length=10, choices=Role)
    prefix = models.CharField(max_length=8, unique=True, editable=False)
    digest = models.CharField(max_length=64, editable=False, help_text="SHA-256 of the whole key, in hex.")
    created_at = models.DateTimeField(db_default=Now(), editable=False)
    expires_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)
    last_used_at = models.DateTimeField(null=True, blank=True, editable=False)

    objects = ApiKeyQuerySet.as_manager()

    class Meta:
        verbose_name = "API key"
        permissions = [("revoke_apikey", "Can revoke API key")]

    def __str__(self) -> str:
        return f"mgw_{self.prefix}…"


class Persona(models.Model):
    """What a thread talks to: instructions, models and memory switches (C32)."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    tenant = models.ForeignKey(Tenant, models.CASCADE, related_name="personas")
    name = models.CharField(max_length=100)
    instructions = models.TextField(blank=True, default="", help_text="{memory} marks where memory goes; else the end.")
    model = models.CharField(max_length=100, blank=True, default="")
    cheap_model = models.CharField(max_length=100, blank=True, default="")
    memory_model = models.CharField(
        max_length=100,
        blank=True,
        default="",
        help_text="Extracts facts; empty: the setting's, else the cheap one.",
    )
    working_memory = models.CharField(
        max_length=20,
        blank=True,
        default="",
        choices=[("SUMMARY_BUFFER", "Summary buffer"), ("SLIDING_WINDOW", "Sliding window")],
    )
    memory_tools = models.CharField(
        max_length=200, blank=True, default="", help_text="A set's name or tools' names; empty: the setting's."
    )
    memory_enabled = models.BooleanField(default=True, help_text="Learn facts from its threads.")
    memory_injection_enabled = models.BooleanField(default=True, help_text="Give it what is known about the user.")
    fact_kind = models.CharField(
        max_length=5,
        choices=[("keyed", "Keyed"), ("text", "Text")],
        default="keyed",
        help_text="What is learned from its threads: keys with values, or free texts, these after every answer.",
    )
    max_facts = models.PositiveIntegerField(
        null=True, blank=True, help_text="Most free texts of a user, under the setting's cap; empty: only that."
    )
    recall_tool_name = models.CharField(max_length=64, blank=True, default="", help_text="Empty: recall_user_facts.")
    recall_tool_description = models.TextField(blank=True, default="")
    review_policy = models.CharField(
        max_length=20, blank=True, default="", choices=REVIEW_POLICIES, help_text="Empty: the tenant's."
    )
    created_at = models.DateTimeField(db_default=Now(), editable=False)
    updated_at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["tenant", "name"], name="persona_name_once")]

    def __str__(self) -> str:
        return self.name


class VoiceSession(LateWork):
    """One spoken conversation, kept until it has been learned from and for a day more. Due: once, when it is closed."""

    kind = "voice"
    # These count turns, and there are none here.
    covered = answered = None  # type: ignore[assignment]

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    tenant = models.ForeignKey(Tenant, models.CASCADE, related_name="+", db_index=False)
    user_id = models.CharField(max_length=255, help_text="The external id, exactly as given; * for nobody.")
    persona = models.ForeignKey(Persona, models.SET_NULL, null=True, blank=True, related_name="+")
    teaches_facts = models.BooleanField(default=True, help_text="False: memory was off when it was opened.")
    batch_count = models.PositiveIntegerField(default=0)
    created_at = models.DateTimeField(db_default=Now(), editable=False)
    heard_at = models.DateTimeField(db_default=Now(), help_text="When it was opened or its last fragment came.")
    closed_at = models.DateTimeField(null=True, blank=True)

    class Meta(LateWork.Meta):
        indexes = [
            *LateWork.Meta.indexes,
            models.Index(fields=["tenant", "user_id"], name="voicesession_of_user"),
            models.Index(fields=["heard_at"], name="voicesession_by_age"),
        ]

    def __str__(self) -> str:
        return f"Voice session {self.id}"


class VoiceBatch(models.Model):
    """Fragments that came in one request, in their order."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    session = models.ForeignKey(VoiceSession, models.CASCADE, related_name="batches", db_index=False)
    seq = models.PositiveIntegerField()
    # Half a character is no text for a database, so it is kept as JSON in ASCII.
    fragments = models.TextField(help_text="JSON: a list of role and text.")
    learnable = models.BooleanField(default=True, help_text="False: said while memory was off, never learned from.")
    stored_at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["session", "seq"], name="voicebatch_seq_once_per_session")]

    def __str__(self) -> str:
        return f"Fragments {self.seq} of voice session {self.session_id}"


class IdempotencyKey(models.Model):
    """A request that may be sent again (K14). It holds neither the request nor the answer: what the request makes bears
    the id of this row, so whether it was made can be looked up, also after a crash."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    tenant = models.ForeignKey(Tenant, models.CASCADE, related_name="+", db_index=False)
    user_id = models.CharField(max_length=255, blank=True, help_text="Empty: the request acts for no user.")
    digest = models.CharField(max_length=64, editable=False, help_text="Of method, path and key.")
    fingerprint = models.CharField(max_length=64, editable=False, help_text="Keyed hash of the body.")
    done = models.BooleanField(default=False, help_text="The request has been answered.")
    claim_token = models.UUIDField(null=True, blank=True, editable=False)
    claim_expires_at = models.DateTimeField(null=True, blank=True, help_text="Until then somebody is answering it.")
    created_at = models.DateTimeField(db_default=Now(), editable=False, db_index=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["tenant", "user_id", "digest"], name="idempotency_key_once_per_user")
        ]

    def __str__(self) -> str:
        return f"Idempotency key {self.id}"


class ModelCall(models.Model):
    """One call of a model: what it cost and how it ended; never what was said.

    Thread and run are plain ids: the row outlives them, since usage totals stay when a person is erased.
    """

    class Kind(models.TextChoices):
        CHAT = "CHAT"
        MEMORY_USER = "MEMORY_USER"
        MEMORY_WORKING = "MEMORY_WORKING"
        THREAD_TITLE = "THREAD_TITLE"
        EMBEDDING = "EMBEDDING"

    OK = "ok"

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    tenant = models.ForeignKey(Tenant, models.CASCADE, related_name="model_calls", db_index=False)
    thread_id = models.UUIDField(null=True, blank=True)
    run_id = models.UUIDField(null=True, blank=True)
    kind = models.CharField(max_length=20, choices=Kind)
    model = models.CharField(max_length=200)
    prompt_tokens = models.PositiveIntegerField(default=0)
    completion_tokens = models.PositiveIntegerField(default=0)
    latency_ms = models.PositiveIntegerField(default=0)
    outcome = models.CharField(max_length=64, help_text='"ok" or the code of the error.')
    created_at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        indexes = [
            # Erasing a person takes their threads out of here.
            models.Index(fields=["thread_id"], condition=Q(thread_id__isnull=False), name="modelcall_of_thread"),
            # The foreign key's, too. Sums over some days read no older row, of one tenant or of each.
            models.Index(fields=["tenant", "created_at"], name="modelcall_by_age"),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.outcome}"


class ErasureReceipt(models.Model):
    """That a person was erased: what went, when, who asked; never content, never the person's id.

    It is no child of its tenant's row: it outlives that. Receipts of a tenant are a chain: each is sealed together with
    the seal of the one before it.
    """

    class Mode(models.TextChoices):
        DELETE = "delete"
        ANONYMIZE = "anonymize"

    class Status(models.TextChoices):
        RUNNING = "running"
        DONE = "done"
        RESTORED = "restored"

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    tenant_id = models.UUIDField(editable=False)
    subject = models.CharField(max_length=64, editable=False, help_text="Keyed hash of tenant and person.")
    pepper_version = models.CharField(max_length=20, editable=False, help_text="Which secret the hash was made with.")
    mode = models.CharField(max_length=10, choices=Mode)
    status = models.CharField(max_length=10, choices=Status, default=Status.RUNNING)
    requested_by = models.CharField(max_length=100, blank=True, default="", help_text="A key, a command, an operator.")
    replays = models.UUIDField(null=True, blank=True, help_text="The receipt that was applied again after a restore.")
    counts: "models.JSONField[Any, Any]" = models.JSONField(default=dict, help_text="Table → rows that went.")
    phases: "models.JSONField[Any, Any]" = models.JSONField(default=dict, help_text="Phase → when it ended.")
    found: "models.JSONField[Any, Any]" = models.JSONField(default=dict, help_text="Table → rows found afterwards.")
    verified = models.BooleanField(null=True, help_text="No row of the person was found afterwards.")
    level = models.CharField(max_length=10, blank=True, default="", help_text="How it was looked for.")
    residuals: "models.JSONField[Any, Any]" = models.JSONField(default=list, help_text="What has it still, until when.")
    version = models.CharField(max_length=40, blank=True, default="", help_text="Of memorygw.")
    number = models.PositiveIntegerField(null=True, help_text="1 for the first of the tenant; gapless.")
    previous = models.CharField(max_length=64, blank=True, default="", help_text="The seal of the one before.")
    seal = models.CharField(max_length=64, blank=True, default="", help_text="Keyed hash of all of it.")
    created_at = models.DateTimeField(db_default=Now(), editable=False, help_text="When it was asked for.")
    finished_at = models.DateTimeField(null=True, blank=True)
    touched_at = models.DateTimeField(db_default=Now(), editable=False, help_text="When somebody was at it last.")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["tenant_id", "number"], name="erasurereceipt_number_once"),
            models.UniqueConstraint(
                fields=["tenant_id", "subject"], condition=Q(status="running"), name="erasurereceipt_one_running"
            ),
        ]

    def __str__(self) -> str:
        return f"Erasure receipt {self.id}"


def default_tenant(**_: Any) -> None:
    """Make the tenant that sessions belong to; connected to post_migrate."""
    Tenant.objects.get_or_create(name=Tenant.DEFAULT)
