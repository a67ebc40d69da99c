"""What a host replaces: stores, model client, tokenizer, prompts."""

from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from django.template import engines
from django.utils import timezone
from pytest_django import Settings

from memorygw import gateway
from memorygw.exceptions import ModelFailedError
from memorygw.llm.base import Completion, CompletionRequest
from memorygw.models import Tenant
from memorygw.testing import ScriptedModelServer
from tests.conftest import extractions, learn
from threads.store import ThreadStore
from usermemory.models import Fact
from usermemory.store import UserMemoryStore
from workingmemory.memory import Notes, Window, WorkingMemory


class ProfileStore(UserMemoryStore):
    """A host's own profile: one fact more than is stored."""

    def get_facts_in_reach(self, tenant_id: UUID, user_id: str, persona_id: UUID | None) -> list[Fact]:
        own = Fact(key="plan", value="gold", updated_at=timezone.now())
        return [*super().get_facts_in_reach(tenant_id, user_id, persona_id), own]


class ShortMemory(WorkingMemory):
    """A host's own working memory: no turns, always the same note."""

    def load(self, thread: Any, **options: Any) -> Window:
        return Window((), options["budget_tokens"], Notes("The host's own note."))


class LoudStore(ThreadStore):
    titles: list[str] = []

    def create_thread(self, *args: Any, **kwargs: Any) -> Any:
        self.titles.append("made")
        return super().create_thread(*args, **kwargs)


class EchoClient:
    def __init__(self, prefix: str) -> None:
        self.prefix = prefix

    def complete(self, request: CompletionRequest) -> Completion:
        if request.kind != "CHAT":
            raise ModelFailedError("no_helper")
        return Completion(content=self.prefix + request.messages[-1]["content"], model="echo")


class CharacterTokenizer:
    def count(self, text: str, model: str) -> int:
        return len(text)


@pytest.mark.rows("U18", "U25", "W5", "W8")
def test_stores_are_replaced_by_dotted_path(tenant: Tenant, model: ScriptedModelServer, settings: Settings) -> None:
    here = "tests.memorygw.test_replaceable"
    settings.MEMORYGW_USER_MEMORY_STORE = f"{here}.ProfileStore"
    settings.MEMORYGW_WORKING_MEMORY_STORE = f"{here}.ShortMemory"
    settings.MEMORYGW_THREAD_STORE = f"{here}.LoudStore"
    thread_id = gateway.create_thread(tenant, "ada").pk
    gateway.ask(tenant, "ada", "Hello", thread_id=thread_id)
    system = model.requests_for("main")[-1].system
    assert "plan: gold" in system
    assert "The host's own note." in system
    assert LoudStore.titles == ["made"]


@pytest.mark.rows("U19")
def test_a_client_is_replaced_with_its_options_and_reading_needs_none(tenant: Tenant, settings: Settings) -> None:
    settings.MEMORYGW_LLM_CLIENT = "tests.memorygw.test_replaceable.EchoClient"
    settings.MEMORYGW_LLM_OPTIONS = {"prefix": "> "}
    settings.MEMORYGW_TOKENIZER = "tests.memorygw.test_replaceable.CharacterTokenizer"
    gateway.upsert_user_fact(tenant, "ada", "lang", "de")
    answer = gateway.ask(tenant, "ada", "Hello").answer
    assert (answer.content, answer.model, answer.token_count) == ("> Hello", "echo", 7)
    learn()
    assert [fact.value for fact in gateway.get_user_facts(tenant, "ada")] == ["de"]


def test_a_prompt_is_replaced_by_a_template_of_the_same_path(
    tenant: Tenant, model: ScriptedModelServer, settings: Settings, tmp_path: Path
) -> None:
    folder = tmp_path / "memorygw" / "prompts"
    folder.mkdir(parents=True)
    (folder / "user_memory.txt").write_text('The host asks for {"operations": []} from:\n{{ transcript }}')
    settings.TEMPLATES = [{**settings.TEMPLATES[0], "DIRS": [tmp_path, *settings.TEMPLATES[0]["DIRS"]]}]
    assert engines.all()
    gateway.ask(tenant, "ada", "Hello & goodbye")
    learn()
    text = extractions(model)[0].text
    assert text.startswith("The host asks")
    assert "user: Hello & goodbye" in text
