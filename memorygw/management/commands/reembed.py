import json
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from memorygw.conf import conf
from memorygw.exceptions import TenantNotFoundError
from memorygw.gateway.arguments import tenant_id
from usermemory.embedding import mark_outdated


class Command(BaseCommand):
    help = "Have the facts read anew that have no vector of the configured embedding model. The sweep does the work."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--tenant", help="Only facts of this tenant.")
        parser.add_argument("--json", action="store_true")

    def handle(self, *args: Any, **options: Any) -> None:
        if not conf.EMBEDDING_MODEL:
            raise CommandError("There is no embedder: MEMORYGW_EMBEDDING_MODEL is empty.")
        try:
            owners = mark_outdated(tenant_id(options["tenant"]) if options["tenant"] else None)
        except TenantNotFoundError as error:
            raise CommandError(str(error)) from None
        self.stdout.write(json.dumps({"owners": owners}) if options["json"] else f"{owners} owners of facts are due.")
