"""Who is calling, as whom, and how a request goes wrong."""

import json
from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from memorygw import gateway, keys
from memorygw.models import ApiKey, Tenant
from tests.conftest import Api

UNAUTHORIZED = {"error": {"code": "unauthorized", "message": "The credential is not valid."}}


def test_without_a_good_credential_nothing_is_answered(api: Api, tenant: Tenant) -> None:
    assert api.key is not None
    mistyped = api.key[:-1] + ("1" if api.key.endswith("0") else "0")
    wrong = [mistyped, api.key + "x", "mgw_x", "", "mgw_" + "0" * 80, keys.new_key().text]
    for key in wrong:
        reply = Api(key)("GET", "/threads")
        assert (reply.status, reply.body) == (401, UNAUTHORIZED)
        assert reply.headers["WWW-Authenticate"] == "Bearer"
    missing = Api(None)("GET", "/threads")
    assert (missing.status, missing.error["message"]) == (401, "A credential is required.")
    ApiKey.objects.update(revoked_at=timezone.now())
    assert api("GET", "/threads").body == UNAUTHORIZED
    ApiKey.objects.update(revoked_at=None, expires_at=timezone.now() - timedelta(seconds=1))
    assert api("GET", "/threads").body == UNAUTHORIZED
    ApiKey.objects.update(expires_at=None)
    assert api("GET", "/threads").status == 200


def test_a_key_is_stored_as_a_digest_and_a_typing_error_costs_no_query(
    api: Api, django_assert_num_queries: object
) -> None:
    assert api.key is not None
    [row] = ApiKey.objects.values()
    assert api.key.split("_")[2] not in json.dumps(row, default=str)
    assert keys.matches(api.key, row["digest"])
    with django_assert_num_queries(0):  # type: ignore[operator]
        assert Api(api.key[:-1])("GET", "/threads").status == 401


def test_a_used_key_says_when(api: Api) -> None:
    api("GET", "/threads")
    first = ApiKey.objects.get().last_used_at
    assert first is not None
    api("GET", "/threads")
    assert ApiKey.objects.get().last_used_at == first


def test_a_key_in_the_query_string_is_refused(api: Api) -> None:
    assert api("GET", f"/threads?api_key={api.key}").error["code"] == "credential_in_query"
    assert Api(None, None)("GET", f"/threads?token={api.key}").status == 400


@pytest.mark.parametrize("query", ["", "?user=", "?user=%20", "?user=*", "?user=a&user=a", "?user=a%00", "?user=a%0Ab"])
def test_the_acting_user_must_be_named_once(api: Api, query: str) -> None:
    api.user = None
    reply = api("GET", f"/threads{query}")
    assert (reply.status, reply.error["code"]) == (400, "user_required")


def test_the_acting_user_may_be_named_in_a_header(api: Api) -> None:
    api("PUT", "/facts/lang", {"value": "de"})
    api.user = None
    header = {"X-Memorygw-User": "ada"}
    assert len(api("GET", "/facts", headers=header).body["items"]) == 1
    assert api("GET", "/facts?user=ada", headers=header).status == 200
    assert api("GET", "/facts?user=bob", headers=header).error["code"] == "user_mismatch"
    assert api("GET", "/facts", headers={"X-Memorygw-User": " "}).error["code"] == "user_required"


def test_bytes_that_are_no_text_are_no_user(api: Api) -> None:
    api.user = None
    assert api("GET", "/threads?user=%FF").status == 400


def test_a_session_acts_as_the_signed_in_user(db: None) -> None:
    user = User.objects.create_user("kim", password="pw")
    client = Client(enforce_csrf_checks=True)
    assert client.get("/api/v1/threads").status_code == 401
    client.force_login(user)
    assert client.get("/api/v1/threads").status_code == 200
    assert client.get(f"/api/v1/threads?user={user.pk}").status_code == 200
    assert client.get("/api/v1/threads?user=somebody").status_code == 404
    refused = client.post("/api/v1/threads", "{}", content_type="application/json")
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "forbidden")
    client.get("/admin/login/")
    relaxed = Client()
    relaxed.force_login(user)
    made = relaxed.post("/api/v1/threads", "{}", content_type="application/json")
    assert (made.status_code, made.json()["user_id"]) == (201, str(user.pk))
    assert gateway.list_threads("default", user.pk).items[0].user_id == str(user.pk)
    assert relaxed.post(f"/api/v1/users/{user.pk}/forget", '{"mode": "delete"}', "application/json").status_code == 403


def test_only_an_admin_key_may_forget(service_api: Api, api: Api) -> None:
    assert service_api("POST", "/users/ada/forget", {"mode": "delete"}).error["code"] == "forbidden"
    assert api("POST", "/users/ada/forget", {"mode": "delete"}).status == 200


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (b"{", 400),
        (b"[]", 400),
        (b'"x"', 400),
        (b'{"title": NaN}', 400),
        (b'{"title": Infinity}', 400),
        (b'{"title": "\xff"}', 400),
        (b'{"title": ' + b"[" * 101 + b"]" * 101 + b"}", 400),
        (b'{"title": ' + b"[" * 100_000 + b"}", 400),
        (b'{"n": 1e999}', 400),
        (b'{"n": ' + b"9" * 10_000 + b"}", 400),
        (b'{"title": "' + b"x" * 10_000_000 + b'"}', 413),
        (b"", 201),
    ],
)
def test_a_body_is_a_json_object_or_a_clear_error(api: Api, raw: bytes, status: int) -> None:
    reply = api("POST", "/threads", raw=raw)
    assert reply.status == status
    assert status == 201 or set(reply.error) >= {"code", "message"}


@pytest.mark.parametrize(
    ("text", "field"),
    [
        (r'{"content": "a\u0000"}', "content"),
        (r'{"content": "\ud83d"}', "content"),
        (r'{"content": "x", "metadata": {"title": ["\ude00"]}}', "metadata.title[0]"),
        (r'{"content": "x", "metadata": {"\ud800": 1}}', "metadata"),
    ],
)
def test_text_that_cannot_be_stored_is_refused_by_its_place(api: Api, text: str, field: str) -> None:
    reply = api("POST", "/ask", raw=text.encode())
    assert (reply.status, list(reply.error["fields"])) == (400, [field])


def test_what_is_not_there_is_a_404_in_the_envelope(api: Api) -> None:
    for method in ("GET", "POST", "PUT"):
        for path in ("/nothing", "/threads/", "/facts/"):
            reply = api(method, path)
            assert (reply.status, reply.error["code"]) == (404, "not_found")
    assert api("PUT", "/threads").error["code"] == "method_not_allowed"
    assert api("OPTIONS", "/threads").status == 405
    sent = api.client.post("/api/v1/threads?user=ada", {"a": "b"}, headers={"Authorization": f"Bearer {api.key}"})
    assert (sent.status_code, sent.json()["error"]["code"]) == (415, "unsupported_media_type")


def test_every_answer_carries_a_request_id(api: Api) -> None:
    good = "0123-abc_DEF.x"
    assert api("GET", "/threads", headers={"X-Request-ID": good}).headers["X-Request-ID"] == good
    assert len(api("GET", "/threads", headers={"X-Request-ID": "<bad>"}).headers["X-Request-ID"]) == 32
    assert api("GET", "/nothing-here").status == 404
