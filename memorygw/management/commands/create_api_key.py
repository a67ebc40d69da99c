import json
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from memorygw import gateway
from memorygw.exceptions import InvalidError
from memorygw.models import ApiKey


class Command(BaseCommand):
    help = "Make an API key and print it, once. The tenant is made when it is missing."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--tenant", required=True)
        parser.add_argument("--role", choices=ApiKey.Role.values, required=True)
        parser.add_argument("--name", required=True, help="What it is for.")
        parser.add_argument("--json", action="store_true")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            key, text = gateway.create_api_key(options["tenant"], role=options["role"], name=options["name"])
        except InvalidError as error:
            raise CommandError(f"{error} {error.fields}") from None
        if options["json"]:
            document = {"id": str(key.pk), "tenant": key.tenant.name, "role": key.role, "name": key.name, "key": text}
            self.stdout.write(json.dumps(document))
        else:
            self.stdout.write(text)
            self.stderr.write("Keep it safe: only a digest is stored, it is never shown again.")
