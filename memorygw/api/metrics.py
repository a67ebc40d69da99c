"""What Prometheus is told: what the processes counted, and how the stored work stands."""

import os
from collections.abc import Iterable, Iterator

from django.db import Error, transaction
from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_safe
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

from memorygw.conf import component
from memorygw.metrics import REGISTRY
from memorygw.sweep import LEARNERS

_SHARED = "PROMETHEUS_MULTIPROC_DIR"


@require_safe
@transaction.non_atomic_requests
def metrics(request: HttpRequest) -> HttpResponse:
    """Answers without the database, too: then with what was counted."""
    return HttpResponse(generate_latest(_Everything()), content_type=CONTENT_TYPE_PLAIN_0_0_4)


class _Everything(Collector):
    def collect(self) -> Iterator[Metric]:
        yield from _counted()
        try:
            stored = list(_stored())
        except Error:
            stored = []
        yield GaugeMetricFamily("memorygw_database_up", "Whether the database answers.", value=bool(stored))
        yield from stored


def _counted() -> Iterable[Metric]:
    """Of all processes that share a folder, or of this one. In the folder may be numbers of the host's."""
    if _SHARED not in os.environ:
        return REGISTRY.collect()
    shared = MultiProcessCollector(None).collect()  # type: ignore[no-untyped-call]
    return [metric for metric in shared if metric.name.startswith("memorygw_")]


def _stored() -> Iterator[Metric]:
    """By the rows of what is switched on: what is off waits on purpose."""
    jobs = GaugeMetricFamily("memorygw_jobs", "Late work that is due or will be.", labels=["kind", "state"])
    oldest = GaugeMetricFamily(
        "memorygw_job_oldest_pending_seconds", "How long the oldest pending work has been due.", labels=["kind"]
    )
    for learner in LEARNERS:
        if learner.enabled():
            backlog = learner.states.objects.backlog()
            oldest.add_metric([learner.states.kind], backlog.pop("oldest_seconds"))
            for state, number in backlog.items():
                jobs.add_metric([learner.states.kind, state], number)
    yield jobs
    yield oldest
    pending = component("USER_MEMORY_STORE").list_pending(None).count()
    yield GaugeMetricFamily("memorygw_review_pending", "Facts that wait for a reviewer.", value=pending)
