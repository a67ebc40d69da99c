"""The examples of the page for agent developers, as they are."""

import json
import runpy
from pathlib import Path

import agents
import pytest
from openai import AsyncOpenAI
from pytest_django import Settings

from memorygw import gateway
from memorygw.models import Tenant
from memorygw.testing import ScriptedModelServer
from tests.conftest import learn

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
HELPER = "gpt-5.4-nano"

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def default() -> Tenant:
    return Tenant.objects.get_or_create(name="default")[0]


def run(name: str) -> None:
    runpy.run_path(str(EXAMPLES / name))


def test_an_agent_remembers(model: ScriptedModelServer, settings: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    settings.MEMORYGW_TITLES_ENABLED = settings.MEMORYGW_WORKING_MEMORY_ENABLED = False
    model.reply(json.dumps(["Lives in Mumbai"]), model=HELPER)
    for _ in range(2):
        run("agent.py")
        learn()
    assert "Lives in Mumbai" in model.requests_for("gpt-5.4-mini")[-1].system
    assert capsys.readouterr().out == "ok\nok\n"


@pytest.mark.rows("A88", "A100")
def test_a_voice_agent_remembers(model: ScriptedModelServer, capsys: pytest.CaptureFixture[str]) -> None:
    model.reply(json.dumps(["Lives in Pune"]), model=HELPER)
    for _ in range(2):
        run("voice.py")
        learn()
    first, second = capsys.readouterr().out.split("You are a friendly voice.")[1:]
    assert ("Lives in Pune" in first, "Lives in Pune" in second) == (False, True)
    assert "user: I live in Pune." in model.requests_for(HELPER)[0].text


# `Runner.run_sync` uses a loop again after it has shut it down.
@pytest.mark.filterwarnings("ignore:asynchronous generator:ResourceWarning")
def test_an_agent_of_the_sdk_remembers(model: ScriptedModelServer, capsys: pytest.CaptureFixture[str]) -> None:
    agents.set_tracing_disabled(True)
    agents.set_default_openai_api("chat_completions")
    gateway.upsert_user_fact("default", "user-42", "home", "Mumbai")
    for _ in range(2):
        # Every run has an event loop of its own, to which a client's connections belong.
        client = AsyncOpenAI(base_url=model.base_url, api_key="none", default_headers={"Connection": "close"})
        agents.set_default_openai_client(client, use_for_tracing=False)
        run("openai_agents_session.py")
    assert capsys.readouterr().out == "ok\nok\n"
    last = [request for request in model.requests if request.body.get("tools")][-1]
    assert "home: Mumbai" in last.system
    assert [message["role"] for message in last.messages] == ["system", "user", "assistant", "user"]
