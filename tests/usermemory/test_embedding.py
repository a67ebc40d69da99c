"""Late work that gives facts their vectors: when, whose, and what failures, edits and doubled jobs do to it."""

import io
import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from django.core.management import CommandError, call_command
from django.db import IntegrityError, transaction
from django.utils import timezone
from pytest_django import Settings

from memorygw.claims import MAX_ATTEMPTS
from memorygw.embeddings.base import from_bytes
from memorygw.exceptions import ModelFailedError
from memorygw.models import ModelCall, Persona, Tenant
from memorygw.testing import ScriptedModelServer
from tests.conftest import background, learn
from usermemory.embedding import BATCH_FACTS, NO_VECTOR, mark_outdated, note_change, recall_facts
from usermemory.models import EmbeddingState, Fact, Owner, UserMemory, identity
from usermemory.store import UserMemoryStore
from usermemory.tasks import embed_facts


@pytest.fixture(autouse=True)
def embedder(model: ScriptedModelServer, settings: Settings) -> ScriptedModelServer:
    settings.MEMORYGW_EMBEDDING_MODEL = "embed"
    return model


def fact(tenant: Tenant, key: str, value: str, user: str = "ada", **columns: Any) -> Fact:
    values = {"scope": "user", "owner_id": user, "origin": "manual", "identity": identity(key or value)}
    return Fact.objects.create(tenant=tenant, key=key, value=value, **{**values, **columns})


def note(tenant: Tenant, scope: str = "user", owner_id: str = "ada", user_id: str = "") -> UUID:
    state_id = note_change(tenant.pk, Owner(scope, owner_id, user_id))
    assert state_id
    return state_id


def edit(row: Fact, value: str) -> None:
    Fact.objects.filter(pk=row.pk).update(value=value, **NO_VECTOR)


def sent(server: ScriptedModelServer, model: str = "embed") -> list[Any]:
    return [request.body["input"] for request in server.requests_for(model)]


def vector(row: Fact) -> list[float] | None:
    row.refresh_from_db()
    return None if row.embedding is None else from_bytes(row.embedding).tolist()


def retry() -> None:
    EmbeddingState.objects.exclude(due_at=None).update(due_at=timezone.now() - timedelta(seconds=1))
    learn()


# --- the vectors


def test_facts_that_changed_get_their_vectors_late_and_nothing_else_of_them_moves(
    tenant: Tenant, embedder: ScriptedModelServer
) -> None:
    pet, said = fact(tenant, "pet", "owl"), fact(tenant, "", "Likes rain.", kind="text")
    pending = fact(tenant, "city", "Turin", status="pending_review")
    fact(tenant, "old", "gone", status="archived")
    fact(tenant, "pet", "cat", user="bob")
    embedder.embeddings["pet: owl"] = [1.0, *[0.5] * 7]
    before = Fact.objects.values("updated_at", "value", "status").get(pk=pet.pk)
    note(tenant)
    assert embedder.requests == []
    learn()
    assert sent(embedder) == [["pet: owl", "Likes rain.", "city: Turin"]]
    assert vector(pet) == [1.0, *[0.5] * 7]
    assert [row.embedding_model for row in Fact.objects.filter(owner_id="ada").in_order()] == ["embed"] * 3 + [""]
    assert vector(said) != vector(pending)
    assert Fact.objects.values("updated_at", "value", "status").get(pk=pet.pk) == before
    assert ModelCall.objects.filter(kind="EMBEDDING", tenant=tenant, outcome="ok").count() == 1


def test_only_what_has_no_vector_is_sent(tenant: Tenant, embedder: ScriptedModelServer) -> None:
    pet = fact(tenant, "pet", "owl")
    note(tenant)
    learn()
    fact(tenant, "city", "Turin")
    assert note(tenant) == note(tenant)
    learn()
    edit(pet, "cat")
    assert vector(pet) is None
    note(tenant)
    learn()
    note(tenant)
    learn()
    assert sent(embedder) == [["pet: owl"], ["city: Turin"], ["pet: cat"]]
    assert EmbeddingState.objects.get().due_at is None


