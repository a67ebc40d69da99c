"""The notes of a thread."""

from typing import Any

from django.db import models

from memorygw.claims import LateWork


class WorkingMemoryState(LateWork):
    """Summary and facts of one conversation, and how many turns they cover (`turn_count` to the outside)."""

    kind = "notes"

    thread = models.OneToOneField("memorygw_threads.Thread", models.CASCADE, primary_key=True, related_name="+")
    summary = models.TextField(blank=True, default="")
    facts: "models.JSONField[Any, Any]" = models.JSONField(default=list, blank=True)
    updated_at = models.DateTimeField(null=True, blank=True)

    class Meta(LateWork.Meta):
        pass

    @property
    def turn_count(self) -> int:
        return self.covered

    def __str__(self) -> str:
        return f"Working memory of thread {self.thread_id}"
