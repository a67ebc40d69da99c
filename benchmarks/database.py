"""A database of its own for one run: made before, dropped after, whatever DATABASE_URL names stays untouched."""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import django
from django.db import connection


def configure() -> None:
    """Django with the settings of this package, without debugging and without the files that development keeps."""
    os.environ["DJANGO_SETTINGS_MODULE"] = "benchmarks.settings"
    os.environ["DEBUG"] = "false"
    os.environ.setdefault("SECRET_KEY", "only for benchmarks " * 3)
    os.environ.setdefault("MEMORYGW_PEPPER", "1:only for benchmarks")
    if not os.environ.get("DATABASE_URL"):
        os.environ["DATABASE_URL"] = "sqlite:///:memory:"
    django.setup()
    # A killed run drops its database too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))


@contextmanager
def temporary_database() -> Iterator[None]:
    with TemporaryDirectory(prefix="memorygw_bench_") as folder:
        name = f"memorygw_bench_{os.getpid()}"
        before = connection.settings_dict["NAME"]
        test = connection.settings_dict["TEST"]
        test["NAME"] = str(Path(folder) / name) if connection.vendor == "sqlite" else name
        connection.creation.create_test_db(verbosity=0, autoclobber=True, serialize=False)
        try:
            yield
        finally:
            connection.creation.destroy_test_db(before, verbosity=0)
