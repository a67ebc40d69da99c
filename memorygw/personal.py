"""What the tables of this app hold of a person."""

from uuid import UUID

from django.db.models import QuerySet

from memorygw.models import ApiKey, ErasureReceipt, IdempotencyKey, ModelCall, Persona, Tenant, VoiceBatch, VoiceSession
from memorygw.personal_data import CONTENT, IDENTIFIER, INTERNAL, NotPersonal, PersonalData, declare
from threads.personal import LATE_WORK, threads_of


def _calls_of(tenant_id: UUID, user_id: str) -> "QuerySet[ModelCall]":
    return ModelCall.objects.filter(thread_id__in=threads_of(tenant_id, user_id).values("pk"))


declare(
    PersonalData(
        model=ModelCall,
        name="model_calls",
        rows=_calls_of,
        columns={"thread_id": INTERNAL, "run_id": INTERNAL, "kind": INTERNAL, "model": INTERNAL, "outcome": INTERNAL},
        # What was used has been used; only whose it was is forgotten.
        unlinked={"thread_id": None, "run_id": None},
    ),
    PersonalData(
        model=VoiceBatch,
        name="voice_batches",
        rows=lambda tenant_id, user_id: VoiceBatch.objects.filter(
            session__tenant_id=tenant_id, session__user_id=user_id
        ),
        columns={"fragments": CONTENT},
    ),
    PersonalData(
        model=VoiceSession,
        name="voice_sessions",
        rows=lambda tenant_id, user_id: VoiceSession.objects.filter(tenant_id=tenant_id, user_id=user_id),
        columns=LATE_WORK | {"user_id": IDENTIFIER},
    ),
    PersonalData(
        model=IdempotencyKey,
        name="idempotency_keys",
        rows=lambda tenant_id, user_id: IdempotencyKey.objects.filter(tenant_id=tenant_id, user_id=user_id),
        columns={"user_id": IDENTIFIER, "digest": INTERNAL, "fingerprint": INTERNAL, "claim_token": INTERNAL},
    ),
    NotPersonal(Tenant, "An organisation."),
    NotPersonal(ApiKey, "A program's."),
    NotPersonal(Persona, "What an operator wrote about a model."),
    NotPersonal(ErasureReceipt, "A person only as a keyed hash, and only to recognise them after a restore."),
)
