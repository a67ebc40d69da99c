"""What calls of models cost, by day, kind and model, in numbers and as a chart. Calls have no content."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any
from uuid import UUID

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.db.models import Avg, Count, Q, QuerySet, Sum
from django.db.models.functions import TruncDate
from django.http import HttpRequest, HttpResponse
from django.utils import timezone

from memorygw.admin.base import MAX_LISTED, ListOnlyAdmin
from memorygw.ids import uuid_or_none
from memorygw.models import ModelCall, Tenant

SPANS = (7, 30, 90)
USUAL_SPAN = 30
BAR_WIDTH, CHART_HEIGHT = 10, 1_000

Sums = Mapping[str, Any]


@dataclass(frozen=True)
class Bar:
    """The tokens of a day, in the chart's units: prompt at the bottom, completion above it."""

    day: date
    x: int
    sums: Sums
    prompt: int
    completion: int

    @property
    def prompt_y(self) -> int:
        return CHART_HEIGHT - self.prompt

    @property
    def completion_y(self) -> int:
        return self.prompt_y - self.completion


@dataclass(frozen=True)
class Chart:
    """A bar for every day, also for those without a call. ``most``: the tokens of the highest."""

    bars: Sequence[Bar]
    most: int
    width: int
    height: int = CHART_HEIGHT
    bar_width: int = BAR_WIDTH - 2


def chart_of(days: Sequence[Sums], first: date, span: int) -> Chart:
    by_day: defaultdict[date, Sums] = defaultdict(lambda: {"prompt": 0, "completion": 0})
    by_day.update({sums["day"]: sums for sums in days})
    shown = [(day, by_day[day]) for day in (first + timedelta(days=n) for n in range(span))]
    most = max(sums["prompt"] + sums["completion"] for _, sums in shown)

    def height(tokens: int) -> int:
        return int(tokens * CHART_HEIGHT // max(most, 1))

    bars = [
        Bar(day, n * BAR_WIDTH, sums, height(sums["prompt"]), height(sums["completion"]))
        for n, (day, sums) in enumerate(shown)
    ]
    return Chart(bars, most, span * BAR_WIDTH)


def first_moment(span: int) -> datetime:
    """The beginning of the first of so many days, today being the last."""
    first = timezone.localtime() - timedelta(days=span - 1)
    return first.replace(hour=0, minute=0, second=0, microsecond=0)


def calls_since(moment: datetime, tenant_ids: Sequence[UUID]) -> "QuerySet[ModelCall]":
    # Also where they are all: with their ids, and not with a query for them, every database takes the index.
    return ModelCall.objects.filter(tenant__in=tenant_ids, created_at__gte=moment)


def sums_by(calls: "QuerySet[Any, Any]", *columns: str) -> "QuerySet[Any, Any]":
    """The newest day first."""
    days: QuerySet[Any, Any] = calls.annotate(day=TruncDate("created_at"))
    sums: QuerySet[Any, Any] = days.values("day", *columns).annotate(
        calls=Count("pk"),
        failed=Count("pk", filter=~Q(outcome=ModelCall.OK)),
        prompt=Sum("prompt_tokens"),
        completion=Sum("completion_tokens"),
        latency=Avg("latency_ms"),
    )
    return sums.order_by("-day", *columns)


def with_lines(days: Sequence[Sums], lines: Sequence[Sums]) -> list[tuple[Sums, Sequence[Sums]]]:
    by_day: defaultdict[date, list[Sums]] = defaultdict(list)
    for line in lines:
        by_day[line["day"]].append(line)
    return [(sums, by_day[sums["day"]]) for sums in days]


@admin.register(ModelCall)
class ModelCallAdmin(ListOnlyAdmin):
    """One page of sums in place of the list."""

    def changelist_view(self, request: HttpRequest, extra_context: Mapping[str, Any] | None = None) -> HttpResponse:
        if not self.has_view_permission(request):
            raise PermissionDenied
        tenants = list(Tenant.objects.only("name").order_by("name"))
        asked = uuid_or_none(request.GET.get("tenant", ""))
        tenant = next((tenant for tenant in tenants if tenant.pk == asked), None)
        span = next((span for span in SPANS if str(span) == request.GET.get("days")), USUAL_SPAN)
        first = first_moment(span)
        calls = calls_since(first, [one.pk for one in ([tenant] if tenant else tenants)])
        days = list(sums_by(calls))
        # A model's name is what a client asks for: there may be any number of them.
        lines = list(sums_by(calls, "kind", "model")[: MAX_LISTED + 1])
        return self.render(
            request,
            "usage.html",
            "Usage",
            spans=SPANS,
            span=span,
            tenants=tenants[:MAX_LISTED],
            tenant=tenant,
            chart=chart_of(days, first.date(), span),
            days=with_lines(days, lines[:MAX_LISTED]),
            is_cut=len(lines) > MAX_LISTED,
        )
