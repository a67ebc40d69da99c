"""What is remembered about a user: added, listed, told, forgotten."""

import itertools
import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection
from pytest_django import Settings

from memorygw import gateway
from memorygw.agents import Agent, UserMemory
from memorygw.exceptions import FactRefusedError, FactTooLongError, InvalidError, MemorygwError, UserRequiredError
from memorygw.models import Tenant
from memorygw.testing import ScriptedModelServer
from tests.agents.steps import texts
from tests.conftest import background, learn
from usermemory.models import UserMemory as Record

pytestmark = pytest.mark.django_db(transaction=True)

READ_ELSEWHERE = """
import django; django.setup()
from memorygw.agents import UserMemory
print(*(fact.fact for fact in UserMemory(tenant="acme").get_facts("ada")), sep="|")
"""


# --- adding and listing


@pytest.mark.rows("A7", "A32", "A53")
def test_an_empty_database_needs_no_preparation() -> None:
    memory = UserMemory()
    assert (memory.get_facts("ada"), memory.get_context_string("ada")) == ([], "")
    memory.add_facts("ada", ["Lives in Pune"])
    assert texts(memory) == ["Lives in Pune"]


@pytest.mark.rows("A25", "A26", "A27", "A28", "A30", "A31", "A33", "A34", "A35", "A36")
def test_facts_are_listed_in_the_order_in_which_they_were_added(memory: UserMemory) -> None:
    memory.add_facts("ada", ["b", "a"])
    memory.add_facts("ada", ["c"], source="auto")
    memory.add_facts("bob", ["his"])
    facts = memory.get_facts("ada")
    assert [(fact.fact, fact.source) for fact in facts] == [("b", "manual"), ("a", "manual"), ("c", "auto")]
    assert len({fact.id for fact in facts}) == 3
    for fact in facts:
        assert isinstance(fact.created_at, datetime)
        assert fact.created_at.utcoffset() is not None


@pytest.mark.rows("A37", "A38", "A39", "A40", "A41", "A44", "A45")
@pytest.mark.parametrize(
    ("first", "again"),
    [
        ("Lives in Mumbai", "lives in MUMBAI"), ("a", " a "), ("  a\n", "A"),
        ("User  loves coffee.", "User loves coffee"), ("Wer liebt Straßen?", "wer liebt STRASSEN"),
        ("Ｌｏｖｅｓ tea!!", "loves tea"),
        ("Née à Orléans", "ne\u0301e a\u0300 orle\u0301ans"),
        ("Loves\u200b tea", "loves tea"), ("Loves tea", "Loves tea . ! ?"), ("喜欢茶。", "喜欢茶"),
    ],
)  # fmt: skip
def test_another_spelling_is_the_same_fact(memory: UserMemory, first: str, again: str) -> None:
    memory.add_facts("ada", [first, again], source="auto")
    before = memory.get_facts("ada")
    memory.add_facts("ada", [again])
    memory.add_facts("ada", ["Something else", again])
    after = memory.get_facts("ada")
    assert [fact.fact for fact in after] == [first.strip(), "Something else"]
    assert after[:1] == before
    assert before[0].source == "auto"


@pytest.mark.rows("A42")
@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Lives in Mumbai", "Mumbai is home"), ("Likes tea", "Likes t-ea"), ("Has 2 cats", "Has 20 cats"),
        ("résumé", "resume"), ("!", "?"), ("C", "C++"), ("A, B", "A B"), ("...", "!!!"),
    ],
)  # fmt: skip
def test_what_only_means_the_same_stays_two_facts(memory: UserMemory, one: str, other: str) -> None:
    memory.add_facts("ada", [one, other])
    assert texts(memory) == [one, other]


@pytest.mark.rows("A43")
@pytest.mark.parametrize("blanks", [[], [""], ["", " "], ["\t\n", "\u3000\u00a0"], ["\u2028"]])
def test_blank_texts_are_skipped(memory: UserMemory, blanks: list[str]) -> None:
    memory.add_facts("ada", blanks)
    assert texts(memory) == []
    memory.add_facts("ada", [*blanks, "x", *blanks])
    assert texts(memory) == ["x"]


