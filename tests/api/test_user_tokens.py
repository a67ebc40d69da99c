"""Tokens that act as one user."""

import time

import pytest
from django.core import signing

from memorygw import user_tokens
from memorygw.conf import component
from memorygw.models import Tenant
from tests.conftest import Api


def token_for(api: Api, user: object = "ada", **more: object) -> Api:
    made = api("POST", "/user-tokens", {"user_id": user, **more})
    assert made.status == 201
    return Api(made.body["token"], None)


def test_a_token_acts_as_its_user_and_as_nobody_else(service_api: Api, other_api: Api) -> None:
    service_api("PUT", "/facts/lang", {"value": "de"})
    service_api("PUT", "/facts/lang", {"value": "fr"}, user="bob")
    ada = token_for(service_api, expires_in_seconds=60)
    assert ada.facts() == {"lang": "de"}
    assert ada("GET", "/facts?user=ada").status == 200
    assert ada("GET", "/facts?user=bob").error["code"] == "not_found"
    thread_id = ada("POST", "/threads", {}).body["id"]
    assert service_api("GET", f"/threads/{thread_id}").body["user_id"] == "ada"
    foreign = other_api("POST", "/threads", {}).body["id"]
    assert ada("GET", f"/threads/{foreign}").error["code"] == "thread_not_found"
    assert ada("POST", "/users/ada/forget", {"mode": "delete"}).status == 403
    assert ada("POST", "/user-tokens", {"user_id": "bob"}).status == 403


def test_a_token_names_no_person(service_api: Api) -> None:
    made = service_api("POST", "/user-tokens", {"user_id": "ada@example.com"}).body
    assert set(made) == {"token", "expires_at"}
    [payload] = [signing.loads(made["token"].removeprefix("mgwu_"), salt="memorygw.user-token")]
    assert "@" not in str(payload)


def test_forged_expired_and_misplaced_tokens_are_refused(service_api: Api, tenant: Tenant) -> None:
    ada = token_for(service_api)
    assert ada.key is not None
    record = component("USER_MEMORY_STORE").open_record(tenant.pk, "ada")
    expired = user_tokens.make(record, expires_at=time.time() - 1)
    for token in (ada.key[:-1], ada.key + "x", "mgwu_", "mgwu_x:y:z", expired, signing.dumps([record.hex, 2**40])):
        assert Api(token, None)("GET", "/facts").status == 401
    assert service_api("GET", f"/facts?token={ada.key}").error["code"] == "credential_in_query"


def test_erasing_a_person_revokes_their_tokens(api: Api) -> None:
    ada, bob = token_for(api), token_for(api, "bob")
    assert ada("GET", "/facts").status == 200
    api("POST", "/users/ada/forget", {"mode": "delete"})
    assert ada("GET", "/facts").status == 401
    assert bob("GET", "/facts").status == 200
    assert token_for(api)("GET", "/facts").status == 200


def test_an_integer_is_the_user_of_its_decimal_text(service_api: Api) -> None:
    token_for(service_api, 42)("PUT", "/facts/lang", {"value": "de"})
    assert service_api.facts("42") == {"lang": "de"}


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"user_id": ""},
        {"user_id": "*"},
        {"user_id": None},
        {"user_id": ["ada"]},
        {"user_id": "ada", "expires_in_seconds": 0},
        {"user_id": "ada", "expires_in_seconds": 3601},
    ],
)
def test_impossible_tokens_are_refused(service_api: Api, body: dict[str, object]) -> None:
    assert service_api("POST", "/user-tokens", body).status == 400
