"""The official openai package against our server, and against the model's."""

from collections.abc import Iterator
from typing import Any

import openai
import pytest
from pytest_django.live_server_helper import LiveServer

from memorygw import gateway
from memorygw.models import Tenant
from memorygw.testing import ScriptedModelServer


@pytest.fixture
def sdk(tenant: Tenant, live_server: LiveServer) -> Iterator[openai.OpenAI]:
    key = gateway.create_api_key(tenant.name, role="service", name="tests")[1]
    options: dict[str, Any] = {"default_headers": {"X-Memorygw-User": "ada"}, "max_retries": 0}
    with openai.OpenAI(base_url=f"{live_server.url}/v1", api_key=key, **options) as openai_client:
        yield openai_client


@pytest.fixture
def direct(model: ScriptedModelServer) -> Iterator[openai.OpenAI]:
    """The same package against the model's server."""
    with openai.OpenAI(base_url=model.base_url, api_key="none", max_retries=0) as openai_client:
        yield openai_client
