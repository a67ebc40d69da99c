"""What each process counts, for Prometheus.

A label is a route, a kind or a code, so it has few values: never a path, an id, a name, or the model a client asks for.
"""

import regex
from prometheus_client import CollectorRegistry, Counter, Histogram

REGISTRY = CollectorRegistry()
"""Ours alone: the default one is the host's."""

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
_CODE = regex.compile(r"[a-z0-9_]{1,64}")

REQUESTS = Counter("memorygw_http_requests", "Requests answered.", ["route", "method", "status"], registry=REGISTRY)
REQUEST_SECONDS = Histogram(
    "memorygw_request_seconds",
    "Time until the answer was ready; of a stream, until it was sent.",
    ["route", "method"],
    buckets=_SECONDS,
    registry=REGISTRY,
)
MODEL_CALLS = Counter(
    "memorygw_model_calls", "Calls of models and embedders, by how they ended.", ["kind", "outcome"], registry=REGISTRY
)
MODEL_SECONDS = Histogram(
    "memorygw_model_seconds", "Time that such a call took.", ["kind"], buckets=_SECONDS, registry=REGISTRY
)
JOB_ATTEMPTS = Counter(
    "memorygw_job_attempts", "Attempts at late work, by how they ended.", ["kind", "outcome"], registry=REGISTRY
)
LEASE_LOST = Counter("memorygw_lease_lost", "Runs that lost their thread to another call.", registry=REGISTRY)
ENQUEUE_FAILED = Counter(
    "memorygw_enqueue_failed", "Wake-ups that the broker did not take; the sweep finds the work.", registry=REGISTRY
)


def model_called(kind: str, outcome: str, seconds: float | None = None) -> None:
    """Count a call; one that was not let through took no time. What is no code, in a host's client, is ``other``."""
    MODEL_CALLS.labels(kind, outcome if _CODE.fullmatch(outcome) else "other").inc()
    if seconds is not None:
        MODEL_SECONDS.labels(kind).observe(seconds)
