"""The model of a machine without one."""

import pytest
from pytest_django import Settings

from memorygw import gateway
from memorygw.llm.base import CompletionRequest
from memorygw.llm.offline import OfflineClient
from memorygw.models import Tenant
from tests.conftest import learn


@pytest.fixture(autouse=True)
def offline(settings: Settings) -> None:
    settings.MEMORYGW_LLM_CLIENT = "memorygw.llm.offline.OfflineClient"


def learned(tenant: Tenant, *said: str) -> dict[str, str]:
    for text in said:
        gateway.ask(tenant, "ada", text)
        learn()
    return {fact.key: fact.value for fact in gateway.get_user_facts(tenant, "ada")}


def test_it_learns_by_plain_patterns_and_says_what_it_is(tenant: Tenant) -> None:
    facts = learned(
        tenant,
        "Hi, my name is Ada Lovelace and I live in Turin.",
        "My favourite tea is oolong, and I am allergic to peanuts.",
        "Please answer in Italian. I work as a mathematician!",
    )
    assert facts == {
        "name": "Ada Lovelace",
        "home": "Turin",
        "favourite tea": "oolong",
        "allergy": "peanuts",
        "language": "Italian",
        "work": "a mathematician",
    }
    answer = gateway.ask(tenant, "ada", "What do you know?").answer.content
    assert "home: Turin" in answer
    assert "Offline model" in answer
    assert "nothing about you" in gateway.ask(tenant, "bob", "What do you know?").answer.content


def test_it_forgets_when_told_to(tenant: Tenant) -> None:
    assert learned(tenant, "I live in Turin.", "Please forget my home.") == {}


def test_what_the_assistant_says_is_nobodys_fact(tenant: Tenant) -> None:
    prompt = "[2026-01-01T00:00:00+00:00] assistant: my name is Bot.\n[2026-01-01T00:00:01+00:00] user: hm"
    request = CompletionRequest(kind="MEMORY_USER", model="x", messages=[{"role": "user", "content": prompt}])
    assert OfflineClient().complete(request).content == '{"operations": []}'


def test_it_is_deterministic() -> None:
    request = CompletionRequest(kind="CHAT", model="x", messages=[{"role": "user", "content": "Hello"}])
    assert OfflineClient().complete(request) == OfflineClient().complete(request)


@pytest.mark.parametrize(
    ("said", "facts"),
    [
        ("My name is Ada and I cycle to work.", {"name": "Ada", "way to work": "cycle"}),
        ("Ich heiße Ada und fahre mit dem Rad zur Arbeit.", {"name": "Ada", "way to work": "mit dem Rad"}),
        ("Ich wohne in Turin und bin allergisch gegen Nüsse.", {"home": "Turin", "allergy": "Nüsse"}),
    ],
)
def test_what_the_playground_suggests_is_learned_with_its_source(
    tenant: Tenant, said: str, facts: dict[str, str]
) -> None:
    assert learned(tenant, said) == facts
    for memory in gateway.list_memories(tenant, "ada"):
        [source] = gateway.get_memory_sources(tenant, "ada", memory.id)["sources"]
        assert source.content == said


def test_it_says_what_it_reads_in_a_question_and_what_memory_told_it(tenant: Tenant) -> None:
    first = gateway.ask(tenant, "ada", "My name is Ada and I cycle to work.")
    assert first.answer.content.startswith("I read this in what you say: name: Ada; way to work: cycle. (Offline model")
    learn()
    known = gateway.ask(tenant, "ada", "I live in Turin.").answer.content
    assert known.startswith(
        "I read this in what you say: home: Turin. I remember this about you: name: Ada; way to work: cycle. (Offline"
    )
    assert gateway.ask(tenant, "ada", "What do you know?").answer.content.startswith("I remember this about you: ")
