"""What is known about a user across threads."""

import hashlib
from dataclasses import dataclass
from uuid import UUID

import regex
from django.db import models
from django.db.models import CharField, F, Q
from django.db.models.functions import Cast, Now

from memorygw.claims import LateWork, LateWorkQuerySet
from memorygw.ids import new_id
from memorygw.models import Tenant
from memorygw.retention import kept
from memorygw.text import fold, normalize_key, normalize_text

_SHOWN_KEY = regex.compile(r"fact-(?P<end>[0-9a-f]{12})")


class UserMemory(models.Model):
    """The user's record: what outlives the facts. Writers of facts lock it, so that none of two writes is lost."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    tenant = models.ForeignKey(Tenant, models.CASCADE, related_name="+", db_index=False)
    user_id = models.CharField(max_length=255)
    memory_enabled = models.BooleanField(default=True, help_text="False: memory of them is neither read nor written.")
    cleared_at = models.DateTimeField(null=True, blank=True, help_text="Turns stored up to then are not learned from.")
    erasing_at = models.DateTimeField(null=True, blank=True, help_text="Being erased: no job may write any more.")
    created_at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        verbose_name, verbose_name_plural = "person", "people"
        permissions = [
            ("forget_user", "Can forget people"),
            ("anonymize_user", "Can anonymise people"),
            ("export_user", "Can export what is kept of people"),
        ]
        constraints = [models.UniqueConstraint(fields=["tenant", "user_id"], name="usermemory_one_per_user")]

    def __str__(self) -> str:
        return f"User memory {self.id}"


@dataclass(frozen=True)
class Owner:
    """Whose a fact is: a user's, a persona's, or a user's with one persona (R17–R19)."""

    scope: str
    owner_id: str
    user_id: str = ""

    @classmethod
    def user(cls, user_id: str) -> "Owner":
        return cls("user", user_id)

    @classmethod
    def persona(cls, persona_id: UUID) -> "Owner":
        return cls("persona", str(persona_id))

    @classmethod
    def persona_user(cls, persona_id: UUID, user_id: str) -> "Owner":
        return cls("persona_user", str(persona_id), user_id)

    @property
    def person(self) -> str:
        """The user it is about; empty for a persona's."""
        return self.owner_id if self.scope == "user" else self.user_id


def _personal(tenant_id: UUID | None, user_id: str) -> Q:
    """Rows that are about this user alone, in every scope. Fails closed, like `FactQuerySet.of_user`."""
    if tenant_id is None or not user_id:
        raise ValueError("A tenant and a user are required.")
    own, with_persona = Q(scope=Fact.Scope.USER, owner_id=user_id), Q(scope=Fact.Scope.PERSONA_USER, user_id=user_id)
    return Q(own | with_persona, tenant_id=tenant_id)


