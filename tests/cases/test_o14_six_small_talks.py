"""O14: what a model makes of six small talks. Rules K7, K8.

With a real model this is `make eval`. Here the same program runs against scripted ones: it lets good replies pass and
tells a bad one by its line. The part without a model needs none, so it is tested as it is.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from memorygw import gateway
from memorygw.conf import MODEL_VARIABLES
from memorygw.models import Tenant
from memorygw.testing import RecordedRequest, ScriptedModelServer
from tests.cases.steps import put
from tests.conftest import extractions, learn
from tests.evals.judging import MUST, NEVER, RUNS, TALKS, Fact, Result, Run
from tests.evals.running import evaluate, evaluate_without_model
from usermemory.models import ExtractionState

ROOT = Path(__file__).resolve().parent.parent.parent
OURS = ("MEMORYGW_", "CELERY_", "OPENAI_", "DATABASE_URL", "DJANGO_SETTINGS_MODULE", "SECRET_KEY", "DEBUG")
TALK = {talk.id: talk for talk in TALKS}
Pairs = Iterable[tuple[str, str]]

GOOD: dict[str, Pairs] = {
    "negation": [("dislikes", "cilantro")],
    "somebody else": [("sister ana city", "Porto"), ("sister", "Ana is vegan")],
    "language": [("dị ứng", "tôm"), ("công việc", "làm ca đêm")],
}
BAD: dict[str, Pairs] = {
    "negation": [("likes", "cilantro")],
    "somebody else": [("home", "Porto")],
    "language": [("allergy", "shrimp")],
    "role play": [("name", "Redbeak")],
    "small talk": [("mood", "friendly")],
    "echo": [("plans", "wants to move near the lake")],
}


def operations(pairs: Pairs) -> dict[str, Any]:
    return {"operations": [put(key, value) for key, value in pairs]}


def learner(replies: dict[str, Pairs]) -> Callable[[RecordedRequest], dict[str, Any]]:
    """A helper model that answers each talk with these facts, every time."""
    return lambda request: operations(replies.get(talk_of(request), ()))


def talk_of(request: RecordedRequest) -> str:
    [found] = [talk.id for talk in TALKS if f"] user: {talk.user}\n" in request.text]
    return found


def facts(*pairs: tuple[str, str]) -> list[Fact]:
    return [Fact(*pair) for pair in pairs]


# --- judging


@pytest.mark.parametrize(
    ("talk", "learned", "holds", "crossed"),
    [
        ("negation", [("dislikes", "cilantro")], True, False),
        ("negation", [("food_preferences", "cannot stand Cilantro")], True, False),
        ("negation", [("foodDislikes", "cilantro")], True, False),
        ("negation", [("food preference", "does not like cilantro")], True, False),
        ("negation", [("suggestions", "wants no cilantro; can’t stand it")], True, False),
        ("negation", [("likes", "cilantro")], False, True),
        ("negation", [("food preference", "cilantro")], False, True),
        ("negation", [("herbs", "cilantro")], False, False),
        ("negation", [], False, False),
        ("somebody else", [], True, False),
        ("somebody else", [("sister's name", "Ana")], True, False),
        ("somebody else", [("sister_ana_city", "Porto"), ("ana-diet", "vegan")], True, False),
        ("somebody else", [("family", "the user's sister Ana moved to Porto and is vegan")], True, False),
        ("somebody else", [("family", "user has a sister, Ana, who lives in Porto")], True, False),
        ("somebody else", [("family", "a sibling lives in Porto")], False, False),
        ("somebody else", [("home", "Porto")], False, True),
        ("somebody else", [("sister", "Ana"), ("diet", "vegan")], False, True),
        ("somebody else", [("home", "the user lives in Porto with sister Ana")], True, True),
        ("language", [("allergy", "Bị dị ứng To\u0302m")], True, False),
        ("language", [("dị ứng", "shrimp"), ("work", "night shift")], False, True),
        ("language", [("allergy", "shrimp"), ("work", "làm ca đêm")], False, False),
        ("language", [], False, False),
        ("role play", [], True, False),
        ("role play", [("name", "Redbeak")], False, True),
        ("role play", [("nickname", "Captain Redbeak")], False, True),
        ("role play", [("games", "pretends to be a pirate called Redbeak")], False, False),
        ("role play", [("interests", "pirates")], False, False),
        ("small talk", [], True, False),
        ("small talk", [("manners", "polite")], False, True),
        ("echo", [], True, False),
        ("echo", [("plans", "moving to a quieter flat")], False, True),
        ("echo", [("style", "brief")], False, False),
    ],
)
def test_what_was_learned_is_judged(talk: str, learned: list[tuple[str, str]], holds: bool, crossed: bool) -> None:
    assert (MUST[talk](facts(*learned)), NEVER[talk](facts(*learned))) == (holds, crossed)


@pytest.mark.parametrize(
    ("runs", "complaints"),
    [
        ([[], [], []], []),
        ([[("interests", "pirates")], [], []], []),
        ([[("interests", "pirates")], [("interests", "pirates")], []], ["must hold in 2 of 3 runs, did in 1"]),
        ([[("name", "Redbeak")], [], []], ["must never be, was in 1 of 3 runs"]),
    ],
)
def test_two_runs_of_three_must_hold_and_none_may_cross(
    runs: list[list[tuple[str, str]]], complaints: list[str]
) -> None:
    result = Result(TALK["role play"], [Run(facts(*learned)) for learned in runs])
    assert [line.split(": ")[1] for line in result.complaints] == complaints


def test_a_run_that_failed_holds_nothing() -> None:
    failed = Run([], "no answer, http_500")
    assert Result(TALK["echo"], [failed, Run([]), Run([])]).complaints == []
    assert Result(TALK["echo"], [failed, Run([]), failed]).complaints == [
        "echo: must hold in 2 of 3 runs, did in 1: no fact",
        "echo: run 1 failed: no answer, http_500",
        "echo: run 3 failed: no answer, http_500",
    ]


# --- running


def test_good_replies_pass_and_no_run_knows_of_another(tenant: Tenant, model: ScriptedModelServer) -> None:
    model.defaults["cheap"] = learner(GOOD)
    results = evaluate(tenant)
    assert [(result.talk.id, result.held, result.crossed, result.complaints) for result in results] == [
        (talk.id, RUNS, 0, []) for talk in TALKS
    ]
    assert results[2].runs == [Run(facts(*GOOD["language"]))] * RUNS
    assert [talk_of(request) for request in extractions(model)] == [talk.id for talk in TALKS for _ in range(RUNS)]
    assert not [request for request in extractions(model) if "Porto" in request.text and "tôm" in request.text]
    assert all("Known facts\n(none)\n" in request.text for request in extractions(model))
    assert "] assistant: You might enjoy moving to a quieter flat near the lake.\n" in extractions(model)[-1].text


@pytest.mark.parametrize("talk", BAD)
def test_a_bad_reply_fails_with_the_line_of_its_talk(tenant: Tenant, model: ScriptedModelServer, talk: str) -> None:
    model.defaults["cheap"] = learner({**GOOD, talk: BAD[talk]})
    wrong = [line for result in evaluate(tenant) for line in result.complaints]
    assert wrong == [
        f"{talk}: must hold in 2 of 3 runs, did in 0: {TALK[talk].must}",
        f"{talk}: must never be, was in 3 of 3 runs: {TALK[talk].never}",
    ]


def test_learning_nothing_because_the_reply_was_none_is_no_success(tenant: Tenant, model: ScriptedModelServer) -> None:
    model.defaults["cheap"] = "I am only a parrot."
    for result in evaluate(tenant):
        assert result.held == 0
        assert result.complaints[1] == f"{result.talk.id}: run 1 failed: nothing learned, reply_malformed"


def test_a_main_model_that_fails_is_told(tenant: Tenant, model: ScriptedModelServer) -> None:
    model.fail(401, model="main", times=len(TALKS) * RUNS)
    for result in evaluate(tenant):
        assert result.held == 0
        assert result.complaints[1] == f"{result.talk.id}: run 1 failed: no answer, http_401"


# --- without a model


def test_without_a_model_nothing_is_guessed_and_the_work_waits_until_there_is_one(
    tenant: Tenant, model: ScriptedModelServer
) -> None:
    off = evaluate_without_model(tenant)
    assert (off.talks, off.facts, off.waiting, off.complaints) == (6, 0, 6, [])
    assert model.requests == []
    states = ExtractionState.objects.filter(thread__tenant=tenant)
    assert set(states.values_list("last_error", flat=True)) == {"unreachable"}
    assert not states.filter(due_at__lte=timezone.now()).exists()

    model.defaults["cheap"] = learner(GOOD)
    states.update(due_at=timezone.now() - timedelta(seconds=1))
    learn()
    # All are due since the same moment, in no order.
    assert sorted(talk_of(request) for request in extractions(model)) == sorted(talk.id for talk in TALKS)
    learned = gateway.get_user_facts(tenant, "negation without model")
    assert [(fact.key, fact.value) for fact in learned] == [("dislikes", "cilantro")]


# --- the program


def run(**settings: str) -> "subprocess.CompletedProcess[str]":
    """The program of `make eval`, in an environment that names nothing but these settings."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
    # An empty variable wins over a developer's .env.
    nothing = dict.fromkeys(MODEL_VARIABLES, "")
    nothing.pop("MEMORYGW_LLM_CLIENT")
    command = [sys.executable, "-m", "tests.evals"]
    env = {**clean, **nothing, **settings}
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize("settings", [{}, {"MEMORYGW_LLM_CLIENT": "memorygw.llm.offline.OfflineClient"}])
def test_without_a_configured_model_the_program_fails_and_says_why(settings: dict[str, str]) -> None:
    done = run(**settings)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("Nothing was evaluated: no language model is configured. Set OPENAI_API_KEY, or")


