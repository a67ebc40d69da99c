import json
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

from memorygw.expiry import erase_expired
from memorygw.management.rights import as_text, counts_table


class Command(BaseCommand):
    help = "Take away what is older than MEMORYGW_RETENTION_DAYS allows. The sweep does it every hour."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--dry-run", action="store_true", help="Only say what would go.")
        parser.add_argument("--json", action="store_true")

    def handle(self, *args: Any, **options: Any) -> None:
        counts = erase_expired(dry_run=options["dry_run"])
        told = {"dry_run": options["dry_run"], "counts": counts}
        title = "would go" if options["dry_run"] else "gone"
        self.stdout.write(json.dumps(told) if options["json"] else as_text(counts_table(counts, title=title)))
