from uuid import UUID

from memorygw.claims import late_work
from memorygw.conf import component
from usermemory import embedding


@late_work
def extract_facts(state_id: str) -> None:
    component("USER_MEMORY_STORE").extract(UUID(state_id))


@late_work
def embed_facts(state_id: str) -> None:
    embedding.embed_facts(UUID(state_id))
