"""The embedder: what is sent to /embeddings and where to, what a reply must be, and what a failure does."""

import json
import logging
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from django.db import connection
from pytest_django import Settings

from memorygw.conf import component
from memorygw.embeddings.calls import MAX_TEXT_CHARS, embed, query_vector
from memorygw.embeddings.openai import OpenAIEmbedder
from memorygw.exceptions import ModelFailedError
from memorygw.models import ModelCall, Tenant
from memorygw.testing import ScriptedModelServer
from memorygw.tokens import count_tokens

OWL, RAIN = [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]


@pytest.fixture
def embedder(model: ScriptedModelServer, settings: Settings) -> ScriptedModelServer:
    settings.MEMORYGW_EMBEDDING_MODEL = "embed"
    model.embeddings |= {"owl": OWL, "rain": RAIN}
    return model


def sent(server: ScriptedModelServer) -> list[Any]:
    return [request.body["input"] for request in server.requests_for("embed")]


def calls() -> list[tuple[str, str, str, int]]:
    return list(ModelCall.objects.order_by("id").values_list("kind", "model", "outcome", "prompt_tokens"))


def lists(vectors: Sequence[Any] | None) -> list[Any]:
    assert vectors is not None
    return [vector.tolist() for vector in vectors]


def test_texts_become_vectors_in_their_order_and_the_call_is_recorded(
    tenant: Tenant, embedder: ScriptedModelServer
) -> None:
    vectors = embed(["rain", "owl"], tenant_id=tenant.pk)
    assert lists(vectors) == [RAIN, OWL]
    assert vectors
    assert {vector.dtype for vector in vectors} == {np.dtype(np.float32)}
    [request] = embedder.requests
    assert request.body == {"model": "embed", "input": ["rain", "owl"], "encoding_format": "float"}
    assert calls() == [("EMBEDDING", "embed", "ok", count_tokens("rain", "embed") + count_tokens("owl", "embed"))]
    assert ModelCall.objects.get().tenant == tenant


def test_without_an_embedding_model_nothing_is_sent(tenant: Tenant, model: ScriptedModelServer) -> None:
    assert embed(["owl"], tenant_id=tenant.pk) is None
    assert query_vector("owl", tenant_id=tenant.pk) is None
    assert (model.requests, calls()) == ([], [])


def test_no_texts_and_a_blank_query_cost_no_call(tenant: Tenant, embedder: ScriptedModelServer) -> None:
    assert embed([], tenant_id=tenant.pk) == []
    assert query_vector(" \n", tenant_id=tenant.pk) is None
    assert embedder.requests == []


def test_many_texts_go_in_batches_of_at_most_a_hundred(embedder: ScriptedModelServer) -> None:
    embedder.embeddings = {str(number): [float(number), 1.0] for number in range(201)}
    vectors = OpenAIEmbedder().embed([str(number) for number in range(201)])
    assert [len(batch) for batch in sent(embedder)] == [100, 100, 1]
    assert [vector[0] for vector in vectors] == list(range(201))


def test_of_a_long_text_the_beginning_is_sent(tenant: Tenant, embedder: ScriptedModelServer) -> None:
    assert query_vector("x" * 50_000, tenant_id=tenant.pk) is not None
    assert sent(embedder) == [["x" * MAX_TEXT_CHARS]]


