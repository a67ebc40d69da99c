"""S41: what a quote has to stand in, and what comes of a fact whose quote is not the user's."""

import logging
from collections.abc import Sequence

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from memorygw import gateway
from memorygw.models import Tenant
from memorygw.testing import ScriptedModelServer
from tests.conftest import extractions, learn
from threads.models import Turn
from threads.turns import TurnDraft
from usermemory.extraction import SCHEMA, Operation, Proposal, check_evidence
from usermemory.models import Fact
from usermemory.tasks import extract_facts

CALL = {"id": "q1", "type": "function", "function": {"name": "lookup", "arguments": "{}"}}
TALK = [
    TurnDraft(role="system", content="The operator banks with Acorn."),
    TurnDraft(role="user", content="I switched to decaf\nlast week."),
    TurnDraft(role="assistant", content=None, tool_calls=[CALL]),
    TurnDraft(role="tool", tool_call_id="q1", content="Owner: Dr. Quill"),
    TurnDraft(role="assistant", content="As a vegetarian you may like oat milk."),
]


def put(evidence: object, key: str = "coffee", value: str = "decaf") -> dict[str, object]:
    return {"op": "SET", "key": key, "value": value, "evidence": evidence}


def drop(evidence: object, key: str = "coffee") -> dict[str, object]:
    return {"op": "DELETE", "key": key, "value": "", "evidence": evidence}


def hear(tenant: Tenant, model: ScriptedModelServer, *operations: object, talk: Sequence[TurnDraft] = TALK) -> None:
    """A new conversation of ada, from which one extraction proposes these operations."""
    model.reply({"operations": list(operations)}, model="cheap")
    gateway.append_turns(tenant, "ada", gateway.create_thread(tenant, "ada").pk, talk)
    learn()


def sources() -> dict[str, int | None]:
    return dict(Fact.objects.values_list("key", "source_seq"))


# --- what a quote stands in


@pytest.mark.parametrize(
    ("said", "quote"),
    [
        ("I live in Turin.", "I live in Turin"),
        ("I live\n\n in\tTurin.", "live in Turin"),
        ("I live in Turin.", "live \u00a0\u2028in\nTurin"),
        ("I LIVE in the Hauptstraße", "i live in the HAUPTSTRASSE"),
        ("I drink cafe\u0301 noir", "caf\u00e9 noir"),
        ("My code name is \uff21\uff22\uff23", "name is ABC"),
        ([{"type": "text", "text": "I live"}, {"type": "text", "text": "in Turin."}], "I live in Turin."),
        ("x" * 50_000 + "y", "x" * 40_000 + "y"),
    ],
)
def test_a_quote_is_found_in_whatever_form_it_was_written(said: object, quote: str) -> None:
    proposal = Proposal([Operation("SET", "a", "b", evidence=quote)], [])
    checked = check_evidence(proposal, [Turn(seq=7, role="user", content=said)])
    assert [operation.source_seq for operation in checked.operations] == [7]


@pytest.mark.parametrize(
    "quote", ["I live in Rome", "I live in cafe", "Turin. I like", "user: I live in Turin.", "I live … Turin"]
)
def test_a_quote_that_is_not_exact_or_spans_turns_is_none(quote: str) -> None:
    turns = [Turn(seq=1, role="user", content="I live in Turin."), Turn(seq=2, role="user", content="I like a café.")]
    checked = check_evidence(Proposal([Operation("SET", "a", "b", evidence=quote)], ["no_key"]), turns)
    assert checked == Proposal([], ["no_key", "evidence_not_user_turn"])


def test_the_newest_turn_with_the_quote_is_the_source_and_the_others_keep_their_order() -> None:
    turns = [Turn(seq=seq, role="user", content=f"Tea, I say. {seq}") for seq in (3, 5)]
    turns.append(Turn(seq=6, role="assistant", content="Tea, I say. 6"))
    quotes = {"both": "tea, i say", "first": "say. 3", "bare": "", "false": "say. 6"}
    proposal = Proposal([Operation("SET", key, "x", evidence=quote) for key, quote in quotes.items()], [])
    checked = check_evidence(proposal, turns)
    assert [(item.key, item.source_seq) for item in checked.operations] == [("both", 5), ("first", 3), ("bare", None)]


# --- what comes of it


