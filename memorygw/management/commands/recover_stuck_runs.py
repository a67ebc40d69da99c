import json
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

from memorygw import sweep


class Command(BaseCommand):
    help = "Fail the runs of processes that died: running, and no live lease on their thread."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--json", action="store_true")

    def handle(self, *args: Any, **options: Any) -> None:
        recovered = sweep.recover_stuck_runs()
        self.stdout.write(json.dumps({"recovered": recovered}) if options["json"] else f"Recovered {recovered} runs.")