class FactQuerySet(models.QuerySet["Fact"]):
    def of_user(self, tenant_id: UUID | None, user_id: str) -> "FactQuerySet":
        """Rows of scope user. Fails closed: no tenant or no user is an error, never "all"."""
        if tenant_id is None or not user_id:
            raise ValueError("A tenant and a user are required.")
        return self.filter(tenant_id=tenant_id, scope=Fact.Scope.USER, owner_id=user_id)

    def of(self, tenant_id: UUID, owner: Owner) -> "FactQuerySet":
        """Rows of one owner, in every status."""
        return self.filter(tenant_id=tenant_id, scope=owner.scope, owner_id=owner.owner_id, user_id=owner.user_id)

    def in_reach(self, tenant_id: UUID, user_id: str, persona_id: UUID | None) -> "FactQuerySet":
        """Rows that apply to a user who talks to a persona: their own, the persona's, and theirs with it (R95)."""
        if persona_id is None:
            return self.of_user(tenant_id, user_id)
        owner = {"tenant_id": tenant_id, "owner_id": str(persona_id)}
        shared = self.filter(**owner, scope=Fact.Scope.PERSONA)
        return self.of_user(tenant_id, user_id) | shared | self.filter(**owner, scope="persona_user", user_id=user_id)

    def personal_to(self, tenant_id: UUID, user_id: str) -> "FactQuerySet":
        """Everything that is about this user alone, in every scope and status: what clearing and erasing take."""
        return self.filter(_personal(tenant_id, user_id))

    def keyed(self, key: str) -> "FactQuerySet":
        return self.filter(identity=identity(key))

    def named(self, key: str) -> "FactQuerySet":
        """Rows that a person sees under this key: those that have it, and the free text that is shown under it (C3)."""
        if shown := _SHOWN_KEY.fullmatch(normalize_key(key)):
            return self.alias(digits=Cast("pk", CharField())).filter(kind="text", digits__endswith=shown["end"])
        return self.keyed(key)

    def matching(self, query: str) -> "FactQuerySet":
        """Rows whose key or value holds every word of ``query``, whatever its case; no character is special (K19)."""
        found = self
        for word in set(fold(query).split()):
            found = found.filter(searchable__contains=word)
        return found

    def pending(self) -> "FactQuerySet":
        return self.filter(status=Fact.Status.PENDING_REVIEW)

    def active(self) -> "FactQuerySet":
        return self.filter(status=Fact.Status.ACTIVE)

    def kept(self, tenant_id: UUID) -> "FactQuerySet":
        """Those whose time is not over: what a reader gets. A writer sees all of them. A persona's are nobody's, and
        have no time."""
        within = kept(tenant_id, "facts")
        return self.filter(Q(scope=Fact.Scope.PERSONA) | within) if within else self.all()

    def shown(self) -> "FactQuerySet":
        """Without the columns that only searching needs."""
        return self.defer("embedding", "searchable")

    def without_vector(self, model: str) -> "FactQuerySet":
        """Active and pending facts that the embedding model of this name has not read as they are now."""
        return self.filter(status__in=[Fact.Status.ACTIVE, Fact.Status.PENDING_REVIEW]).exclude(embedding_model=model)

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

    class Operation(models.TextChoices):
        SET = "set"
        DELETE = "delete"

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
    operation = models.CharField(
        max_length=6, choices=Operation, default=Operation.SET, help_text="What approving does: delete, only in review."
    )
    rejected = models.BooleanField(default=False, help_text="Archived by a reviewer's no: not proposed again.")
    searchable = models.TextField(editable=False, help_text="Key and value, folded: what a filter looks in.")
    origin = models.CharField(max_length=8, choices=Origin)
    confidence = models.FloatField(default=1.0)
    source_thread = models.ForeignKey(
        "memorygw_threads.Thread", models.SET_NULL, null=True, blank=True, related_name="+"
    )
    source_seq = models.PositiveIntegerField(
        null=True, blank=True, help_text="The user's turn of the source thread that was quoted as evidence."
    )
    embedding = models.BinaryField(null=True, help_text="Its vector: float32, little-endian.")
    embedding_model = models.CharField(
        max_length=200, blank=True, default="", editable=False, help_text="Whose vector it is; empty: there is none."
    )
    created_at = models.DateTimeField(db_default=Now(), editable=False)
    updated_at = models.DateTimeField(db_default=Now())

    objects = FactQuerySet.as_manager()

    class Meta:
        permissions = [("review_fact", "Can approve and reject facts")]
        constraints = [
            models.UniqueConstraint(
                fields=["tenant", "scope", "owner_id", "user_id", "identity"],
                condition=Q(status="active"),
                name="fact_one_active_per_identity",
            ),
            models.UniqueConstraint(
                fields=["tenant", "scope", "owner_id", "user_id", "identity"],
                condition=Q(status="pending_review"),
                name="fact_one_pending_per_identity",
            ),
            models.CheckConstraint(
                condition=Q(status__in=["active", "pending_review", "archived"]), name="fact_status_is_known"
            ),
            models.CheckConstraint(
                condition=Q(operation="set") | (Q(operation="delete") & ~Q(status="active")),
                name="fact_active_is_no_deletion",
            ),
            models.CheckConstraint(
                condition=Q(scope__in=["user", "persona"], user_id="") | (Q(scope="persona_user") & ~Q(user_id="")),
                name="fact_user_only_in_scope_persona_user",
            ),
            models.CheckConstraint(condition=~Q(owner_id=""), name="fact_has_an_owner"),
            models.CheckConstraint(
                condition=(Q(kind="keyed") & ~Q(key="")) | Q(kind="text", key=""), name="fact_has_a_key_unless_text"
            ),
            models.CheckConstraint(
                condition=Q(embedding__isnull=True, embedding_model="")
                | (Q(embedding__isnull=False) & ~Q(embedding_model="")),
                name="fact_vector_names_its_model",
            ),
            models.CheckConstraint(condition=Q(confidence__gte=0, confidence__lte=1), name="fact_confidence_0_to_1"),
        ]
        indexes = [
            models.Index(
                fields=["tenant", "scope", "owner_id", "user_id", "status", "created_at"], name="fact_of_owner"
            ),
            models.Index(
                fields=["tenant", "user_id"], condition=Q(scope="persona_user"), name="fact_of_user_with_persona"
            ),
            models.Index(
                fields=["tenant", "created_at"], condition=Q(status="pending_review"), name="fact_to_be_reviewed"
            ),
        ]

    def __str__(self) -> str:
        return f"Fact {self.id}"

    @property
    def text(self) -> str:
        """What it says, as a line of a prompt."""
        return f"{self.key}: {self.value}" if self.key else self.value

    @property
    def shown_key(self) -> str:
        """Its key; for a free text, which has none, one to name it by (C3)."""
        return self.key or f"fact-{self.pk.hex[-12:]}"