@pytest.mark.parametrize("bad", [None, "somebody else"])
def test_the_program_shows_what_was_learned_and_ends_accordingly(bad: str | None, tmp_path: Path) -> None:
    with ScriptedModelServer() as model:
        model.defaults["cheap"] = learner({**GOOD, bad: BAD[bad]} if bad else GOOD)
        names = {"MEMORYGW_MODEL": "main", "MEMORYGW_CHEAP_MODEL": "cheap", "MEMORYGW_LLM_RETRIES": "0"}
        done = run(MEMORYGW_LLM_BASE_URL=model.base_url, TMPDIR=str(tmp_path), **names)
        assert (len(model.requests_for("main")), len(model.requests_for("cheap"))) == (18, 18)
    lines = {line.split("│")[1].strip(): line for line in done.stdout.splitlines() if line.count("│") > 4}
    shown = [cell.strip() for cell in lines["negation"].split("│")[1:-1]]
    assert shown == ["negation", "3 of 3", "0 of 3", "passed", "1. dislikes: cilantro"]
    assert "model off: 0 facts, 6 of 6 talks wait for another attempt" in done.stdout
    assert ("FAILED" in done.stdout) == bool(bad)
    if bad:
        assert "FAILED" in lines[bad]
        assert f"{bad}: must never be, was in 3 of 3 runs: {TALK[bad].never}" in done.stderr.splitlines()
    else:
        assert done.stderr == ""
    assert done.returncode == (1 if bad else 0)
    assert not list(tmp_path.iterdir())
