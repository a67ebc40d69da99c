"""A model that fails again and again is left alone for a while (S58): by model and server, in each process."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from threading import Lock

from circuitbreaker import CircuitBreaker

from memorygw.conf import conf
from memorygw.exceptions import ModelFailedError, ModelUnavailableError

_OUTAGES = ("timeout", "unreachable", "stream_cut", "http_5")
"""Reasons that say that the server is down. One that refuses a request is up, also when it has had too many."""


@contextmanager
def guarded(server: str, model: str) -> Iterator[None]:
    """Around a request to a model. Raises `ModelUnavailableError`, and lets nothing through, while it is left alone."""
    if not conf.BREAKER_FAILURES:
        yield
        return
    with breaker_of(server, model, conf.BREAKER_FAILURES, conf.BREAKER_SECONDS).guarded():
        yield


class ModelBreaker(CircuitBreaker):  # type: ignore[misc]  # the library has no types
    """Opens after so many outages in a row; then one request at a time may try whether the model is back."""

    def __init__(self, failures: int, seconds: int) -> None:
        super().__init__(failures, seconds, expected_exception=_is_outage)
        self._probe = Lock()

    @contextmanager
    def guarded(self) -> Iterator[None]:
        probes = not self.closed
        if self.opened or (probes and not self._probe.acquire(blocking=False)):
            raise ModelUnavailableError(retry_after=max(self.open_remaining, 1))
        try:
            yield
        except ModelFailedError:
            with self:
                raise
        else:
            self.reset()
        finally:
            # A request that was given up says nothing of the model.
            if probes:
                self._probe.release()


@lru_cache(maxsize=1_000)
def breaker_of(server: str, model: str, failures: int, seconds: int) -> ModelBreaker:
    return ModelBreaker(failures, seconds)


def _is_outage(_: type[BaseException], error: BaseException) -> bool:
    return isinstance(error, ModelFailedError) and error.reason.startswith(_OUTAGES)