def is_shown_key(key: str) -> bool:
    """Whether the key is of the form that free texts are shown under, which no other fact may have."""
    return bool(_SHOWN_KEY.fullmatch(normalize_key(key)))


def identity(key: str, value: str = "") -> str:
    """What makes two facts of one owner the same: the key, or without one the text. A digest, since what is long fits
    no index row."""
    same = normalize_key(key) if key or not value else f"\n{normalize_text(value)}"
    return hashlib.sha256(same.encode()).hexdigest()


class ExtractionState(LateWork):
    """How far a thread has been read for facts. One marker per thread, so each turn is read once (K18)."""

    kind = "extraction"

    thread = models.OneToOneField("memorygw_threads.Thread", models.CASCADE, primary_key=True, related_name="+")
    scanned_turns = models.PositiveIntegerField(
        null=True, blank=True, help_text="Turns at which the scanner found it due; a later answer overrules that."
    )

    class Meta(LateWork.Meta):
        indexes = [
            *LateWork.Meta.indexes,
            models.Index(fields=["thread"], condition=Q(answered__gt=F("covered")), name="extraction_unread"),
        ]

    @property
    def is_scanned(self) -> bool:
        """Whether the extraction that is due is the scanner's, not one behind an answer."""
        return self.scanned_turns == self.answered

    def __str__(self) -> str:
        return f"Extraction of thread {self.thread_id}"


class EmbeddingState(LateWork):
    """Whether facts of an owner wait for their vectors. One row per owner: the facts say themselves which of them."""

    kind = "embedding"
    # These count turns, and no thread is read here.
    covered = answered = None  # type: ignore[assignment]

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    tenant = models.ForeignKey(Tenant, models.CASCADE, related_name="+", db_index=False)
    scope = models.CharField(max_length=12, choices=Fact.Scope)
    owner_id = models.CharField(max_length=255)
    user_id = models.CharField(max_length=255, blank=True, default="")

    class Meta(LateWork.Meta):
        constraints = [
            models.UniqueConstraint(
                fields=["tenant", "scope", "owner_id", "user_id"], name="embeddingstate_one_per_owner"
            )
        ]

    def __str__(self) -> str:
        return f"Embedding {self.id}"

    @property
    def owner(self) -> Owner:
        return Owner(self.scope, self.owner_id, self.user_id)

    @property
    def facts(self) -> FactQuerySet:
        return Fact.objects.of(self.tenant_id, self.owner)

    @classmethod
    def personal_to(cls, tenant_id: UUID, user_id: str) -> LateWorkQuerySet:
        """The rows that hold this user's id: what erasing takes."""
        return cls.objects.filter(_personal(tenant_id, user_id))
