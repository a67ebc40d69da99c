"""A request that is sent again has the effect of one (K14)."""

import hashlib
import json
from collections.abc import Callable
from typing import Any, TypeVar
from uuid import UUID, uuid4

import regex
from django.db.models.functions import Now
from django.utils.crypto import salted_hmac
from drf_spectacular.utils import OpenApiParameter
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request

from memorygw import gateway
from memorygw.conf import conf
from memorygw.database import after
from memorygw.exceptions import IdempotencyKeyReusedError, MemorygwError, NotFoundError, RequestRunningError
from memorygw.ids import new_id
from memorygw.models import IdempotencyKey

T = TypeVar("T")

HEADER = "Idempotency-Key"
PARAMETER = OpenApiParameter(
    HEADER,
    {"type": "string", "pattern": "^[!-~]{1,255}$"},
    OpenApiParameter.HEADER,
    description="1 to 255 visible ASCII characters; kept for a day.",
)
_KEY = regex.compile(r"[\x21-\x7e]{1,255}")


def once(request: Request, caller: tuple[UUID, str], make: Callable[[UUID], T], again: Callable[[UUID], T]) -> T:
    """What ``make`` gives; for a request that was sent before, under the same key, what that has come to.

    ``caller``: the tenant and the acting user, empty where a request acts for nobody. ``make(id)`` makes something with
    this id, ``again(id)`` finds it: `NotFoundError` when it is not there. Only that tells whether the first request
    took effect, so nothing is done twice, wherever it broke off. While the first runs, and for a key that came with
    another body: 409. A request without effect does not use its key up.
    """
    text = request.headers.get(HEADER)
    if text is None:
        return make(new_id())
    if not _KEY.fullmatch(text):
        raise ValidationError({HEADER: ["1 to 255 visible ASCII characters."]})
    claim = uuid4()
    key, is_new = _open(request, caller, text, claim)
    if not is_new:
        try:
            return again(key.pk)
        except NotFoundError:
            if key.done:
                raise
        if not _take_over(key, claim):
            # The first was done in between.
            return again(key.pk)
    return _made(key, claim, make)


def _open(request: Request, caller: tuple[UUID, str], text: str, claim: UUID) -> tuple[IdempotencyKey, bool]:
    """The row of the key, committed before anything else happens."""
    body = json.dumps(request.data, sort_keys=True, separators=(",", ":"))
    fingerprint = salted_hmac("memorygw.idempotency", body, algorithm="sha256").hexdigest()
    place = f"{request.method} {request.path}\n{text}"
    key, is_new = IdempotencyKey.objects.get_or_create(
        tenant_id=caller[0],
        user_id=caller[1],
        digest=hashlib.sha256(place.encode()).hexdigest(),
        defaults={"fingerprint": fingerprint, **_claimed(claim)},
    )
    if key.fingerprint != fingerprint:
        raise IdempotencyKeyReusedError
    return key, is_new


def _take_over(key: IdempotencyKey, claim: UUID) -> bool:
    """Go on where a first request broke off before it had an effect; False when it has had one by now."""
    free = IdempotencyKey.objects.filter(pk=key.pk, done=False).exclude(claim_expires_at__gt=Now())
    if free.update(**_claimed(claim)):
        return True
    if IdempotencyKey.objects.filter(pk=key.pk, done=True).exists():
        return False
    raise RequestRunningError


def _made(key: IdempotencyKey, claim: UUID, make: Callable[[UUID], T]) -> T:
    mine = IdempotencyKey.objects.filter(pk=key.pk, claim_token=claim)
    try:
        made = make(key.pk)
    except BaseException as error:
        if _is_refusal(error) and not gateway.has_id(key.pk):
            mine.delete()
        else:
            mine.update(claim_expires_at=None)
        raise
    if made:
        mine.update(done=True, claim_expires_at=None)
    else:
        mine.delete()
    return made


def _claimed(claim: UUID) -> dict[str, Any]:
    return {"claim_token": claim, "claim_expires_at": after(conf.LEASE_SECONDS)}


def _is_refusal(error: BaseException) -> bool:
    status = error.status if isinstance(error, MemorygwError) else getattr(error, "status_code", 500)
    return bool(status < 500)
