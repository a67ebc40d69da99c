"""What calls of models cost is summed by day, kind and model, whatever these are called and however many are old."""

import re
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils import timezone
from pytest_django import Settings

from memorygw.admin import usage
from memorygw.models import ModelCall, Tenant
from tests.admin.conftest import Operator, queries
from tests.threads.test_plans import Reading, analyze

pytestmark = pytest.mark.django_db

LIST = "memorygw/modelcall/"


def add_calls(tenant: Tenant, days_ago: float = 0, count: int = 1, **columns: Any) -> None:
    values: dict[str, Any] = {"kind": "CHAT", "model": "main", "outcome": "ok", "latency_ms": 100, **columns}
    values |= {"tenant": tenant, "created_at": timezone.now() - timedelta(days=days_ago)}
    ModelCall.objects.bulk_create((ModelCall(**values) for _ in range(count)), batch_size=1_000)


def day(days_ago: int = 0) -> str:
    return f"{timezone.localdate() - timedelta(days=days_ago)}"


def table(html: str) -> list[list[str]]:
    """The cells of the rows below the head."""
    body = html.partition('class="memorygw-scroll"')[2].partition("</thead>")[2]
    rows = re.findall(r"<tr>(.*?)</tr>", body, re.DOTALL)
    return [re.findall(r"<t[hd][^>]*>(?:<(?:bdi|strong)>)?(.*?)(?:</(?:bdi|strong)>)?</t[hd]>", row) for row in rows]


def days_shown(html: str) -> list[str]:
    return [row[0] for row in table(html) if row[0]]


# --- the numbers


def test_calls_are_summed_by_day_kind_and_model(viewer: Operator, tenant: Tenant, other_tenant: Tenant) -> None:
    add_calls(tenant, count=2, prompt_tokens=1_000, completion_tokens=20)
    add_calls(other_tenant, model="other", outcome="http_500", latency_ms=400)
    add_calls(tenant, 1, kind="EMBEDDING", model="vectors", prompt_tokens=7, outcome="given_up")
    assert table(viewer.get(LIST)) == [
        [day(), "All", "", "3", "1", "2,000", "40", "200 ms"],
        ["", "CHAT", "main", "2", "0", "2,000", "40", "100 ms"],
        ["", "CHAT", "other", "1", "1", "0", "0", "400 ms"],
        [day(1), "All", "", "1", "1", "7", "0", "100 ms"],
        ["", "EMBEDDING", "vectors", "1", "1", "7", "0", "100 ms"],
    ]


def test_a_span_begins_with_its_first_day(viewer: Operator, tenant: Tenant) -> None:
    ages = (0, 6, 7, 29, 30, 89, 90)
    for age in ages:
        add_calls(tenant, age)
    for span, shown in {"7": ages[:2], "30": ages[:4], "90": ages[:6]}.items():
        assert days_shown(viewer.get(LIST, days=span)) == [day(age) for age in shown]
    for nonsense in ("", "8", "-30", "x", "3" * 5_000, "\x00"):
        assert days_shown(viewer.get(LIST, days=nonsense)) == [day(age) for age in ages[:4]]


def test_a_day_is_that_of_the_operators_clock(viewer: Operator, tenant: Tenant, settings: Settings) -> None:
    settings.TIME_ZONE = "Pacific/Kiritimati"
    midnight = timezone.localtime().replace(hour=0, minute=0, second=0, microsecond=0)
    for moment in (midnight, midnight - timedelta(seconds=1)):
        ModelCall.objects.create(tenant=tenant, kind="CHAT", model="main", outcome="ok", created_at=moment)
    assert days_shown(viewer.get(LIST)) == [day(), day(1)]


def test_one_tenant_is_chosen_where_there_are_several(viewer: Operator, tenant: Tenant, other_tenant: Tenant) -> None:
    add_calls(tenant)
    add_calls(other_tenant, 6, model="theirs")
    html = viewer.get(LIST, days="7", tenant=str(other_tenant.pk))
    assert days_shown(html) == [day(6)]
    assert f'<option value="{other_tenant.pk}" selected>globex</option>' in html
    assert f'href="?days=90&amp;tenant={other_tenant.pk}"' in html
    assert '<input type="hidden" name="days" value="7">' in html
    for nobody in ("", "x", "\x00", "01890000-0000-7000-8000-000000000000"):
        assert days_shown(viewer.get(LIST, tenant=nobody)) == [day(), day(6)]
    Tenant.objects.exclude(pk=tenant.pk).delete()
    assert "<select" not in viewer.get(LIST)