def test_owners_of_every_scope_have_a_state_of_their_own(
    tenant: Tenant, other_tenant: Tenant, embedder: ScriptedModelServer
) -> None:
    persona = str(Persona.objects.create(tenant=tenant, name="guide").pk)
    fact(tenant, "a", "1", scope="user")
    fact(tenant, "b", "2", scope="persona", owner_id=persona)
    fact(tenant, "c", "3", scope="persona_user", owner_id=persona, user_id="ada")
    fact(other_tenant, "d", "4")
    ids = {note(tenant), note(tenant, "persona", persona), note(tenant, "persona_user", persona, "ada")}
    learn()
    assert len(ids) == 3
    assert sorted(sent(embedder)) == [["a: 1"], ["b: 2"], ["c: 3"]]
    assert set(EmbeddingState.personal_to(tenant.pk, "ada").values_list("scope", flat=True)) == {"user", "persona_user"}
    assert not EmbeddingState.personal_to(tenant.pk, persona).exists()
    assert not EmbeddingState.personal_to(other_tenant.pk, "ada").exists()
    with pytest.raises(ValueError, match="required"):
        EmbeddingState.personal_to(tenant.pk, "")


def test_many_facts_go_in_batches(tenant: Tenant, embedder: ScriptedModelServer) -> None:
    for number in range(BATCH_FACTS + 1):
        fact(tenant, f"key-{number}", "value")
    note(tenant)
    learn()
    assert [len(batch) for batch in sent(embedder)] == [BATCH_FACTS, 1]
    assert not Fact.objects.filter(embedding=None).exists()


def test_a_vector_and_the_name_of_its_model_go_together(tenant: Tenant) -> None:
    row = fact(tenant, "pet", "owl")
    for half in ({"embedding": b"1234"}, {"embedding_model": "embed"}):
        with pytest.raises(IntegrityError), transaction.atomic():
            Fact.objects.filter(pk=row.pk).update(**half)


def test_without_an_embedder_nothing_is_noted_or_sent(
    tenant: Tenant, embedder: ScriptedModelServer, settings: Settings
) -> None:
    fact(tenant, "pet", "owl")
    state_id = note(tenant)
    settings.MEMORYGW_EMBEDDING_MODEL = ""
    assert note_change(tenant.pk, Owner.user("bob")) is None
    embed_facts(str(state_id))
    learn()
    assert (embedder.requests, EmbeddingState.objects.count()) == ([], 1)


# --- failures