@pytest.mark.parametrize(
    ("refused", "error"),
    [
        ("x" * 201, FactTooLongError), ("My password is hunter2hunter2", FactRefusedError),
        ("nul \x00", InvalidError), ("half \ud83d", InvalidError),
    ],
)  # fmt: skip
def test_one_text_that_is_refused_keeps_out_all_of_them(
    memory: UserMemory, refused: str, error: type[MemorygwError]
) -> None:
    with pytest.raises(error):
        memory.add_facts("ada", ["fine", refused, "fine too"])
    assert texts(memory) == []
    memory.add_facts("ada", ["😀" * 200])
    assert texts(memory) == ["😀" * 200]


@pytest.mark.rows("A5", "A45")
def test_ten_adds_at_once_are_ten_facts_in_one_record(memory: UserMemory) -> None:
    with ThreadPoolExecutor(10) as pool:
        for done in [background(pool, memory.add_facts, "ada", [f"fact {n}", "shared"]) for n in range(10)]:
            done.result()
    assert sorted(texts(memory)) == sorted([*(f"fact {n}" for n in range(10)), "shared"])
    assert Record.objects.filter(user_id="ada").count() == 1


def test_adds_and_removals_at_once_hold_the_cap(tenant: Tenant) -> None:
    memory = UserMemory(max_facts=5, tenant=tenant)
    memory.add_facts("ada", list("abcde"))
    old = memory.get_facts("ada")
    with ThreadPoolExecutor(10) as pool:
        work = [background(pool, memory.add_facts, "ada", [f"{n}"]) for n in range(8)]
        work += [background(pool, memory.remove_fact, "ada", fact.id) for fact in old]
        for done in work:
            done.result()
    kept = texts(memory)
    assert len(kept) == 5
    assert set(kept) <= {str(n) for n in range(8)}


@pytest.mark.parametrize(
    "user", ["Ada", " ada ", "a/b?c#d%20", "😀", "x" * 255, "null", "0", 42, "'; drop table", "ada\u200b"]
)
def test_every_user_id_is_a_person_of_their_own(memory: UserMemory, user: str | int) -> None:
    memory.add_facts("ada", ["hers"])
    memory.add_facts(user, ["mine"])
    assert (texts(memory, user), texts(memory), texts(memory, str(user))) == (["mine"], ["hers"], ["mine"])
    memory.clear(user)
    assert (texts(memory, user), texts(memory)) == ([], ["hers"])


@pytest.mark.parametrize("user", ["", " ", "*", "x" * 256, "a\nb", "\x00", "\ud83d", None, True, 1.5])
def test_what_is_no_user_id_is_refused(memory: UserMemory, user: Any) -> None:
    for call in (memory.get_facts, memory.clear, memory.get_context_string):
        with pytest.raises(UserRequiredError):
            call(user)
    with pytest.raises(UserRequiredError):
        memory.add_facts(user, ["x"])


# --- the cap


@pytest.mark.rows("A16")
def test_a_hundred_facts_are_kept_by_default(memory: UserMemory) -> None:
    for start in range(0, 105, 35):
        memory.add_facts("ada", [f"fact {n}" for n in range(start, start + 35)])
    assert texts(memory) == [f"fact {n}" for n in range(5, 105)]


@pytest.mark.rows("A17", "A18", "A19", "A20")
@pytest.mark.parametrize("adds", [["abcde"], ["a", "b", "c", "d", "e"], ["ab", "cde"]], ids=repr)
@pytest.mark.parametrize("source", ["auto", "manual"])
def test_the_oldest_go_above_the_cap_whatever_their_source(tenant: Tenant, adds: list[str], source: Any) -> None:
    memory = UserMemory(max_facts=3, tenant=tenant)
    sources = itertools.cycle(["manual" if source == "auto" else "auto", source])
    for add in adds:
        memory.add_facts("ada", list(add), source=next(sources))
    assert texts(memory) == ["c", "d", "e"]
    memory.add_facts("ada", ["C.", " "])
    assert texts(memory) == ["c", "d", "e"]


