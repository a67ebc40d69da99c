"""What must not get into a log."""

import json
import logging
import sys
from collections.abc import Callable, Generator, Iterator
from typing import Any

import pytest
from django.conf import settings as django_settings
from pytest_django import Settings

from memorygw.logs import JSONLines, Lines, WithoutPath, carried, in_request
from memorygw.testing import ScriptedModelServer
from tests.conftest import Api, learn
from usermemory.store import UserMemoryStore

SECRETS = ("ada@example.com", "shoe size", "Forty-two", "I wear")


class BrokenStore(UserMemoryStore):
    def remove_fact(self, *args: Any) -> bool:
        raise ZeroDivisionError


class Recorder(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


@pytest.fixture
def records() -> Iterator[list[logging.LogRecord]]:
    """Everything that is logged anywhere, by the loggers as the settings set them up."""
    recorder = Recorder()
    loggers = [logging.getLogger(), logging.getLogger("django")]
    for logger in loggers:
        logger.addHandler(recorder)
    yield recorder.records
    for logger in loggers:
        logger.removeHandler(recorder)


def test_a_failed_request_is_logged_by_its_route_and_says_nothing_of_the_person(
    api: Api, settings: Settings, records: list[logging.LogRecord]
) -> None:
    settings.MEMORYGW_USER_MEMORY_STORE = "tests.memorygw.test_logs.BrokenStore"
    reply = api("DELETE", "/facts/shoe%20size", user="ada@example.com")
    assert (reply.status, reply.error["code"]) == (500, "internal")
    lines = [record.getMessage() for record in records]
    assert "Internal Server Error: DELETE api/v1/facts/<path:key>" in lines
    # Django writes it when the view is over.
    told = "\n".join(plain().format(record) for record in records)
    assert f" django.request {reply.headers['X-Request-ID']}: Internal Server Error: " in told
    assert not [line for line in lines for secret in SECRETS if secret in line]


def test_learning_and_failing_log_ids_and_codes_only(
    api: Api, model: ScriptedModelServer, records: list[logging.LogRecord]
) -> None:
    api.user = "ada@example.com"
    model.reply({"operations": [{"op": "SET", "key": "shoe size", "value": "Forty-two"}, "I wear"]}, model="cheap")
    thread_id = api.ask("I wear forty-two.").body["thread_id"]
    model.fail(500, model="main", error={"message": "I wear"})
    api.ask("I wear forty-two.", thread_id)
    learn()
    assert api.facts() == {"shoe size": "Forty-two"}
    lines = [f"{record.getMessage()} {record.exc_info}" for record in records if record.name != "faker"]
    assert [line for line in lines if "1 applied, 1 skipped" in line]
    ours = [
        line for record, line in zip(records, lines, strict=True) if not record.name.startswith(("httpx", "openai"))
    ]
    assert not [line for line in ours for secret in SECRETS if secret in line]


# --- the lines themselves


def plain() -> logging.Formatter:
    logs: Any = django_settings.LOGGING
    configured = logs["formatters"]["plain"]
    return Lines(configured["fmt"], style=configured["style"])


def record(message: str, *args: Any, name: str = "memorygw.x", **more: Any) -> logging.LogRecord:
    return logging.getLogger(name).makeRecord(
        name, logging.ERROR, __file__, 1, message, args, extra=more, exc_info=None
    )


def raised(raises: Callable[[], object]) -> Any:
    try:
        raises()
    except Exception:
        return sys.exc_info()
    raise AssertionError("Nothing was raised.")


def nested() -> None:
    try:
        raise KeyError("shoe size")
    except KeyError as error:
        raise ValueError("Forty-two") from error


def test_a_line_says_which_request_it_belongs_to() -> None:
    with in_request("request-1"):
        assert plain().format(record("Hello")).endswith(" ERROR memorygw.x request-1: Hello")
    assert plain().format(record("Hello")).endswith(" ERROR memorygw.x -: Hello")


def test_json_lines_have_known_fields_only() -> None:
    line = record("Hello %s", "there", route="api/v1/ask", status=200, request="<WSGIRequest: GET '/facts/shoe size'>")
    with in_request("request-1"):
        told = json.loads(JSONLines().format(line))
    assert told.pop("timestamp").endswith("+00:00")
    assert told == {
        "level": "ERROR",
        "logger": "memorygw.x",
        "message": "Hello there",
        "request_id": "request-1",
        "route": "api/v1/ask",
        "status": 200,
    }
    assert "request_id" not in json.loads(JSONLines().format(record("Hello")))


@pytest.mark.parametrize("formatter", [plain(), JSONLines()], ids=["plain", "json"])
def test_of_an_exception_type_and_place_are_told_and_not_its_words(formatter: logging.Formatter) -> None:
    line = record("It broke.")
    line.exc_info = raised(nested)
    told = formatter.format(line)
    assert "ValueError" in told
    assert "KeyError" in told
    assert "in nested" in told
    # The source is ours: there these words are.
    assert '"shoe size"' in told.replace("\\", "")
    assert "KeyError: " not in told
    assert "ValueError: " not in told


def test_celerys_line_about_a_task_has_the_type_of_its_exception() -> None:
    line = record("Task %(name)s raised: %(exc)s", {"name": "embed", "exc": "ValueError('Forty-two')"})
    line.exc_info = raised(lambda: int("Forty-two"))
    assert "Task embed raised: ValueError\n" in plain().format(line)


def test_waitress_does_not_name_a_path() -> None:
    line = record("Exception while serving /facts/shoe size", name="waitress")
    WithoutPath().filter(line)
    assert line.getMessage() == "Exception while serving"


def test_the_parts_of_a_stream_belong_to_its_request() -> None:
    def parts() -> Generator[bytes, None, None]:
        try:
            for _ in range(3):
                yield plain().format(record("part")).encode()
        finally:
            ends.append(plain().format(record("end")))

    ends: list[str] = []
    with in_request("request-1"):
        stream = carried(parts())
    assert next(stream).endswith(b" request-1: part")
    assert plain().format(record("elsewhere")).endswith(" -: elsewhere")
    stream.close()
    assert [end.rpartition("memorygw.x ")[2] for end in ends] == ["request-1: end"]


def test_a_request_leaves_a_line_of_its_route_and_its_id(api: Api, records: list[logging.LogRecord]) -> None:
    api(
        "PUT",
        "/facts/shoe%20size",
        {"value": "Forty-two"},
        user="ada@example.com",
        headers={"X-Request-ID": "asked-by-ada"},
    )
    [line] = [json.loads(JSONLines().format(line)) for line in records if line.name == "memorygw.api.observing"]
    assert line["message"].startswith("PUT api/v1/facts/<path:key> 200 in ")
    assert (line["route"], line["method"], line["status"]) == ("api/v1/facts/<path:key>", "PUT", 200)
    assert isinstance(line["ms"], int)
    assert len(records) == 1
