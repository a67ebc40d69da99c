"""One pass of the scanner, for cron and for looking at what it finds."""

import json
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from memorygw import sweep


class Command(BaseCommand):
    help = "Have the conversations read that have enough in them that nobody has read, whatever triggers are set."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--json", action="store_true", help="Print one JSON document.")

    def handle(self, *, json: bool, **_: Any) -> None:
        found = sweep.scan()
        self.stdout.write(_document(found) if json else f"Found {found} conversations.")


def _document(found: int) -> str:
    return json.dumps({"found": found})
