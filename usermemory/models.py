"""What is known about a user across threads."""

from uuid import UUID

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from memorygw.claims import LateWork
from memorygw.ids import new_id
from memorygw.models import Tenant


class UserMemory(models.Model):
    """The user's record: what outlives the facts. Writers of facts lock it, so that none of two writes is lost."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    tenant = models.ForeignKey(Tenant, models.CASCADE, related_name="+", db_index=False)
    user_id = models.CharField(max_length=255)
    cleared_at = models.DateTimeField(null=True, blank=True, help_text="Turns stored up to then are not learned from.")
    erasing_at = models.DateTimeField(null=True, blank=True, help_text="Being erased: no job may write any more.")
    created_at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        verbose_name_plural = "user memories"
        constraints = [models.UniqueConstraint(fields=["tenant", "user_id"], name="usermemory_one_per_user")]

    def __str__(self) -> str:
        return f"User memory {self.id}"


class FactQuerySet(models.QuerySet["Fact"]):
    def of_user(self, tenant_id: UUID | None, user_id: str) -> "FactQuerySet":
        """Rows of scope user. Fails closed: no tenant or no user is an error, never "all"."""
        if tenant_id is None or not user_id:
            raise ValueError("A tenant and a user are required.")
        return self.filter(tenant_id=tenant_id, scope=Fact.Scope.USER, owner_id=user_id)

    def personal_to(self, tenant_id: UUID, user_id: str) -> "FactQuerySet":
        """Everything that is about this user alone, in every scope and status: what clearing and erasing take."""
        shared_with_persona = Q(tenant_id=tenant_id, scope=Fact.Scope.PERSONA_USER, user_id=user_id)
        return self.of_user(tenant_id, user_id) | self.filter(shared_with_persona)

    def active(self) -> "FactQuerySet":
        return self.filter(status=Fact.Status.ACTIVE)

    def in_order(self) -> "FactQuerySet":
        """The order in which they came: stable, so that prompts keep their beginning when one value changes (U36)."""
        return self.order_by("created_at", "id")


class Fact(models.Model):
    """One thing to remember: a key and a value, or a free text (C3)."""

    class Scope(models.TextChoices):
        USER = "user"
        PERSONA = "persona"
        PERSONA_USER = "persona_user"

    class Kind(models.TextChoices):
        KEYED = "keyed"
        TEXT = "text"

    class Status(models.TextChoices):
        ACTIVE = "active"
        PENDING_REVIEW = "pending_review"
        ARCHIVED = "archived"

    class Origin(models.TextChoices):
        AUTO = "auto"
        MANUAL = "manual"
        TOOL = "tool"

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    tenant = models.ForeignKey(Tenant, models.CASCADE, related_name="+", db_index=False)
    scope = models.CharField(max_length=12, choices=Scope, default=Scope.USER)
    owner_id = models.CharField(max_length=255, help_text="The user's external id, or the persona's id.")
    user_id = models.CharField(max_length=255, blank=True, default="", help_text="Only in scope persona_user.")
    kind = models.CharField(max_length=5, choices=Kind, default=Kind.KEYED)
    key = models.TextField(blank=True, default="", help_text="As last written; empty for a free text.")
    value = models.TextField()
    identity = models.CharField(
        max_length=64, editable=False, help_text="Digest of the normalised key (or text): a long one fits no index."
    )
    status = models.CharField(max_length=16, choices=Status, default=Status.ACTIVE)
    origin = models.CharField(max_length=8, choices=Origin)
    confidence = models.FloatField(default=1.0)
    source_thread = models.ForeignKey(
        "memorygw_threads.Thread", models.SET_NULL, null=True, blank=True, related_name="+"
    )
    source_seq = models.PositiveIntegerField(
        null=True, blank=True, help_text="The user's turn of the source thread that was quoted as evidence."
    )
    created_at = models.DateTimeField(db_default=Now(), editable=False)
    updated_at = models.DateTimeField(db_default=Now())

    objects = FactQuerySet.as_manager()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["tenant", "scope", "owner_id", "user_id", "identity"],
                condition=Q(status="active"),
                name="fact_one_active_per_identity",
            ),
            models.CheckConstraint(
                condition=Q(scope__in=["user", "persona"], user_id="") | (Q(scope="persona_user") & ~Q(user_id="")),
                name="fact_user_only_in_scope_persona_user",
            ),
            models.CheckConstraint(condition=~Q(owner_id=""), name="fact_has_an_owner"),
            models.CheckConstraint(
                condition=(Q(kind="keyed") & ~Q(key="")) | Q(kind="text", key=""), name="fact_has_a_key_unless_text"
            ),
            models.CheckConstraint(condition=Q(confidence__gte=0, confidence__lte=1), name="fact_confidence_0_to_1"),
        ]
        indexes = [
            models.Index(
                fields=["tenant", "scope", "owner_id", "user_id", "status", "created_at"], name="fact_of_owner"
            )
        ]

    def __str__(self) -> str:
        return f"Fact {self.id}"


class ExtractionState(LateWork):
    """How far a thread has been read for facts. One marker per thread, so each turn is read once (K18)."""

    thread = models.OneToOneField("memorygw_threads.Thread", models.CASCADE, primary_key=True, related_name="+")

    class Meta(LateWork.Meta):
        pass

    def __str__(self) -> str:
        return f"Extraction of thread {self.thread_id}"