def test_no_connection_is_held_while_the_embedder_works(
    transactional_db: None, embedder: ScriptedModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    tenant = Tenant.objects.get(name="default")
    held = []
    ask = OpenAIEmbedder.embed

    def spy(self: OpenAIEmbedder, texts: Sequence[str]) -> list[list[float]]:
        held.append(connection.connection)
        return ask(self, texts)

    monkeypatch.setattr(OpenAIEmbedder, "embed", spy)
    embed(["owl"], tenant_id=tenant.pk)
    assert held == [None]


# --- where to, and with which key


@pytest.fixture
def keys(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "openai-key")
    settings.MEMORYGW_LLM_API_KEY = "llm-key"


def test_the_embedders_own_server_gets_its_own_key(
    keys: None, embedder: ScriptedModelServer, settings: Settings
) -> None:
    with ScriptedModelServer() as own:
        settings.MEMORYGW_EMBEDDING_BASE_URL, settings.MEMORYGW_EMBEDDING_API_KEY = own.base_url, "embedding-key"
        component("EMBEDDER").embed(["owl"])
        assert [request.headers["authorization"] for request in own.requests] == ["Bearer embedding-key"]
    assert embedder.requests == []


def test_a_server_of_its_own_without_a_key_gets_nobody_elses(
    keys: None, embedder: ScriptedModelServer, settings: Settings
) -> None:
    with ScriptedModelServer() as own:
        settings.MEMORYGW_EMBEDDING_BASE_URL = own.base_url
        component("EMBEDDER").embed(["owl"])
        assert [request.headers["authorization"] for request in own.requests] == ["Bearer none"]


def test_without_a_server_of_its_own_the_language_models_is_asked_with_its_key(
    keys: None, embedder: ScriptedModelServer, settings: Settings
) -> None:
    component("EMBEDDER").embed(["owl"])
    settings.MEMORYGW_LLM_API_KEY = ""
    component("EMBEDDER").embed(["owl"])
    authorizations = [request.headers["authorization"] for request in embedder.requests]
    assert authorizations == ["Bearer llm-key", "Bearer none"]


@pytest.mark.parametrize(("llm_key", "key"), [("llm-key", "llm-key"), ("", "openai-key")])
def test_without_any_server_it_is_openai_with_its_key(keys: None, settings: Settings, llm_key: str, key: str) -> None:
    settings.MEMORYGW_LLM_BASE_URL, settings.MEMORYGW_LLM_API_KEY = "", llm_key
    client = OpenAIEmbedder()._client
    assert (str(client.base_url), client.api_key) == ("https://api.openai.com/v1/", key)
    client.close()


# --- replies that are none


def reply(*vectors: Any, indexes: Sequence[Any] | None = None) -> bytes:
    numbered = zip(range(len(vectors)) if indexes is None else indexes, vectors, strict=True)
    data = [{"object": "embedding", "index": index, "embedding": vector} for index, vector in numbered]
    return json.dumps({"object": "list", "data": data, "model": "embed"}).encode()


def test_vectors_are_taken_by_their_index(tenant: Tenant, embedder: ScriptedModelServer) -> None:
    embedder.garbage(reply(RAIN, OWL, indexes=[1, 0]), content_type="application/json", model="embed")
    assert lists(embed(["owl", "rain"], tenant_id=tenant.pk)) == [OWL, RAIN]


@pytest.mark.parametrize(
    "body",
    [
        reply(),
        reply(OWL),
        reply(OWL, OWL, OWL),
        reply(OWL, OWL, indexes=[0, 0]),
        reply(OWL, OWL, indexes=[1, 2]),
        reply(OWL, OWL, indexes=[None, "0"]),
        reply(OWL, OWL, indexes=[[], {}]),
        reply(OWL, [1.0, 2.0]),
        reply([], []),
        reply(OWL, [1.0, float("nan"), 0.0]),
        reply(OWL, [1.0, float("inf"), 0.0]),
        reply(OWL, [1.0, 1e300, 0.0]),
        reply(OWL, [10**400, 1, 1]),
        reply(OWL, ["0.1", "0.2", "0.3"]),
        reply(OWL, None),
        reply(OWL, "AAAA"),
        reply([OWL], [OWL]),
        b'{"data": 7}',
        b'{"data": [7, null]}',
        b"{}",
        b"[]",
        b"null",
        b"\xff{",
        b"",
    ],
)
@pytest.mark.parametrize("content_type", ["application/json", "text/html"])
def test_a_reply_without_one_good_vector_per_text_is_a_failure(
    tenant: Tenant, embedder: ScriptedModelServer, body: bytes, content_type: str
) -> None:
    embedder.garbage(body, content_type=content_type, model="embed")
    with pytest.raises(ModelFailedError) as caught:
        embed(["owl", "rain"], tenant_id=tenant.pk)
    assert caught.value.reason == "malformed"
    assert calls() == [("EMBEDDING", "embed", "malformed", 0)]


Script = Callable[[ScriptedModelServer, Settings], None]


def unreachable(_: ScriptedModelServer, settings: Settings) -> None:
    settings.MEMORYGW_EMBEDDING_BASE_URL = "http://127.0.0.1:9/v1"


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (lambda server, _: server.fail(500, model="embed"), "http_500"),
        (lambda server, _: server.fail(400, model="embed"), "http_400"),
        (lambda server, _: server.fail(429, model="embed", headers={"Retry-After": "0.01"}), "http_429"),
        (lambda server, _: server.disconnect(model="embed"), "unreachable"),
        (unreachable, "unreachable"),
    ],
)
def test_a_failure_is_tried_once_recorded_and_leaves_a_query_to_its_words(
    tenant: Tenant,
    embedder: ScriptedModelServer,
    settings: Settings,
    caplog: pytest.LogCaptureFixture,
    script: Script,
    reason: str,
) -> None:
    settings.MEMORYGW_LLM_RETRIES = 2
    script(embedder, settings)
    with caplog.at_level(logging.WARNING, "memorygw"):
        assert query_vector("secret words", tenant_id=tenant.pk) is None
    assert reason in caplog.text
    assert "secret" not in caplog.text
    assert calls() == [("EMBEDDING", "embed", reason, 0)]
    assert len(embedder.requests) <= 1


def test_a_query_does_not_wait_longer_than_the_timeout(
    tenant: Tenant, embedder: ScriptedModelServer, settings: Settings
) -> None:
    settings.MEMORYGW_EMBEDDING_TIMEOUT_SECONDS = 0.2
    with embedder.hold(model="embed"):
        assert query_vector("owl", tenant_id=tenant.pk) is None
    assert ModelCall.objects.get().outcome == "timeout"


# --- a host's embedder


class LocalEmbedder:
    """A host's own: a text's length, and 1."""

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        return [[len(text), 1] for text in texts]


class RudeEmbedder:
    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        raise KeyError(texts[0])


def test_a_host_names_an_embedder_of_its_own(tenant: Tenant, embedder: ScriptedModelServer, settings: Settings) -> None:
    settings.MEMORYGW_EMBEDDER = "tests.memorygw.test_embeddings.LocalEmbedder"
    assert lists(embed(["owl", "rain"], tenant_id=tenant.pk)) == [[3, 1], [4, 1]]
    assert embedder.requests == []


def test_an_embedder_that_breaks_its_word_breaks_no_answer(
    tenant: Tenant, embedder: ScriptedModelServer, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    settings.MEMORYGW_EMBEDDER = "tests.memorygw.test_embeddings.RudeEmbedder"
    assert query_vector("secret words", tenant_id=tenant.pk) is None
    assert "KeyError" in caplog.text
    assert "secret" not in caplog.text
    assert calls() == [("EMBEDDING", "embed", "embedder_error", 0)]
