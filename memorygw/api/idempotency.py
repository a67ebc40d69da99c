"""A request that is sent again has the effect of one (K14)."""

import hashlib
import json
from collections.abc import Callable
from typing import Any, TypeVar
from uuid import UUID

import regex
from django.db.models.functions import Now
from django.utils.crypto import salted_hmac
from drf_spectacular.utils import OpenApiParameter
from rest_framework.exceptions import APIException, ValidationError
from rest_framework.request import Request

from memorygw.conf import conf
from memorygw.database import after
from memorygw.exceptions import IdempotencyKeyReusedError, MemorygwError, NotFoundError, RequestRunningError
from memorygw.ids import new_id
from memorygw.models import IdempotencyKey

T = TypeVar("T")

HEADER = "Idempotency-Key"
PARAMETER = OpenApiParameter(
    HEADER, str, OpenApiParameter.HEADER, description="1 to 255 visible ASCII characters; kept for a day."
)
_KEY = regex.compile(r"[\x21-\x7e]{1,255}")


def once(request: Request, caller: tuple[UUID, str], make: Callable[[UUID], T], again: Callable[[UUID], T]) -> T:
    """What ``make`` gives; for a request that was sent before, under the same key, what it gave then.

    ``make(id)`` makes something with this id, ``again(id)`` finds it: `NotFoundError` when it is not there. Only that
    tells whether the first request took effect, so nothing is done twice, wherever it broke off. While the first runs,
    and for a key that came with another body: 409. A refused request does not use its key up.
    """
    text = request.headers.get(HEADER)
    if text is None:
        return make(new_id())
    if not _KEY.fullmatch(text):
        raise ValidationError({HEADER: ["1 to 255 visible ASCII characters."]})
    key, is_new = _open(request, caller, text)
    if not is_new:
        try:
            return again(key.pk)
        except NotFoundError:
            if key.done:
                raise
        _claim(key)
    return _made(key, make)


def _open(request: Request, caller: tuple[UUID, str], text: str) -> tuple[IdempotencyKey, bool]:
    """The row of the key, committed before anything else happens."""
    body = json.dumps(request.data, sort_keys=True, separators=(",", ":"))
    fingerprint = salted_hmac("memorygw.idempotency", body, algorithm="sha256").hexdigest()
    place = f"{request.method} {request.path}\n{text}"
    key, is_new = IdempotencyKey.objects.get_or_create(
        tenant_id=caller[0],
        user_id=caller[1],
        digest=hashlib.sha256(place.encode()).hexdigest(),
        defaults={"fingerprint": fingerprint, "claim_expires_at": after(conf.LEASE_SECONDS)},
    )
    if key.fingerprint != fingerprint:
        raise IdempotencyKeyReusedError
    return key, is_new


def _claim(key: IdempotencyKey) -> None:
    """Take over from a first request that broke off before it had an effect."""
    free = IdempotencyKey.objects.filter(pk=key.pk).exclude(claim_expires_at__gt=Now())
    if not free.update(claim_expires_at=after(conf.LEASE_SECONDS)):
        raise RequestRunningError


def _made(key: IdempotencyKey, make: Callable[[UUID], T]) -> T:
    rows = IdempotencyKey.objects.filter(pk=key.pk)
    try:
        made = make(key.pk)
    except BaseException as error:
        if _is_refusal(error, key):
            rows.delete()
        else:
            rows.update(claim_expires_at=None)
        raise
    rows.update(done=True, claim_expires_at=None)
    return made


def _is_refusal(error: BaseException, key: IdempotencyKey) -> bool:
    """Whether the request was turned away: not when it failed, or left a run of its own behind."""
    if isinstance(error, MemorygwError):
        details: dict[str, Any] = error.details
        return error.status < 500 and details.get("run_id") != key.pk
    return isinstance(error, APIException) and error.status_code < 500
