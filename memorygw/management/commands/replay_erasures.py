import json
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from memorygw.conf import conf
from memorygw.exceptions import LedgerError
from memorygw.management.rights import as_text, receipts_table
from memorygw.receipts import document
from memorygw.replay import people_to_erase, replay


class Command(BaseCommand):
    help = "After a backup was restored: erase again whom the ledger tells of and the database does not."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--dry-run", action="store_true", help="Only say how many people that would be.")
        parser.add_argument("--json", action="store_true")

    def handle(self, *args: Any, **options: Any) -> None:
        if not conf.ERASURE_LEDGER:
            raise CommandError("There is no ledger: MEMORYGW_ERASURE_LEDGER is empty.")
        try:
            if options["dry_run"]:
                found = len(people_to_erase())
                self.stdout.write(json.dumps({"people": found}) if options["json"] else f"{found} people are back.")
                return
            receipts = replay()
        except LedgerError as error:
            raise CommandError(str(error)) from None
        if options["json"]:
            self.stdout.write(json.dumps({"receipts": [document(receipt) for receipt in receipts]}))
        else:
            self.stdout.write(as_text(receipts_table(receipts)) if receipts else "Nobody is back.")
