"""What the table of this app holds of a person."""

from memorygw.personal_data import CONTENT, PersonalData, declare
from threads.personal import LATE_WORK
from workingmemory.models import WorkingMemoryState

declare(
    PersonalData(
        model=WorkingMemoryState,
        name="notes",
        rows=lambda tenant_id, user_id: WorkingMemoryState.objects.filter(
            thread__tenant_id=tenant_id, thread__user_id=user_id
        ),
        columns=LATE_WORK | {"summary": CONTENT, "facts": CONTENT},
    )
)
