import json
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from memorygw.exceptions import LedgerError
from memorygw.management.rights import named_tenant
from memorygw.models import ErasureReceipt
from memorygw.receipts import peppers, problems
from memorygw.replay import against_ledger, survivors


class Command(BaseCommand):
    help = "Check that no receipt of an erasure was altered or is missing, and that the ledger has no more of them."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--tenant", help="Only receipts of this tenant.")
        parser.add_argument("--deep", action="store_true", help="Look through every table for the people, too: slow.")
        parser.add_argument("--json", action="store_true")

    def handle(self, *args: Any, **options: Any) -> None:
        tenant_id = named_tenant(options["tenant"]) if options["tenant"] else None
        receipts = ErasureReceipt.objects.filter(**{"tenant_id": tenant_id} if tenant_id else {})
        wrong = [{"receipt": str(pk), "problem": problem} for pk, problem in problems(tenant_id)]
        try:
            wrong += [{"receipt": str(pk), "problem": problem} for pk, problem in against_ledger(tenant_id)]
        except LedgerError as error:
            wrong.append({"receipt": "", "problem": str(error)})
        if options["deep"]:
            known = receipts.filter(pepper_version__in=peppers())
            wrong += [{"receipt": str(pk), "problem": f"found:{name}"} for pk, name in survivors(known)]
        count = receipts.count()
        if options["json"]:
            self.stdout.write(json.dumps({"receipts": count, "problems": wrong}))
        else:
            for line in wrong:
                self.stdout.write(f"{line['receipt']}: {line['problem']}")
            self.stdout.write(f"{count} receipts, {len(wrong)} problems.")
        if wrong:
            raise CommandError("The receipts do not prove what they say.")
