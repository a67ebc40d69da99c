"""`make eval`: what the configured models make of six small talks; on a SQLite file that goes at the end."""

import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import django
from rich.console import Console
from rich.table import Table

from tests.evals.judging import RUNS, Result, Run

NO_MODEL = (
    "Nothing was evaluated: no language model is configured. Set OPENAI_API_KEY, or MEMORYGW_LLM_BASE_URL and "
    "MEMORYGW_LLM_API_KEY, and name the models in MEMORYGW_MODEL and MEMORYGW_CHEAP_MODEL."
)
OFFLINE = "memorygw.llm.offline.OfflineClient"


def main() -> None:
    with TemporaryDirectory(prefix="memorygw_evals_") as folder:
        configure(Path(folder) / "evals.sqlite3")
        if complaints := evaluate():
            sys.exit("\n".join(["", *complaints]))


def configure(database: Path) -> None:
    """Django with the standalone settings; exits when they name no model."""
    os.environ |= {
        "DJANGO_SETTINGS_MODULE": "memorygw.settings",
        "DEBUG": "false",
        "SECRET_KEY": "only for evaluations " * 3,
        "MEMORYGW_PEPPER": "1:only for evaluations",
        "DATABASE_URL": f"sqlite:///{database}",
        # All work is done here, and nothing but what is evaluated.
        "MEMORYGW_BROKER_URL": "",
        "CELERY_BROKER_URL": "",
        "MEMORYGW_EXTRACTION_ENABLED": "true",
        "MEMORYGW_TITLES_ENABLED": "false",
    }
    django.setup()
    from memorygw.conf import MODEL_VARIABLES, conf

    if conf.LLM_CLIENT == OFFLINE or not any(os.environ.get(name) for name in MODEL_VARIABLES):
        sys.exit(NO_MODEL)


def evaluate() -> list[str]:
    """Hold the talks and show what came of them; everything that is wrong, a line each."""
    # Models can be imported only now.
    from django.core.management import call_command
    from django.db import connection

    from memorygw.conf import conf
    from memorygw.models import Tenant
    from tests.evals import running

    console = Console(width=None if sys.stdout.isatty() else 100, highlight=False, markup=False)
    # A failed attempt is told in the table.
    logging.disable(logging.WARNING)
    call_command("migrate", verbosity=0)
    tenant = Tenant.objects.get(name=Tenant.DEFAULT)
    learner = conf.MEMORY_MODEL or conf.CHEAP_MODEL
    console.print(f"{conf.MODEL} answers, {learner} learns; {RUNS} runs of each talk.")
    with console.status("Talking …"):
        results = running.evaluate(tenant)
    console.print(table(results))
    off = running.evaluate_without_model(tenant)
    console.print(f"model off: {off.facts} facts, {off.waiting} of {off.talks} talks wait for another attempt")
    connection.close()
    return [line for result in results for line in result.complaints] + off.complaints


def table(results: Sequence[Result]) -> Table:
    grid = Table("talk", "must", "never", "verdict", "learned, run by run", show_lines=True)
    for result in results:
        counts = (f"{result.held} of {len(result.runs)}", f"{result.crossed} of {len(result.runs)}")
        learned = "\n".join(f"{number}. {shown(run)}" for number, run in enumerate(result.runs, 1))
        grid.add_row(result.talk.id, *counts, "FAILED" if result.complaints else "passed", learned)
    return grid


def shown(run: Run) -> str:
    return run.problem or "; ".join(f"{fact.key}: {fact.value}" for fact in run.facts) or "–"


if __name__ == "__main__":
    main()
