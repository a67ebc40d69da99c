"""How often a key and a user may call (S39): counted in Django's cache, whose ``incr`` is atomic where it is shared.

A fixed window: what it holds is certain also when many call at once. A cache that is down is no reason to refuse
anybody; each process counts for itself meanwhile.
"""

import logging
import time
from typing import Any

from django.core.cache import BaseCache, cache
from django.core.cache.backends.locmem import LocMemCache
from django.utils.crypto import salted_hmac
from rest_framework.request import Request
from rest_framework.throttling import BaseThrottle

from memorygw.api.auth import Principal, user_of
from memorygw.conf import conf, rate_of

logger = logging.getLogger(__name__)

_CACHE_PAUSE_SECONDS = 10


class _Counter:
    """Calls per window. A cache that failed is left alone for a while: another try may cost seconds."""

    def __init__(self) -> None:
        self._own: BaseCache = LocMemCache("memorygw-throttling", {})
        self._silent_until = 0.0

    def count(self, key: str, seconds: int) -> int:
        """This call's number in the window."""
        if time.monotonic() >= self._silent_until:
            try:
                return self._count_in(cache, key, seconds)
            except Exception as error:
                # Every kind of cache has errors of its own.
                self._silent_until = time.monotonic() + _CACHE_PAUSE_SECONDS
                logger.warning("The cache failed, calls are counted by each process: %s", type(error).__name__)
        return self._count_in(self._own, key, seconds)

    def _count_in(self, store: BaseCache, key: str, seconds: int) -> int:
        try:
            return store.incr(key)
        except ValueError:
            return 1 if store.add(key, 1, timeout=seconds + 1) else store.incr(key)


_counter = _Counter()


class _Throttle(BaseThrottle):
    """Refuses what is over ``rate`` for ``subject``; without a subject nothing is counted."""

    def allow_request(self, request: Request, view: Any) -> bool:
        most, seconds = rate_of(self.rate())
        subject = self.subject(request, view) if most else None
        if subject is None:
            return True
        window, passed = divmod(time.time(), seconds)
        self._wait = seconds - passed
        return _counter.count(f"memorygw:calls:{subject}:{window:.0f}", seconds) <= most

    def wait(self) -> float:
        return self._wait

    def rate(self) -> str:
        raise NotImplementedError

    def subject(self, request: Request, view: Any) -> str | None:
        raise NotImplementedError


class KeyThrottle(_Throttle):
    def rate(self) -> str:
        return conf.THROTTLE_KEY

    def subject(self, request: Request, view: Any) -> str | None:
        principal = request.auth
        return str(principal.key_id) if isinstance(principal, Principal) and principal.key_id else None


class UserThrottle(_Throttle):
    def rate(self) -> str:
        return conf.THROTTLE_USER

    def subject(self, request: Request, view: Any) -> str | None:
        principal, user_id = request.auth, user_of(request, in_body=view.names_user_in_body)
        if user_id is None or not isinstance(principal, Principal):
            return None
        # Caches are nobody's to search for a person.
        person = f"{principal.tenant_id} {user_id}"
        return salted_hmac("memorygw.throttling", person, algorithm="sha256").hexdigest()