@pytest.mark.parametrize("failure", ["http_500", "malformed"])
def test_a_failure_is_tried_again_later_with_half_as_many_facts(
    tenant: Tenant, embedder: ScriptedModelServer, failure: str
) -> None:
    rows = [fact(tenant, f"key-{number}", "value") for number in range(BATCH_FACTS)]
    if failure == "malformed":
        embedder.garbage(b"{}", content_type="application/json", model="embed")
    else:
        embedder.fail(500, model="embed")
    note(tenant)
    learn()
    state = EmbeddingState.objects.get()
    assert (state.last_error, state.attempts, state.claim_token) == (failure, 1, None)
    assert state.due_at
    assert state.due_at > timezone.now()
    assert vector(rows[0]) is None
    retry()
    assert [len(batch) for batch in sent(embedder)] == [BATCH_FACTS, BATCH_FACTS // 2, BATCH_FACTS // 2]
    assert not Fact.objects.filter(embedding=None).exists()
    settled = EmbeddingState.objects.get()
    assert (settled.last_error, settled.attempts, settled.due_at) == ("", 0, None)


class Picky:
    """Refuses every request with a certain text in it, as servers do with texts that are too long for them."""

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        if any("poison" in text for text in texts):
            raise ModelFailedError("http_400")
        return [[1.0, 0.0]] * len(texts)


def test_a_text_that_the_server_refuses_holds_up_no_other(tenant: Tenant, settings: Settings) -> None:
    settings.MEMORYGW_EMBEDDER = "tests.usermemory.test_embedding.Picky"
    poison = fact(tenant, "note", "poison")
    others = [fact(tenant, f"key-{number}", "value") for number in range(5)]
    note(tenant)
    learn()
    for _ in range(8):
        retry()
    assert [vector(row) for row in others] == [[1.0, 0.0]] * 5
    assert vector(poison) == []
    [hit] = UserMemoryStore().recall(tenant.pk, "ada", "poison")[:1]
    assert hit.fact == poison


def test_a_server_that_refuses_everything_is_asked_again_later(tenant: Tenant, settings: Settings) -> None:
    settings.MEMORYGW_EMBEDDER = "tests.usermemory.test_embedding.Picky"
    rows = [fact(tenant, f"key-{number}", "poison") for number in range(3)]
    note(tenant)
    learn()
    for _ in range(8):
        retry()
    assert [vector(row) for row in rows] == [None] * 3


@pytest.mark.parametrize(("attempts", "batch"), [(0, 100), (1, 100), (2, 50), (3, 25), (12, 1)])
def test_a_batch_is_halved_with_each_failed_attempt(attempts: int, batch: int) -> None:
    assert EmbeddingState(attempts=attempts).batch_of(100) == batch


def test_after_many_failures_the_next_change_tries_again(tenant: Tenant, embedder: ScriptedModelServer) -> None:
    row = fact(tenant, "pet", "owl")
    embedder.fail(500, model="embed", times=MAX_ATTEMPTS)
    note(tenant)
    for _ in range(MAX_ATTEMPTS + 3):
        retry()
    assert len(sent(embedder)) == MAX_ATTEMPTS
    assert EmbeddingState.objects.get().due_at is None
    note(tenant)
    learn()
    assert vector(row) is not None


def test_facts_of_a_person_who_is_being_erased_are_not_sent(tenant: Tenant, embedder: ScriptedModelServer) -> None:
    fact(tenant, "pet", "owl")
    record = UserMemory.objects.create(tenant=tenant, user_id="ada", erasing_at=timezone.now())
    note(tenant)
    learn()
    assert (sent(embedder), EmbeddingState.objects.get().last_error) == ([], "erasure_running")
    record.erasing_at = None
    record.save()
    retry()
    assert sent(embedder) == [["pet: owl"]]


# --- another model


def test_another_model_reads_every_fact_anew_when_it_is_told_to(
    tenant: Tenant, other_tenant: Tenant, embedder: ScriptedModelServer, settings: Settings
) -> None:
    row = fact(tenant, "pet", "owl")
    fact(tenant, "pet", "cat", user="bob", status="archived")
    fact(other_tenant, "pet", "dog")
    fact(other_tenant, "pet", "emu", user="eve")
    for owner in (tenant, other_tenant):
        note(owner)
    learn()
    assert mark_outdated() == 1
    learn()
    settings.MEMORYGW_EMBEDDING_MODEL = "new"
    embedder.embeddings["pet: owl"] = [2.0, 0.0]
    assert reembed("--tenant", "acme", "--json") == '{"owners": 1}\n'
    learn()
    assert sent(embedder, "new") == [["pet: owl"]]
    assert (vector(row), row.embedding_model) == ([2.0, 0.0], "new")
    assert reembed() == "2 owners of facts are due.\n"
    learn()
    assert json.loads(reembed("--json")) == {"owners": 0}


def reembed(*arguments: str) -> str:
    out = io.StringIO()
    call_command("reembed", *arguments, stdout=out)
    return out.getvalue()


def test_reembedding_needs_an_embedder_and_a_tenant_that_exists(db: None, settings: Settings) -> None:
    with pytest.raises(CommandError, match="no such tenant"):
        reembed("--tenant", "nobody")
    settings.MEMORYGW_EMBEDDING_MODEL = ""
    with pytest.raises(CommandError, match="MEMORYGW_EMBEDDING_MODEL"):
        reembed()


# --- recall with them


def test_recall_compares_with_vectors_of_the_current_model_only(
    tenant: Tenant, embedder: ScriptedModelServer, settings: Settings
) -> None:
    fact(tenant, "pet", "owl")
    fact(tenant, "town", "Turin")
    embedder.embeddings |= {"pet: owl": [1.0, 0.0], "town: Turin": [0.0, 1.0], "animal": [0.9, 0.1]}
    note(tenant)
    learn()
    [hit] = recall_facts(tenant.pk, list(Fact.objects.all()), "animal", only_matches=True)
    assert (hit.fact.key, hit.why) == ("pet", ("semantic",))
    settings.MEMORYGW_EMBEDDING_MODEL = "new"
    assert recall_facts(tenant.pk, list(Fact.objects.all()), "animal", only_matches=True) == []
    assert sent(embedder, "new") == []


def test_when_the_embedder_fails_recall_works_by_words(tenant: Tenant, embedder: ScriptedModelServer) -> None:
    fact(tenant, "pet", "owl")
    fact(tenant, "town", "Turin")
    note(tenant)
    learn()
    embedder.fail(500, model="embed")
    [hit] = recall_facts(tenant.pk, list(Fact.objects.all()), "any owl?", only_matches=True)
    assert (hit.fact.key, hit.why) == ("pet", ("keyword",))
    assert [call.outcome for call in ModelCall.objects.order_by("id")] == ["ok", "http_500"]


# --- at the same time


@contextmanager
def embedding(state_id: UUID, server: ScriptedModelServer) -> Iterator[None]:
    """The job is running and waits for its embedder; at the end the embedder answers and the job is over."""
    with ThreadPoolExecutor(1) as pool:
        with server.hold(model="embed"):
            late = background(pool, embed_facts, str(state_id))
            server.wait_for_requests(1, model="embed")
            yield
        late.result()


@pytest.fixture
def default(transactional_db: None) -> Tenant:
    return Tenant.objects.get(name="default")


def test_a_fact_that_is_edited_meanwhile_gets_the_vector_of_its_new_words(
    default: Tenant, embedder: ScriptedModelServer
) -> None:
    embedder.embeddings |= {"pet: owl": [1.0, 0.0], "pet: cat": [0.0, 1.0], "town: Turin": [1.0, 1.0]}
    pet, town = fact(default, "pet", "owl"), fact(default, "town", "Turin")
    state_id = note(default)
    with embedding(state_id, embedder), transaction.atomic():
        edit(pet, "cat")
        note(default)
    assert sent(embedder) == [["pet: owl", "town: Turin"], ["pet: cat"]]
    assert (vector(pet), vector(town)) == ([0.0, 1.0], [1.0, 1.0])
    assert EmbeddingState.objects.get().due_at is None


def test_a_fact_that_is_new_meanwhile_is_not_forgotten(default: Tenant, embedder: ScriptedModelServer) -> None:
    fact(default, "pet", "owl")
    state_id = note(default)
    with embedding(state_id, embedder), transaction.atomic():
        new = fact(default, "town", "Turin")
        note(default)
    assert vector(new) is not None


def test_a_job_that_comes_twice_is_done_once(default: Tenant, embedder: ScriptedModelServer) -> None:
    fact(default, "pet", "owl")
    state_id = note(default)
    with embedding(state_id, embedder), ThreadPoolExecutor(1) as pool:
        background(pool, embed_facts, str(state_id)).result()
    embed_facts(str(state_id))
    assert sent(embedder) == [["pet: owl"]]


def test_a_job_brings_nothing_of_a_forgotten_person_back(default: Tenant, embedder: ScriptedModelServer) -> None:
    fact(default, "pet", "owl")
    kept = fact(default, "pet", "dog", user="bob")
    state_id = note(default)
    with embedding(state_id, embedder), transaction.atomic():
        Fact.objects.personal_to(default.pk, "ada").delete()
        EmbeddingState.personal_to(default.pk, "ada").delete()
    assert list(Fact.objects.all()) == [kept]
    assert not EmbeddingState.objects.exists()


def test_two_writers_and_a_job_do_not_wait_for_each_other_for_ever(
    default: Tenant, embedder: ScriptedModelServer
) -> None:
    rows = [fact(default, f"key-{number}", "value") for number in range(20)]
    note(default)

    def write(rows: list[Fact], value: str) -> None:
        for row in rows:
            with transaction.atomic():
                edit(row, value)
                note(default)

    with ThreadPoolExecutor(3) as pool:
        jobs = [background(pool, write, rows, "a"), background(pool, write, rows[::-1], "b"), background(pool, learn)]
        for job in jobs:
            job.result(60)
    learn()
    assert not Fact.objects.filter(embedding=None).exists()