@pytest.mark.rows("A20")
def test_the_cap_is_one_of_the_memory_and_of_free_texts_alone(tenant: Tenant) -> None:
    gateway.upsert_user_fact(tenant, "ada", "city", "Pune")
    for n in range(51):
        UserMemory(max_facts=50, tenant=tenant).add_facts("ada", [f"fact {n}"])
    assert texts(UserMemory(tenant=tenant)) == ["city: Pune", *(f"fact {n}" for n in range(1, 51))]
    lower = UserMemory(max_facts=2, tenant=tenant)
    lower.add_facts("ada", ["fact 9"])
    assert len(texts(lower)) == 51
    lower.add_facts("ada", ["new"])
    assert texts(lower) == ["city: Pune", "fact 50", "new"]


def test_the_settings_cap_holds_in_any_case(tenant: Tenant, settings: Settings) -> None:
    settings.MEMORYGW_MAX_FACTS = 2
    memory = UserMemory(max_facts=50, tenant=tenant)
    memory.add_facts("ada", ["a", "b", "c"])
    assert texts(memory) == ["b", "c"]
    settings.MEMORYGW_MAX_FACTS = 0
    memory.add_facts("ada", ["d", "e"])
    assert texts(memory) == ["b", "c", "d", "e"]


# --- removing


@pytest.mark.rows("A46", "A47", "A48")
def test_one_fact_is_removed_by_its_id_and_only_the_users_own(memory: UserMemory, other_tenant: Tenant) -> None:
    memory.add_facts("ada", ["a", "b", "c"])
    [a, b, c] = memory.get_facts("ada")
    for stranger, scope in (("bob", memory), ("ada", UserMemory(tenant=other_tenant))):
        scope.remove_fact(stranger, b.id)
    for unknown in (uuid4(), str(uuid4()), "no id", "", "*", "\x00", "fact-0123456789ab"):
        memory.remove_fact("ada", unknown)
    assert memory.get_facts("ada") == [a, b, c]
    memory.remove_fact("ada", str(b.id))
    memory.remove_fact("ada", b.id)
    assert memory.get_facts("ada") == [a, c]
    memory.add_facts("ada", ["b"])
    assert texts(memory) == ["a", "c", "b"]


@pytest.mark.rows("A49", "A50")
def test_after_a_clear_the_user_begins_anew(memory: UserMemory) -> None:
    memory.add_facts("ada", ["a", "b"])
    memory.add_facts("bob", ["his"])
    memory.clear("ada")
    memory.clear("nobody yet")
    assert (texts(memory), texts(memory, "bob")) == ([], ["his"])
    memory.add_facts("ada", ["b", "c"])
    assert texts(memory) == ["b", "c"]


# --- telling


@pytest.mark.rows("A51", "A52")
def test_the_context_is_a_heading_and_a_hyphen_line_per_fact(memory: UserMemory) -> None:
    memory.add_facts(
        "ada", ["Lives in Pune", "Two\nlines\u2028more", "- a hyphen", "</user_memory> {memory} {{ x }} $& %s"]
    )
    heading, *lines = memory.get_context_string("ada").split("\n")
    assert "user" in heading.lower()
    assert not heading.startswith("-")
    assert lines[:3] == ["- Lives in Pune", "- Two lines more", "- - a hyphen"]
    assert len(lines) == 4
    assert lines[3].endswith("{memory} {{ x }} $& %s")
    assert memory.get_context_string("bob") == ""


@pytest.mark.rows("A53", "A54")
def test_facts_follow_the_instructions_after_a_blank_line(memory: UserMemory, model: ScriptedModelServer) -> None:
    agent = Agent(name="A", instructions="Be kind.", model="main", user_memory=memory)
    agent.run("Hello", user_id="ada")
    memory.add_facts("ada", ["Lives in Pune", "$1 {memory}"])
    agent.run("Hello", user_id="ada")
    before, after = (request.system for request in model.requests_for("main"))
    assert before == "Be kind."
    assert after.startswith("Be kind.\n\n<user_memory>\n")
    assert after.split("\n")[-3:-1] == ["Lives in Pune", "$1 {memory}"]


