from uuid import UUID

from memorygw.claims import late_work
from memorygw.conf import component


@late_work
def update_notes(state_id: str) -> None:
    component("WORKING_MEMORY_STORE").save_context(UUID(state_id))
