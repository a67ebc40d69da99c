from typing import Any

from django.contrib.auth.models import Group, Permission
from django.core.management.base import BaseCommand
from django.db.models import Q

METADATA = (
    "memorygw.view_tenant",
    "memorygw.view_apikey",
    "memorygw.view_persona",
    "memorygw.view_erasurereceipt",
    "memorygw.view_modelcall",
    "memorygw.view_voicesession",
    "memorygw_threads.view_thread",
    "memorygw_threads.view_titlestate",
    "memorygw_usermemory.view_usermemory",
    "memorygw_usermemory.view_fact",
    "memorygw_usermemory.view_extractionstate",
    "memorygw_usermemory.view_embeddingstate",
    "memorygw_workingmemory.view_workingmemorystate",
)
CONTENT = (*METADATA, "memorygw.read_content")
GROUPS = {
    "memorygw viewer": METADATA,
    "memorygw content viewer": CONTENT,
    "memorygw editor": (
        *CONTENT,
        "memorygw.change_tenant",
        "memorygw.retry_learning",
        "memorygw.add_persona",
        "memorygw.change_persona",
        "memorygw_usermemory.change_usermemory",
        "memorygw_usermemory.change_fact",
        "memorygw_usermemory.delete_fact",
        "memorygw_usermemory.review_fact",
    ),
    "memorygw privacy officer": (
        *CONTENT,
        "memorygw_threads.delete_thread",
        "memorygw_usermemory.change_usermemory",
        "memorygw_usermemory.delete_fact",
        "memorygw_usermemory.forget_user",
        "memorygw_usermemory.anonymize_user",
        "memorygw_usermemory.export_user",
    ),
}


class Command(BaseCommand):
    help = "Make the groups of operators, or give those that are there the permissions that they should have."

    def handle(self, *args: Any, **options: Any) -> None:
        for name, codes in GROUPS.items():
            group, _ = Group.objects.get_or_create(name=name)
            group.permissions.set(Permission.objects.filter(_any_of(codes)))
            self.stdout.write(f"{name}: {len(codes)} permissions")


def _any_of(codes: tuple[str, ...]) -> Q:
    found = Q(pk__in=[])
    for code in codes:
        app, _, codename = code.partition(".")
        found |= Q(content_type__app_label=app, codename=codename)
    return found