@pytest.mark.rows("A21", "A22", "A23", "A24")
def test_a_memory_that_is_disabled_keeps_but_neither_tells_nor_learns(
    tenant: Tenant, model: ScriptedModelServer
) -> None:
    assert UserMemory(tenant=tenant).enabled
    model.defaults["mem"] = '["Learned"]'
    memory = UserMemory(model="mem", enabled=False, tenant=tenant)
    memory.add_facts("ada", ["a", "b"])
    assert memory.get_context_string("ada") == ""
    memory.extract_and_store("ada", [{"role": "user", "content": "I live in Pune."}])
    Agent(name="A", model="main", user_memory=memory).run("Hello", user_id="ada")
    learn()
    assert model.requests_for("mem") == []
    assert model.requests_for("main")[-1].system == ""
    memory.remove_fact("ada", memory.get_facts("ada")[0].id)
    assert texts(memory) == ["b"]
    call = {"id": "c1", "type": "function", "function": {"name": "recall_user_facts", "arguments": "{}"}}
    model.reply(None, model="main", tool_calls=[call])
    Agent(name="A", model="main", user_memory=memory, tools=[memory.as_tool()]).run("Hello", user_id="ada")
    assert model.requests_for("main")[-1].messages[-1]["content"] == "- b"
    memory.clear("ada")
    assert texts(memory) == []


# --- where it is kept


@pytest.mark.rows("A13")
def test_another_process_reads_the_same_facts(memory: UserMemory) -> None:
    memory.add_facts("ada", ["Lives in Pune", "Has a cat"])
    place = connection.settings_dict
    url = f"sqlite:///{place['NAME']}"
    if connection.vendor == "postgresql":
        url = f"postgres://{place['USER']}:{place['PASSWORD']}@{place['HOST']}:{place['PORT']}/{place['NAME']}"
    env = {**os.environ, "DATABASE_URL": url, "DJANGO_SETTINGS_MODULE": "tests.settings"}
    done = subprocess.run([sys.executable, "-c", READ_ELSEWHERE], env=env, capture_output=True, text=True, check=True)
    assert done.stdout == "Lives in Pune|Has a cat\n"


def test_tenants_do_not_share_what_they_remember(memory: UserMemory, other_tenant: Tenant) -> None:
    other = UserMemory(tenant=other_tenant.name)
    memory.add_facts("ada", ["here"])
    other.add_facts("ada", ["there"])
    assert (texts(memory), texts(other)) == (["here"], ["there"])
    memory.clear("ada")
    gateway.forget_user(memory.tenant, "ada")
    assert texts(other) == ["there"]


def test_facts_with_a_key_are_listed_and_told_as_key_and_value(memory: UserMemory) -> None:
    gateway.upsert_user_fact(memory.tenant, "ada", "home\ntown", "Pune")
    memory.add_facts("ada", ["home town: Pune"])
    assert texts(memory) == ["home town: Pune"] * 2
    assert memory.get_context_string("ada").split("\n")[1:] == ["- home town: Pune"] * 2
    [keyed, _] = memory.get_facts("ada")
    memory.remove_fact("ada", keyed.id)
    assert texts(memory) == ["home town: Pune"]


@pytest.mark.rows("A16", "A18")
def test_one_add_of_more_than_a_hundred_keeps_the_last_hundred(memory: UserMemory) -> None:
    memory.add_facts("ada", [f"fact {n}" for n in range(105)])
    assert texts(memory) == [f"fact {n}" for n in range(5, 105)]


@pytest.mark.parametrize(("facts", "source"), [("Lives in Pune", "manual"), (["Lives in Pune"], "robot")])
def test_arguments_that_are_none_are_refused(memory: UserMemory, facts: Any, source: Any) -> None:
    with pytest.raises((InvalidError, TypeError, ValueError)):
        memory.add_facts("ada", facts, source)
    assert texts(memory) == []


@pytest.mark.rows("A20")
@pytest.mark.parametrize("most", [0, -1])
def test_a_cap_that_a_run_refuses_is_refused_by_the_memory(
    tenant: Tenant, model: ScriptedModelServer, most: int
) -> None:
    def use(work: Callable[[UserMemory], Any]) -> bool:
        try:
            work(UserMemory(max_facts=most, tenant=tenant))
        except (InvalidError, ValueError):
            return False
        return True

    runs = use(lambda memory: Agent(name="A", model="main", user_memory=memory).run("Hello", user_id="ada"))
    assert use(lambda memory: memory.add_facts("ada", ["a", "b"])) == runs
