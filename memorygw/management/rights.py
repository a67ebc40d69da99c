"""What the commands about a person's rights share: who is meant, and how a receipt is told."""

import json
from argparse import ArgumentParser
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

from django.core.management.base import BaseCommand, CommandError
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from memorygw import gateway
from memorygw.exceptions import MemorygwError, ThreadBusyError
from memorygw.models import ErasureReceipt
from memorygw.receipts import document

BUSY, UNVERIFIED = 3, 4
"""Exit codes: nothing was done, since a call is running; done, but something was found afterwards."""


def named_tenant(name: str) -> UUID:
    """The id of a tenant, by its name or id; CommandError when there is none."""
    try:
        return gateway.tenant_id(name)
    except MemorygwError as error:
        raise CommandError(str(error)) from None


class ForgetCommand(BaseCommand):
    """Erase a person in the command's mode."""

    mode = ""

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--tenant", required=True, help="Its name.")
        parser.add_argument("--user", required=True, help="The person's external id.")
        parser.add_argument("--dry-run", action="store_true", help="Only say what would go.")
        parser.add_argument("--force", action="store_true", help="Calls that run on the person's threads lose them.")
        parser.add_argument("--json", action="store_true")

    def handle(self, *args: Any, **options: Any) -> None:
        tenant_id, user = named_tenant(options["tenant"]), options["user"]
        try:
            if options["dry_run"]:
                counts = gateway.count_user_data(tenant_id, user)
                self._tell(options, {"mode": self.mode, "status": "dry_run", "counts": counts})
                return
            with progress(shown=self.stdout.isatty() and not options["json"]) as told:
                receipt = gateway.forget_user(
                    tenant_id, user, mode=self.mode, force=options["force"], requested_by="command", told=told
                )
        except ThreadBusyError as error:
            raise CommandError(f"{error} Nothing is erased; --force takes its thread away.", returncode=BUSY) from None
        except MemorygwError as error:
            raise CommandError(str(error)) from None
        self._tell(options, document(receipt))
        if not receipt.verified:
            raise CommandError("Something was found afterwards; see found.", returncode=UNVERIFIED)

    def _tell(self, options: dict[str, Any], told: dict[str, Any]) -> None:
        if options["json"]:
            self.stdout.write(json.dumps(told))
            return
        table = counts_table(told["counts"], title=f"{told['mode']}: {told['status']}")
        self.stdout.write(as_text(table))
        if "id" in told:
            self.stdout.write(f"Receipt {told['id']}, number {told['number']}; verified: {told['verified']}.")


@contextmanager
def progress(*, shown: bool) -> Iterator[Callable[[int, int], None]]:
    """A bar on a terminal, which goes when it is full."""
    with Progress(transient=True, disable=not shown) as bar:
        task = bar.add_task("rows", total=None)
        yield lambda gone, of: bar.update(task, completed=gone, total=of)


def counts_table(counts: dict[str, int], *, title: str) -> Table:
    table = Table("table", "rows", title=title, title_justify="left")
    table.columns[1].justify = "right"
    for name, count in counts.items():
        table.add_row(name, f"{count:,}")
    return table


def receipts_table(receipts: list[ErasureReceipt]) -> Table:
    table = Table("receipt", "mode", "rows", "verified")
    for receipt in receipts:
        table.add_row(str(receipt.pk), receipt.mode, f"{sum(receipt.counts.values()):,}", str(receipt.verified))
    return table


def as_text(table: Table) -> str:
    """A table as lines of a terminal, or of a log."""
    console = Console(width=80)
    with console.capture() as captured:
        console.print(table)
    return captured.get().rstrip()