@pytest.mark.parametrize(
    ("quote", "stored"),
    [
        ("I switched to decaf last week.", {"coffee": 2}),
        ("", {"coffee": None}),
        ("As a vegetarian you may like oat milk.", {}),
        ("Owner: Dr. Quill", {}),
        ("The operator banks with Acorn.", {}),
        ("town: Lyon", {}),
        ("I never drink coffee", {}),
    ],
)
def test_only_the_users_words_are_evidence(
    tenant: Tenant, model: ScriptedModelServer, caplog: pytest.LogCaptureFixture, quote: str, stored: dict[str, int]
) -> None:
    gateway.upsert_user_fact(tenant, "ada", "town", "Lyon")
    with caplog.at_level(logging.INFO, logger="usermemory"):
        hear(tenant, model, put(quote), {"op": "SET", "key": "pet", "value": "cat"})
    assert sources() == {"town": None, **stored, "pet": None}
    assert ("evidence_not_user_turn" in caplog.text) == (not stored)
    assert not quote or quote not in caplog.text


def test_a_false_quote_neither_replaces_nor_deletes(tenant: Tenant, model: ScriptedModelServer) -> None:
    gateway.upsert_user_fact(tenant, "ada", "coffee", "espresso")
    before = Fact.objects.values().get()
    hear(tenant, model, put("oat milk"), drop("oat milk"))
    assert Fact.objects.values().get() == before
    hear(tenant, model, drop("switched to decaf"))
    assert not Fact.objects.exists()


def test_the_turn_stays_with_an_equal_value_and_goes_with_another_hand(
    tenant: Tenant, model: ScriptedModelServer
) -> None:
    hear(tenant, model, put("decaf"))
    later = [*TALK[:1], TurnDraft(role="assistant", content="Hello."), *TALK[1:]]
    hear(tenant, model, put("decaf"), talk=later)
    assert sources() == {"coffee": 2}
    hear(tenant, model, put("decaf", value="decaf, since May"), talk=later)
    assert sources() == {"coffee": 3}
    hear(tenant, model, put("", value="none at all"))
    assert sources() == {"coffee": None}
    hear(tenant, model, put("decaf"))
    gateway.upsert_user_fact(tenant, "ada", "coffee", "decaf")
    assert sources() == {"coffee": None}


def test_turns_that_were_not_sent_are_no_evidence(tenant: Tenant, model: ScriptedModelServer) -> None:
    thread_id = gateway.create_thread(tenant, "ada").pk
    proposed = [put("I drink decaf"), put("Not for you", "secret"), put("I have a cat", "pet")]
    model.reply({"operations": proposed}, model="cheap")
    gateway.append_turns(tenant, "ada", thread_id, [TurnDraft(role="user", content="I drink decaf.")])
    gateway.clear_user_facts(tenant, "ada")
    new = [
        TurnDraft(role="user", content="Not for you.", learnable=False),
        TurnDraft(role="user", content="I have a cat."),
        TurnDraft(role="assistant", content="Nice."),
    ]
    gateway.append_turns(tenant, "ada", thread_id, new)
    learn()
    assert sources() == {"pet": 3}


def test_turns_of_an_earlier_extraction_are_no_evidence(tenant: Tenant, model: ScriptedModelServer) -> None:
    thread_id = gateway.ask(tenant, "ada", "I drink decaf.").thread_id
    learn()
    model.reply({"operations": [put("I drink decaf"), put("a cat", "pet")]}, model="cheap")
    more = [TurnDraft(role="user", content="I have a cat."), TurnDraft(role="assistant", content="Nice.")] * 4
    gateway.append_turns(tenant, "ada", thread_id, more)
    learn()
    assert sources() == {"pet": 9}


def test_evidence_costs_no_query(tenant: Tenant, model: ScriptedModelServer) -> None:
    counts = []
    for evidence in ("", "I drink decaf"):
        model.reply({"operations": [put(evidence, key) for key in ("a", "b", "c")]}, model="cheap")
        thread_id = gateway.ask(tenant, f"user of {evidence}", "I drink decaf.").thread_id
        with CaptureQueriesContext(connection) as queries:
            extract_facts(str(thread_id))
        counts.append(len(queries))
    assert set(Fact.objects.values_list("owner_id", "source_seq")) == {("user of ", None), ("user of I drink decaf", 1)}
    assert counts[0] == counts[1]


# --- what is asked for


def test_the_model_is_asked_for_evidence(tenant: Tenant, model: ScriptedModelServer) -> None:
    gateway.ask(tenant, "ada", "Hello")
    learn()
    [request] = extractions(model)
    assert request.text.count('"evidence": ') == 2
    operation = SCHEMA["schema"]["properties"]["operations"]["items"]
    # Strict mode refuses a schema with a property that is not required.
    assert operation["required"] == list(operation["properties"]) == ["op", "key", "value", "evidence"]
