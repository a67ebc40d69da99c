"""The published schema, its page, and the health of the service."""

import re

import pytest
from django.contrib.staticfiles import finders
from django.test import Client
from django.urls import URLResolver, get_resolver


def test_the_schema_names_every_path_method_and_credential(client: Client) -> None:
    document = client.get("/api/v1/schema").json()
    paths = set(document["paths"])
    assert "/api/v1/threads/{thread_id}/ask" in paths
    assert "/api/v1/facts/context" in paths
    assert paths == {
        re.sub(r"<\w+:(\w+)>", r"{\1}", route) for route in own_routes() if not route.endswith(("/schema", "/docs"))
    }
    operations = [operation for path in document["paths"].values() for operation in path.values()]
    ids = [operation["operationId"] for operation in operations]
    assert len(set(ids)) == len(ids)
    assert all(operation["security"] == [{"bearer": []}, {"session": []}] for operation in operations)
    assert document["servers"] == [{"url": "/"}]


def own_routes() -> list[str]:
    """The patterns below api/v1/ and v1/, from the URLconf itself."""
    included = [item for item in get_resolver("memorygw.api.urls").url_patterns if isinstance(item, URLResolver)]
    return [f"/{item.pattern}{route.pattern}" for item in included for route in item.url_patterns]


@pytest.mark.django_db
def test_the_page_of_the_schema_needs_nothing_from_elsewhere(client: Client) -> None:
    page = client.get("/api/v1/docs").content.decode()
    assets = re.findall(r'(?:src|href)="([^"]+)"', page)
    assert len(assets) == 3
    for asset in assets:
        assert asset.startswith("/static/")
        assert finders.find(asset.removeprefix("/static/"))
    assert '"/api/v1/schema"' in page


@pytest.mark.django_db
def test_health_is_told_without_a_credential(client: Client) -> None:
    assert client.get("/livez").json() == {"status": "ok"}
    ready = client.get("/readyz")
    assert (ready.status_code, ready.json()["checks"]["database"]) == (200, "ok")
    assert client.post("/livez").status_code == 405


def test_the_front_page_leads_to_the_docs(client: Client) -> None:
    assert client.get("/").headers["Location"] == "/api/v1/docs"
