"""What a prompt knows: which facts apply, which have room (R14, R17–R19, R93–R101)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pytest_django import Settings

from memorygw import gateway
from memorygw.context import facts_block
from memorygw.models import ModelCall, Persona, Tenant
from memorygw.testing import ScriptedModelServer
from memorygw.tokens import count_tokens
from tests.conftest import learn
from tests.memorygw.runs import CLIENT_TOOL, call
from tests.memorygw.test_context import SomeFact
from usermemory.models import Fact, Owner
from usermemory.rows import Source, content
from usermemory.store import UserMemoryStore

store = UserMemoryStore()


def known(tenant: Tenant, key: str, value: str = "x", owner: Owner | None = None) -> Fact:
    return store.set_fact(tenant.pk, owner or Owner.user("ada"), key, value, Source("manual"))


def told(model: ScriptedModelServer) -> list[str]:
    """The lines of the block of facts in the last prompt."""
    lines = model.requests_for("main")[-1].system.splitlines()
    return lines[lines.index("<user_memory>") + 2 : lines.index("</user_memory>")] if "<user_memory>" in lines else []


@pytest.mark.rows("R14", "R17", "R18", "R19", "R93", "R95")
def test_a_prompt_has_the_facts_of_every_scope_that_applies(
    tenant: Tenant, other_tenant: Tenant, model: ScriptedModelServer
) -> None:
    coach, other = (Persona.objects.create(tenant=tenant, name=name) for name in ("coach", "other"))
    known(tenant, "own"), known(tenant, "shared", owner=Owner.persona(coach.pk))
    known(tenant, "ours", owner=Owner.persona_user(coach.pk, "ada"))
    known(tenant, "eve's", owner=Owner.user("eve")), known(tenant, "others", owner=Owner.persona(other.pk))
    known(tenant, "eve's and coach's", owner=Owner.persona_user(coach.pk, "eve")), known(other_tenant, "foreign")
    gateway.ask(tenant, "ada", "Hello", persona="coach")
    assert told(model) == ["own: x", "shared: x", "ours: x"]
    gateway.ask(tenant, "eve", "Hello", persona="coach")
    assert told(model) == ["shared: x", "eve's: x", "eve's and coach's: x"]
    gateway.ask(tenant, "ada", "Hello")
    assert told(model) == ["own: x"]


def test_facts_never_make_a_question_too_large_for_a_small_model(
    tenant: Tenant, model: ScriptedModelServer, settings: Settings
) -> None:
    settings.MEMORYGW_MODELS = {"main": {"context_window": 4096, "output_reserve": 1024}}
    for n in range(40):
        known(tenant, f"事实{n}", "我喜欢在周末和家人一起去公园散步然后喝茶看书" * 6)
    answer = gateway.ask(tenant, "ada", "hi")
    assert 1 <= len(told(model)) == 40 - answer.warnings[0].count
    assert count_tokens("\n".join(told(model)), "main") <= (4096 - 1024) // 4


def test_the_facts_about_a_question_stay_in_the_prompt_when_the_run_goes_on(
    tenant: Tenant, model: ScriptedModelServer, settings: Settings
) -> None:
    settings.MEMORYGW_INJECTION_BUDGET_CHARS = 600
    for n in range(30):
        known(tenant, f"filler {n}", "reads novels at home")
    known(tenant, "allergy", "peanuts")
    Fact.objects.filter(key="allergy").update(confidence=0.5)
    model.reply(None, model="main", tool_calls=[call("get_time")])
    paused = gateway.ask(tenant, "ada", "May I eat peanuts with my allergy?", tools=[CLIENT_TOOL])
    assert "allergy: peanuts" in told(model)
    gateway.continue_run(tenant, "ada", paused.run.id, [gateway.Decision(tool_call_id="c1", content="12")])
    assert "allergy: peanuts" in told(model)


@pytest.mark.rows("R94")
def test_what_waits_or_is_archived_is_not_told(tenant: Tenant, model: ScriptedModelServer) -> None:
    known(tenant, "active")
    for status in ("pending_review", "archived"):
        Fact.objects.create(
            tenant=tenant, scope="user", owner_id="ada", origin="auto", status=status, **content(status, "x")
        )
    gateway.ask(tenant, "ada", "Hello")
    assert told(model) == ["active: x"]


@pytest.mark.rows("R97", "R98", "R99")
def test_above_the_budget_the_facts_that_fit_the_question_are_told(
    tenant: Tenant, model: ScriptedModelServer, settings: Settings
) -> None:
    settings.MEMORYGW_MAX_FACTS, settings.MEMORYGW_MAX_FACT_CHARS = 0, 0
    known(tenant, "diet", "no meat since 2019")
    for n in range(200):
        known(tenant, f"hobby {n}", "reads novels " * 8)
    answer = gateway.ask(tenant, "ada", "What is my diet?")
    block = "\n".join(told(model))
    assert "diet: no meat since 2019" in told(model)
    assert len(block) <= 6_000
    assert all(line.endswith(("2019", "novels")) for line in told(model))
    [warning] = answer.warnings
    assert (warning.code, warning.count) == ("facts_left_out", 201 - len(told(model)))
    assert len(answer.run.memories) == len(told(model))


def test_callers_with_their_own_model_say_what_the_facts_are_for(
    tenant: Tenant, model: ScriptedModelServer, settings: Settings
) -> None:
    settings.MEMORYGW_INJECTION_BUDGET_CHARS = 160
    for key in ("diet", "home", "work", "pet"):
        known(tenant, key, "something")
    thread_id = gateway.create_thread(tenant, "ada").pk
    context = gateway.get_context(tenant, "ada", thread_id, query="Who is my pet?")
    assert "pet" in [fact.key for fact in context.facts]
    assert len(context.facts) < 4


@pytest.mark.rows("R96", "R101")
def test_with_an_embedder_meaning_counts_and_one_that_fails_is_done_without(
    tenant: Tenant, model: ScriptedModelServer, settings: Settings
) -> None:
    settings.MEMORYGW_EMBEDDING_MODEL, settings.MEMORYGW_EMBEDDING_BASE_URL = "small", model.base_url
    settings.MEMORYGW_INJECTION_BUDGET_CHARS = 160
    east, north = [1.0, 0.0], [0.0, 1.0]
    for key, vector in {"pet": east, "home": north, "work": north, "diet": north}.items():
        model.embeddings[f"{key}: something"] = vector
        known(tenant, key, "something")
    learn()
    model.embeddings["Is there an animal?"] = east
    gateway.ask(tenant, "ada", "Is there an animal?")
    assert "pet: something" in told(model)
    assert ModelCall.objects.filter(kind=ModelCall.Kind.EMBEDDING, outcome="ok").exists()
    model.fail(500, model="small")
    assert gateway.ask(tenant, "ada", "Is there an animal?").answer.content == "ok"
    assert told(model)


@pytest.mark.rows("R100")
def test_without_facts_the_prompt_is_what_it_was(tenant: Tenant, model: ScriptedModelServer) -> None:
    gateway.ask(tenant, "ada", "Hello")
    assert model.requests_for("main")[-1].messages == [{"role": "user", "content": "Hello"}]


_hostile = st.text(st.sampled_from("ab<>/ \n\r\u2028\u200buser_memoryconversation_notes"), max_size=40)


@given(
    st.lists(st.tuples(_hostile, _hostile), max_size=12),
    st.integers(1, 1_500),
)
def test_a_block_is_within_its_budget_and_reads_back_as_its_facts(pairs: list[tuple[str, str]], budget: int) -> None:
    facts = [SomeFact(f"k{n}{key}", f"v{value}") for n, (key, value) in enumerate(pairs)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("django.conf.settings.MEMORYGW_INJECTION_BUDGET_CHARS", budget, raising=False)
        block = facts_block(facts)
    assert len(block.text) <= max(budget, 0) or not block.text
    lines = block.text.splitlines()
    assert len(lines) == (len(block.facts) + 3 if block.facts else 0)
    assert block.text.count("<user_memory>") == block.text.count("</user_memory>") == bool(block.facts)
    assert block.left_out == len(facts) - len(block.facts)
    for line, fact in zip(lines[2:-1], block.facts, strict=True):
        assert line.startswith(fact.key[:2])
