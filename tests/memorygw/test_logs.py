"""What must not get into a log."""

import logging
from collections.abc import Iterator
from typing import Any

import pytest
from pytest_django import Settings

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
