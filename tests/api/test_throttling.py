"""S39: so many calls per key and per user, also when they come at once; a cache that is down refuses nobody."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from celery import current_app
from django.core.cache import cache
from django.core.cache.backends.dummy import DummyCache
from django.core.checks import run_checks
from pytest_django import Settings

from memorygw import gateway
from memorygw.api import throttling
from memorygw.models import Tenant
from memorygw.testing import ScriptedModelServer
from tests.conftest import Api, background
from tests.e2e.conftest import free_port

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def early_in_a_window(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every test begins with a window of its own, and none sees its end."""
    cache.clear()
    monkeypatch.setattr(throttling, "_counter", throttling._Counter())
    if time.time() % 60 > 40:
        time.sleep(60 - time.time() % 60)
    yield
    cache.clear()


def statuses(api: Api, number: int, user: str = "ada", path: str = "/facts") -> list[int]:
    return [api("GET", path, user=user).status for _ in range(number)]


def test_a_user_is_refused_what_is_too_much_and_told_how_long(api: Api, settings: Settings) -> None:
    settings.MEMORYGW_THROTTLE_USER = "3/min"
    assert statuses(api, 4) == [200, 200, 200, 429]
    refused = api("GET", "/facts")
    assert (refused.status, refused.error["code"]) == (429, "throttled")
    assert 1 <= int(refused.headers["Retry-After"]) <= 60
    assert statuses(api, 1, user="bob") == [200]


def test_the_same_name_in_another_tenant_is_another_user(api: Api, other_api: Api, settings: Settings) -> None:
    settings.MEMORYGW_THROTTLE_USER = "1/min"
    assert statuses(api, 2) + statuses(other_api, 1) == [200, 429, 200]


def test_a_user_has_one_count_whatever_names_them(api: Api, tenant: Tenant, settings: Settings) -> None:
    settings.MEMORYGW_THROTTLE_USER = "2/min"
    token = Api(gateway.create_user_token(tenant, "ada").token, None)
    assert statuses(api, 1) == [200]
    assert token("GET", "/facts").status == 200
    by_header = Api(api.key, None)("GET", "/facts", headers={"X-Memorygw-User": "ada"})
    assert (by_header.status, token("GET", "/facts").status) == (429, 429)


def test_the_user_that_a_chat_names_in_its_body_is_counted(
    api: Api, model: ScriptedModelServer, settings: Settings
) -> None:
    settings.MEMORYGW_THROTTLE_USER = "1/min"
    body: dict[str, Any] = {"model": "main", "messages": [{"role": "user", "content": "Hello"}], "user": "ada"}

    def chat() -> Any:
        headers = {"Authorization": f"Bearer {api.key}"}
        return api.client.post("/v1/chat/completions", body, content_type="application/json", headers=headers)

    assert chat().status_code == 200
    refused = chat()
    assert (refused.status_code, refused.json()["error"]["type"]) == (429, "rate_limit_error")
    assert refused.headers["Retry-After"]


def test_a_key_is_counted_for_all_of_its_users(api: Api, service_api: Api, settings: Settings) -> None:
    settings.MEMORYGW_THROTTLE_KEY = "2/min"
    assert [statuses(api, 1, user=user)[0] for user in ("ada", "bob", "eve")] == [200, 200, 429]
    assert statuses(service_api, 1) == [200]


def test_a_new_window_begins_anew(api: Api, settings: Settings) -> None:
    settings.MEMORYGW_THROTTLE_USER = "1/sec"
    answers: list[int] = []
    began = time.monotonic()
    while (passed := time.monotonic() - began) < 2.5:
        answers += statuses(api, 1)
    assert 2 <= answers.count(200) <= passed + 2


@pytest.mark.django_db(transaction=True)
def test_of_twenty_at_once_not_one_too_many_gets_through(api: Api, settings: Settings) -> None:
    settings.MEMORYGW_THROTTLE_USER = "30/min"
    with ThreadPoolExecutor(20) as pool:
        calls = [background(pool, statuses, Api(api.key), 5) for _ in range(20)]
        answers = [status for call in calls for status in call.result()]
    assert (answers.count(200), answers.count(429)) == (30, 70)


def test_a_cache_that_is_down_refuses_nobody_and_the_limit_holds_in_this_process(api: Api, settings: Settings) -> None:
    settings.MEMORYGW_THROTTLE_USER = "3/min"
    nowhere = f"redis://127.0.0.1:{free_port()}/0"
    settings.CACHES = {"default": {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": nowhere}}
    assert statuses(api, 4) == [200, 200, 200, 429]


def test_without_a_rate_nothing_is_counted(api: Api, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DummyCache, "incr", None)
    settings.CACHES = {"default": {"BACKEND": "django.core.cache.backends.dummy.DummyCache"}}
    assert statuses(api, 3) == [200, 200, 200]


@pytest.mark.parametrize("rate", ["many", "10", "10/fortnight", "/min", "-1/min", "1.5/min"])
def test_a_rate_that_is_none_is_refused_at_start(rate: str, settings: Settings) -> None:
    settings.MEMORYGW_THROTTLE_KEY = rate
    assert [problem.id for problem in run_checks(tags=["memorygw"])] == ["memorygw.E002"]


def test_several_processes_that_each_count_alone_are_warned_of(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.MEMORYGW_THROTTLE_USER = "120/min"
    settings.CACHES = {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}}
    for url, warned in (("redis://127.0.0.1:9/0", True), (None, False)):
        monkeypatch.setattr(current_app.conf, "broker_url", url)
        found = [problem.id for problem in run_checks(tags=["memorygw"], include_deployment_checks=True)]
        assert ("memorygw.W004" in found) is warned
