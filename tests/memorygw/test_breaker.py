"""S58: a model that is down is left alone, tried by one request at a time, and used again."""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from pytest_django import Settings

from memorygw.exceptions import ModelFailedError, ModelUnavailableError
from memorygw.llm.base import CompletionRequest
from memorygw.llm.breaker import breaker_of, guarded
from memorygw.llm.calls import call_model
from memorygw.models import ModelCall, Tenant
from memorygw.testing import ScriptedModelServer
from tests.conftest import Api, background

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def breaker(settings: Settings) -> Iterator[None]:
    settings.MEMORYGW_BREAKER_FAILURES, settings.MEMORYGW_BREAKER_SECONDS = 3, 1
    yield
    breaker_of.cache_clear()


def fail(times: int, reason: str = "http_500", model: str = "main") -> None:
    for _ in range(times):
        with pytest.raises(ModelFailedError), guarded("server", model):
            raise ModelFailedError(reason)


def is_open(model: str = "main") -> bool:
    try:
        with guarded("server", model):
            return False
    except ModelUnavailableError:
        return True


@pytest.mark.parametrize("reason", ["timeout", "unreachable", "http_500", "http_503", "stream_cut"])
def test_it_opens_after_so_many_outages_in_a_row_for_this_model_alone(reason: str) -> None:
    fail(3, reason)
    assert is_open()
    assert not is_open("cheap")


@pytest.mark.parametrize("reason", ["http_400", "http_401", "http_404", "http_429", "malformed", "empty"])
def test_a_server_that_refuses_is_not_down(reason: str) -> None:
    fail(9, reason)
    assert not is_open()


def test_an_answer_in_between_starts_the_count_again() -> None:
    for _ in range(3):
        fail(2)
        assert not is_open()


def test_one_request_tries_and_opens_it_again_or_closes_it() -> None:
    fail(3)
    time.sleep(1.1)
    fail(1)
    assert is_open()
    time.sleep(1.1)
    with guarded("server", "main"):
        assert is_open(), "A second request tried at the same time."
    assert not is_open()


def test_a_try_that_is_given_up_says_nothing() -> None:
    fail(3)
    time.sleep(1.1)
    for _ in range(2):
        with pytest.raises(GeneratorExit), guarded("server", "main"):
            raise GeneratorExit
    with pytest.raises(ModelFailedError), guarded("server", "main"):
        raise ModelFailedError("timeout")
    assert is_open()


@pytest.mark.django_db(transaction=True)
def test_fifty_callers_of_a_dead_model_cost_it_few_requests(model: ScriptedModelServer, tenant: Tenant) -> None:
    """No thundering herd: what is sent while it is down does not grow with those who wait for it."""
    model.fail(500, model="main", times=1_000)
    request = CompletionRequest(kind=ModelCall.Kind.CHAT, model="main", messages=[{"role": "user", "content": "Hello"}])
    outcomes: list[str] = []
    over = time.monotonic() + 3.5

    def insist() -> None:
        while time.monotonic() < over:
            try:
                call_model(request, tenant_id=tenant.pk)
            except ModelFailedError as error:
                outcomes.append(error.code)
            time.sleep(0.02)

    with ThreadPoolExecutor(50) as pool:
        for done in [background(pool, insist) for _ in range(50)]:
            done.result()
    sent = len(model.requests_for("main"))
    # Those under way when it opened, and a try a second.
    assert sent <= 50 + 4
    assert outcomes.count("model_failed") == sent
    assert outcomes.count("model_unavailable") > 1_000
    assert ModelCall.objects.count() == sent
    model.reset()
    time.sleep(1.1)
    assert call_model(request, tenant_id=tenant.pk).content == "ok"


def test_what_a_client_is_told(api: Api, model: ScriptedModelServer) -> None:
    model.fail(500, model="main", times=3)
    thread = api.ask("Hello").error["thread_id"]
    for _ in range(2):
        assert api.ask("Hello", thread).status == 502
    refused = api.ask("Hello", thread)
    assert (refused.status, refused.error["code"], refused.headers["Retry-After"]) == (503, "model_unavailable", "1")
    assert refused.error["run_id"]
    chat: dict[str, Any] = {"model": "main", "messages": [{"role": "user", "content": "Hello"}]}
    for stream in (False, True):
        headers = {"Authorization": f"Bearer {api.key}", "X-Memorygw-User": "ada"}
        response = api.client.post(
            "/v1/chat/completions", {**chat, "stream": stream}, content_type="application/json", headers=headers
        )
        error = response.json()["error"]
        assert (response.status_code, error["type"], error["code"]) == (503, "server_error", "model_unavailable")
        assert response.headers["Retry-After"] == "1"
    time.sleep(1.1)
    assert api.ask("Hello", thread).status == 200


def test_a_stream_that_is_open_holds_nobody_up(tenant: Tenant) -> None:
    """While the breaker is closed any number of requests are under way."""
    inside = threading.Barrier(5, timeout=10)

    def wait() -> None:
        with guarded("server", "main"):
            inside.wait()

    with ThreadPoolExecutor(5) as pool:
        for done in [pool.submit(wait) for _ in range(5)]:
            done.result()
