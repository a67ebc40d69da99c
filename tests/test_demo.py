"""`make demo`, as somebody runs it who has just cloned the project."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from memorygw.testing import RecordedRequest, ScriptedModelServer

MANAGE = Path(__file__).resolve().parent.parent / "manage.py"
OURS = ("MEMORYGW_", "CELERY_", "OPENAI_", "DATABASE_URL", "DJANGO_SETTINGS_MODULE", "SECRET_KEY", "DEBUG", "COLUMNS")


def _hears_interrupts() -> None:
    """A shell starts what is in its background deaf to them."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@contextmanager
def demo(folder: Path, **settings: str) -> Iterator["subprocess.Popen[str]"]:
    """The demo in an environment without settings, run from elsewhere, with its temporary files under ``folder``."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
    # An empty variable wins over a developer's .env.
    own = {"DEBUG": "true", "TMPDIR": str(folder), "OPENAI_API_KEY": "", "MEMORYGW_LLM_BASE_URL": ""}
    with subprocess.Popen(
        preexec_fn=_hears_interrupts,
        args=[sys.executable, str(MANAGE), "demo"],
        cwd=folder,
        env={**clean, **own, **settings},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.terminate()


def words(text: str) -> str:
    """The text without frames and line ends, so that it can be searched wherever it wraps."""
    return " ".join(text.replace("│", " ").split())


def test_demo_shows_memory_and_erasure(tmp_path: Path) -> None:
    with demo(tmp_path) as process:
        output, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (0, "")
    shown = words(output)
    assert "The offline model" in shown
    assert "(Offline model" not in shown
    for fact in ("home Turin thread 1, turn 1", "allergy peanuts thread 1, turn 3"):
        assert fact in shown
    assert "home: Turin allergy: peanuts" in shown
    assert "2 assistant I know nothing about you yet. ok There is no memory block in Bob's prompt" in shown
    assert "Notes on turns 1 to" in shown
    assert "Verified: the gateway looked again and found nothing of hers" in shown
    assert "Bob's thread is untouched" in shown
    assert max(map(len, output.splitlines())) <= 80
    assert "\x1b" not in output
    assert not list(tmp_path.iterdir())


def test_demo_with_a_real_model_does_not_ask_for_certain_facts(tmp_path: Path) -> None:
    def learn(request: RecordedRequest) -> dict[str, object]:
        if '"operations"' not in request.text:
            return {"summary": "Small talk.", "facts": []}
        taught = "Ada" in request.text
        return {"operations": [{"op": "SET", "key": "lives in", "value": "northern Italy"}] if taught else []}

    with ScriptedModelServer() as model:
        model.default = "Hello!"
        model.defaults = {"cheap": learn}
        settings = {"LLM_BASE_URL": model.base_url, "LLM_API_KEY": "none", "MODEL": "main", "CHEAP_MODEL": "cheap"}
        with demo(tmp_path, **{f"MEMORYGW_{name}": value for name, value in settings.items()}) as process:
            output, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (0, "")
    assert "main; cheap learns." in output
    assert "lives in northern Italy thread 1" in words(output)
    assert "Offline" not in output


def test_demo_that_fails_says_why_and_leaves_nothing(tmp_path: Path) -> None:
    with ScriptedModelServer() as model:
        model.fail(401, times=100)
        with demo(tmp_path, MEMORYGW_LLM_BASE_URL=model.base_url, MEMORYGW_LLM_API_KEY="wrong") as process:
            _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "CommandError: POST /api/v1/ask was answered with 502" in errors
    assert "The end of the server's log" in errors
    assert "Traceback" not in errors
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_demo_that_is_stopped_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    with ScriptedModelServer() as model, demo(tmp_path, MEMORYGW_LLM_BASE_URL=model.base_url) as process:
        with model.hold():
            model.wait_for_requests(1, timeout_seconds=30)
            process.send_signal(number)
        process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert not list(tmp_path.iterdir())
