"""Who is calling, and as whom."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qsl
from uuid import UUID

from django.contrib.auth.models import AnonymousUser
from django.http import HttpRequest
from django.utils import timezone
from django.utils.module_loading import import_string
from rest_framework import authentication, exceptions, permissions
from rest_framework.request import Request

from memorygw import gateway, keys, user_tokens
from memorygw.conf import conf
from memorygw.exceptions import CredentialInQueryError, NotFoundError, UserMismatchError, UserRequiredError
from memorygw.models import ApiKey, Tenant

USER = "user"
"""The role of a credential that acts as one user."""
_LAST_USED_EVERY = timedelta(minutes=1)


@dataclass(frozen=True)
class Principal:
    """Who a credential stands for. ``user_id`` is set when it may act as one user only, ``key_id`` when it is a key."""

    tenant_id: UUID
    role: str
    user_id: str | None = None
    key_id: UUID | None = None


class BearerAuthentication(authentication.BaseAuthentication):
    """``Authorization: Bearer``, a key (``mgw_…``) or a user token (``mgwu_…``)."""

    def authenticate(self, request: Request) -> tuple[AnonymousUser, Principal] | None:
        scheme, _, text = request.META.get("HTTP_AUTHORIZATION", "").partition(" ")
        if scheme.lower() != "bearer":
            return None
        text = text.strip()
        return AnonymousUser(), self._user(text) if text.startswith(user_tokens.SCHEME) else self._key(text)

    def authenticate_header(self, request: Request) -> str:
        return "Bearer"

    def _user(self, token: str) -> Principal:
        found = gateway.user_of_token(token)
        if found is None:
            raise exceptions.AuthenticationFailed
        return Principal(found[0], USER, found[1])

    def _key(self, text: str) -> Principal:
        prefix = keys.prefix_of(text)
        key = ApiKey.objects.usable().filter(prefix=prefix).first() if prefix else None
        if key is None or not keys.matches(text, key.digest):
            raise exceptions.AuthenticationFailed
        now = timezone.now()
        if key.last_used_at is None or now - key.last_used_at > _LAST_USED_EVERY:
            ApiKey.objects.filter(pk=key.pk).update(last_used_at=now)
        return Principal(key.tenant_id, key.role, key_id=key.pk)


class SessionAuthentication(authentication.SessionAuthentication):
    """Django's session, with CSRF; `MEMORYGW_IDENTITY` says which tenant and user it is."""

    def authenticate(self, request: Request) -> tuple[Any, Principal] | None:
        signed_in = super().authenticate(request)
        if signed_in is None:
            return None
        tenant, user_id = identity_of(request._request)
        return signed_in[0], Principal(tenant, USER, user_id)


def identity_of(request: HttpRequest) -> tuple[UUID, str]:
    """The tenant and the external id of who is signed in."""
    tenant, user_id = import_string(conf.IDENTITY)(request)
    return gateway.tenant_id(tenant), gateway.external_user_id(user_id)


def session_identity(request: HttpRequest) -> tuple[str, str]:
    """The default of ``MEMORYGW_IDENTITY``: the signed-in user by primary key, in the default tenant."""
    return Tenant.DEFAULT, str(request.user.pk)


class HasCredential(permissions.BasePermission):
    def has_permission(self, request: Request, view: Any) -> bool:
        return isinstance(request.auth, Principal)


class IsKey(HasCredential):
    def has_permission(self, request: Request, view: Any) -> bool:
        return isinstance(request.auth, Principal) and request.auth.role in ApiKey.Role.values


class IsAdminKey(HasCredential):
    def has_permission(self, request: Request, view: Any) -> bool:
        return isinstance(request.auth, Principal) and request.auth.role == ApiKey.Role.ADMIN


class IsReviewer(HasCredential):
    """An admin key, for its tenant, or a superuser's session, for all of them."""

    def has_permission(self, request: Request, view: Any) -> bool:
        return IsAdminKey().has_permission(request, view) or is_platform_admin(request)


def is_platform_admin(request: Request) -> bool:
    return bool(isinstance(request.auth, Principal) and request.user.is_active and request.user.is_superuser)


def acting_user(request: Request, in_body: Any = None) -> str:
    """The user this request acts for: named by the query, the header or the body, or bound to the credential.

    Naming somebody else with a bound credential is a 404, as if that user were unknown.
    """
    named = _named_users(request) | ({gateway.external_user_id(in_body)} if in_body is not None else set())
    if len(named) > 1:
        raise UserMismatchError
    user_id = named.pop() if named else None
    principal = request.auth
    assert isinstance(principal, Principal)  # noqa: S101  HasCredential has seen to it
    if principal.user_id is not None:
        if user_id is not None and user_id != principal.user_id:
            raise NotFoundError
        return principal.user_id
    if user_id is None:
        raise UserRequiredError
    return gateway.external_user_id(user_id)


def acting_user_if_any(request: Request) -> str | None:
    """The same, where a key need not name a user."""
    principal = request.auth
    is_bound = isinstance(principal, Principal) and principal.user_id is not None
    return acting_user(request) if is_bound or names_user(request) else None


def user_of(request: Request, *, in_body: bool) -> str | None:
    """Whom a request is about, without a word on whether it may be: for counting calls."""
    body = request.data if in_body and isinstance(request.data, dict) else {}
    user_id = getattr(request.auth, "user_id", None) or next(iter(_named_users(request)), body.get("user"))
    return user_id if isinstance(user_id, str) else None


def names_user(request: Request) -> bool:
    return bool(_named_users(request))


def _named_users(request: Request) -> set[str]:
    in_query = request.query_params.getlist("user")
    header = request.META.get("HTTP_X_MEMORYGW_USER")
    if len(in_query) > 1 or (header is not None and not header.isascii()):
        raise UserRequiredError
    return {*in_query, *([header] if header is not None else [])}


def check_query(meta: Mapping[str, Any]) -> None:
    """Refuse keys in a query string, and bytes that are no UTF-8: replaced, two different users would become one."""
    query = meta.get("QUERY_STRING", "")
    try:
        pairs = parse_qsl(query, keep_blank_values=True, errors="strict")
    except UnicodeDecodeError:
        raise exceptions.ParseError("The query string is not UTF-8.") from None
    if any(value.startswith((keys.SCHEME, user_tokens.SCHEME)) for _, value in pairs):
        raise CredentialInQueryError
