import signal
import sys
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand
from django.core.wsgi import get_wsgi_application
from waitress.server import create_server

from memorygw.api.parsers import MAX_BODY_BYTES
from memorygw.claims import has_broker
from memorygw.conf import conf
from memorygw.management.embedded import EmbeddedWorker
from memorygw.management.welcome import welcome


class Command(BaseCommand):
    help = "Serve the API; without a broker, do the background work in this process too."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--host", default="127.0.0.1")
        parser.add_argument("--port", type=int, default=8000, help="0 takes a free one.")
        parser.add_argument("--threads", type=int, default=32, help="Requests at a time; a waiting one costs little.")

    def handle(self, *args: Any, **options: Any) -> None:
        server: Any = create_server(
            get_wsgi_application(),
            host=options["host"],
            port=options["port"],
            threads=options["threads"],
            # Clients keep connections open that ask for nothing; with more than 1,000, select() would not do.
            connection_limit=options["threads"] + 1_000,
            asyncore_use_poll=True,
            # As gunicorn does: a proxy on this machine may say that the client came by TLS.
            trusted_proxy="127.0.0.1",
            trusted_proxy_headers={"x-forwarded-proto"},
            max_request_body_size=2 * MAX_BODY_BYTES,
            ident=None,
        )
        worker = None if has_broker() else EmbeddedWorker()
        if worker:
            worker.start()
        # A supervisor's way to end a process is the keyboard's.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        base_url = f"http://{options['host']}:{server.effective_port}"
        self.stdout.write(f"memorygw listens on {base_url}")
        self.stdout.write(f"Model client: {conf.LLM_CLIENT}")
        self.stdout.flush()
        for line in welcome(base_url, options["host"]):
            self.stdout.write(line)
        self.stdout.flush()
        try:
            server.run()
        finally:
            server.close()
            if worker:
                worker.stop()
