"""Redis fails while the gateway runs: no request notices, and nothing has to be done when it is back.

Collected where the suite runs on Redis. Each test starts a server of its own, to break it.
"""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from memorygw.testing import ScriptedModelServer
from tests.e2e.conftest import Caller, OwnRedis, own_gateway, own_redis, wait_for
from tests.e2e.ledger import EAGER, Ledger, Talk, hundred_requests, stored

# A second for each of the hundred; waiting for the broker's time-out takes two.
BUDGET_SECONDS = 100
GAVE_UP = "No wake-up sent"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[OwnRedis]:
    with own_redis(tmp_path) as server:
        yield server


@pytest.fixture
def ledger(model: ScriptedModelServer) -> Ledger:
    return Ledger(model, facts_per_call=1)


@contextmanager
def at_work(model: ScriptedModelServer, folder: Path, broker: OwnRedis, **values: str) -> Iterator[Caller]:
    """A program that talks to a gateway, whose worker and clock are busy on this broker."""
    with own_gateway(model, folder, **EAGER | values, MEMORYGW_BROKER_URL=broker.url) as gateway:
        gateway.serve()
        gateway.work()
        yield gateway.key("acme")


def wait_until_all_is_learned(ledger: Ledger, caller: Caller, talks: list[Talk]) -> None:
    wait_for(lambda: all(ledger.knows(caller, talk) for talk in talks), "the periodic sweep", 90)
    ledger.check(stored(caller.gateway), caller, talks)


@pytest.mark.rows("U108", "W48")
def test_redis_may_die_under_a_hundred_requests(
    model: ScriptedModelServer, tmp_path: Path, broker: OwnRedis, ledger: Ledger
) -> None:
    with at_work(model, tmp_path, broker) as caller:
        broker.stop()
        started = time.monotonic()
        talks = hundred_requests(caller)
        assert time.monotonic() - started < BUDGET_SECONDS
        assert ledger.calls == 0
        broker.start()
        wait_until_all_is_learned(ledger, caller, talks)


@pytest.mark.rows("U108", "W48")
def test_redis_may_fall_silent_under_a_hundred_requests(
    model: ScriptedModelServer, tmp_path: Path, broker: OwnRedis, ledger: Ledger
) -> None:
    with at_work(model, tmp_path, broker) as caller:
        broker.hush()
        caller.ask("Hello", user="ada")
        assert GAVE_UP not in caller.gateway.log.read_text(), "The answer came after the time-out of the broker."
        talks = hundred_requests(caller)
        wait_for(lambda: GAVE_UP in caller.gateway.log.read_text(), "that time-out, behind the answers")
        assert ledger.calls == 0
        broker.resume()
        wait_until_all_is_learned(ledger, caller, talks)


@pytest.mark.rows("U109")
def test_redis_may_forget_every_message(
    model: ScriptedModelServer, tmp_path: Path, broker: OwnRedis, ledger: Ledger
) -> None:
    """Those that wait in the queue, and those of the jobs that are running."""
    with at_work(model, tmp_path, broker, MEMORYGW_LLM_TIMEOUT_SECONDS="60") as caller:
        with ledger.hold("turn-"):
            talks = hundred_requests(caller)
            wait_for(lambda: broker.client.llen("celery") != 0, "messages in the queue")
            broker.client.flushall()
        wait_until_all_is_learned(ledger, caller, talks)


@pytest.mark.rows("U108")
def test_servers_share_the_count_of_calls_and_go_on_counting_without_redis(
    model: ScriptedModelServer, tmp_path: Path, broker: OwnRedis
) -> None:
    values = {"MEMORYGW_BROKER_URL": broker.url, "MEMORYGW_THROTTLE_USER": "10/hour"}
    with own_gateway(model, tmp_path, **values) as gateway:
        gateway.serve()
        caller, bases = gateway.key("acme"), [gateway.base_url]
        gateway.serve()
        bases.append(gateway.base_url)

        def status(turn: int, user: str) -> int:
            gateway.base_url = bases[turn % 2]
            return caller.send("GET", "/facts", user=user).status_code

        if time.time() % 3_600 > 3_570:
            time.sleep(31)
        with ThreadPoolExecutor(20) as pool:
            answers = list(pool.map(lambda turn: status(turn, "ada"), range(20)))
        assert (answers.count(200), answers.count(429)) == (10, 10)
        for fail, user in ((broker.hush, "bob"), (broker.stop, "eve")):
            fail()
            answers = [status(turn, user) for turn in range(22)]
            assert set(answers) == {200, 429}
            assert answers.count(200) == 20, "Each of two processes counts ten."
