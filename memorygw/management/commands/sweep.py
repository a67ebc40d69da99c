import json
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from memorygw import sweep


class Command(BaseCommand):
    help = "Find background work that is due. With a broker its workers are woken; without one it is done here."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--until-idle", action="store_true", help="Return when nothing that is due is left.")
        parser.add_argument("--timeout", type=float, default=60, help="Seconds to wait for that; then exit with 1.")
        parser.add_argument("--json", action="store_true")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["until_idle"]:
            if not sweep.until_idle(options["timeout"]):
                raise CommandError(f"Still not idle after {options['timeout']:g} seconds.")
            result: dict[str, object] = {"idle": True}
        else:
            result = {"found": sweep.sweep()}
        text = "Idle." if "idle" in result else f"Found {result['found']} due."
        self.stdout.write(json.dumps(result) if options["json"] else text)
