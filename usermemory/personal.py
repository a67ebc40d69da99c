"""What the tables of this app hold of a person."""

from memorygw.personal_data import CONTENT, IDENTIFIER, INTERNAL, PersonalData, declare
from threads.personal import LATE_WORK
from usermemory.models import EmbeddingState, ExtractionState, Fact, UserMemory

declare(
    PersonalData(
        model=Fact,
        name="facts",
        rows=Fact.objects.personal_to,
        columns={
            "scope": INTERNAL,
            "owner_id": IDENTIFIER,
            "user_id": IDENTIFIER,
            "kind": INTERNAL,
            "key": CONTENT,
            "value": CONTENT,
            "identity": INTERNAL,
            "status": INTERNAL,
            "operation": INTERNAL,
            "searchable": CONTENT,
            "origin": INTERNAL,
            "embedding": CONTENT,
            "embedding_model": INTERNAL,
        },
    ),
    PersonalData(
        model=ExtractionState,
        name="extraction_states",
        rows=lambda tenant_id, user_id: ExtractionState.objects.filter(
            thread__tenant_id=tenant_id, thread__user_id=user_id
        ),
        columns=LATE_WORK,
    ),
    PersonalData(
        model=EmbeddingState,
        name="embedding_states",
        rows=EmbeddingState.personal_to,
        columns=LATE_WORK | {"scope": INTERNAL, "owner_id": IDENTIFIER, "user_id": IDENTIFIER},
    ),
    PersonalData(
        model=UserMemory,
        name="records",
        rows=lambda tenant_id, user_id: UserMemory.objects.filter(tenant_id=tenant_id, user_id=user_id),
        columns={"user_id": IDENTIFIER},
    ),
)
