import os
from argparse import ArgumentParser
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from memorygw import gateway
from memorygw.exceptions import TenantNotFoundError, UserRequiredError


class Command(BaseCommand):
    help = "Write everything that is stored about a person as one JSON document."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--tenant", required=True)
        parser.add_argument("--user", required=True, help="The person's external id.")
        parser.add_argument("--output", type=Path, help="A new file, which only its owner can read; else the output.")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            chunks = gateway.export_user(options["tenant"], options["user"])
        except (TenantNotFoundError, UserRequiredError) as error:
            raise CommandError(str(error)) from None
        if options["output"]:
            _write(options["output"], chunks)
            return
        # JSON is UTF-8, whatever the locale says.
        if reconfigure := getattr(self.stdout, "reconfigure", None):
            reconfigure(encoding="utf-8")
        for chunk in chunks:
            self.stdout.write(chunk, ending="")
        self.stdout.write("")


def _write(path: Path, chunks: Iterable[str]) -> None:
    """A file of mode 0600 that is whole or not there. One that exists is kept: it may be readable by others."""
    try:
        with open(path, "x", encoding="utf-8", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            try:
                file.writelines(chunks)
                file.write("\n")
            except BaseException:
                path.unlink()
                raise
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror}") from None