def test_of_many_models_the_first_are_shown_and_all_are_summed(
    viewer: Operator, tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(usage, "MAX_LISTED", 3)
    for number in range(3):
        add_calls(tenant, model=f"model {number}")
    assert "There are more models." not in viewer.get(LIST)
    add_calls(tenant, model="model 3")
    html = viewer.get(LIST)
    assert [row[2:4] for row in table(html)] == [["", "4"], *([f"model {number}", "1"] for number in range(3))]
    assert "There are more models." in html


# --- the chart


def bars(html: str) -> list[list[tuple[int, int, int]]]:
    """Of each day: x, y and height of the prompt's part and of the completion's."""
    rect = r'<rect x="(\d+)" y="(\d+)" width="8" height="(\d+)" fill="(?:var\(--secondary\)|currentColor)"/>'
    groups = re.findall(r"<g>.*?</g>", html, re.DOTALL)
    return [[(int(x), int(y), int(height)) for x, y, height in re.findall(rect, group)] for group in groups]


def test_the_chart_has_a_bar_for_each_day_as_high_as_its_tokens(
    viewer: Operator, tenant: Tenant, settings: Settings
) -> None:
    # A host's way to write numbers is none for a drawing.
    settings.LANGUAGE_CODE, settings.USE_THOUSAND_SEPARATOR = "de", True
    add_calls(tenant, prompt_tokens=1_500, completion_tokens=500)
    add_calls(tenant, 6, prompt_tokens=500)
    html = viewer.get(LIST, days="7")
    assert bars(html) == [
        [(0, 750, 250), (0, 750, 0)],
        *([(10 * number, 1_000, 0), (10 * number, 1_000, 0)] for number in range(1, 6)),
        [(60, 250, 750), (60, 0, 250)],
    ]
    assert 'viewBox="0 0 70 1000"' in html
    assert f"<title>{day()}: 1500 prompt, 500 completion</title>" in html
    assert "the highest is 2.000." in html
    assert len(bars(viewer.get(LIST, days="90"))) == 90


def test_calls_without_tokens_are_a_flat_line_and_none_are_no_chart(viewer: Operator, tenant: Tenant) -> None:
    assert "No calls." in viewer.get(LIST)
    assert not bars(viewer.get(LIST))
    add_calls(tenant, outcome="http_500")
    assert {height for bar in bars(viewer.get(LIST)) for _, _, height in bar} == {0}


def test_the_page_needs_no_script_and_nothing_from_elsewhere(viewer: Operator, tenant: Tenant) -> None:
    add_calls(tenant)
    content = viewer.get(LIST).partition('id="content-main"')[2].partition("</main>")[0]
    assert 'role="img" aria-label="Tokens per day' in content
    for foreign in ("<script", "style=", "http:", "https:", "src="):
        assert foreign not in content


# --- who may, and what else may be there


def test_nothing_can_be_done_with_calls_and_none_has_a_page(root: Operator, viewer: Operator, tenant: Tenant) -> None:
    add_calls(tenant)
    pk = ModelCall.objects.get().pk
    for operator in (root, viewer):
        assert day() in operator.get(LIST)
        for place in ("add/", f"{pk}/change/", f"{pk}/delete/", f"{pk}/history/", f"{pk}/"):
            operator.get(f"{LIST}{place}", 404)
            operator.post(f"{LIST}{place}", 404, post="yes", model="x")
        operator.try_to(LIST, "delete_selected", ModelCall.objects.get())
    assert ModelCall.objects.get().model == "main"


def test_whoever_has_no_permission_sees_none(db: None) -> None:
    Operator(User.objects.create_user("nobody", password="p", is_staff=True)).get(LIST, 403)


@pytest.mark.parametrize("name", ["<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "{{ 7|add:7 }}"])
def test_hostile_names_are_shown_as_text(viewer: Operator, tenant: Tenant, name: str) -> None:
    Tenant.objects.create(name=name)
    add_calls(tenant, model=f"\u202e{name}")
    html = viewer.get(LIST)
    assert "<script>alert" not in html
    assert "<img src=x" not in html
    assert ">14<" not in html
    assert "<bdi>\u202e" in html
    assert html.count("alert(1)") == 2 * name.count("alert(1)")


# --- what it costs


def test_the_page_costs_the_same_whatever_there_is(viewer: Operator, tenant: Tenant) -> None:
    add_calls(tenant)
    few = len(queries(lambda: viewer.get(LIST)))
    for number in range(30):
        add_calls(Tenant.objects.create(name=f"tenant {number}"), number, model=f"model {number}")
    asked = queries(lambda: viewer.get(LIST))
    assert len(asked) == few <= 8
    assert len([sql for sql in asked if "modelcall" in sql]) == 2


def test_old_calls_are_not_read(tenant: Tenant, other_tenant: Tenant) -> None:
    """Neither those of all tenants nor those of the one that has most."""
    for number in range(100):
        add_calls(tenant, 40 + number, count=100)
    add_calls(tenant, 3, count=100)
    add_calls(other_tenant, 3, count=100)
    analyze()
    for chosen, found in (([tenant.pk, other_tenant.pk], 200), ([tenant.pk], 100)):
        with Reading() as reading:
            calls = usage.calls_since(usage.first_moment(30), chosen)
            sums = [list(usage.sums_by(calls)), list(usage.sums_by(calls, "kind", "model")[:1_001])]
        assert [[line["calls"] for line in lines] for lines in sums] == [[found], [found]]
        reading.assert_reads_only(2 * found)
