from uuid import UUID

import threads.titles
from memorygw.claims import late_work


@late_work
def write_title(state_id: str) -> None:
    threads.titles.write_title(UUID(state_id))
