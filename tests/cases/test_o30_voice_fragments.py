"""O30: fragments, their order and the end of a session come as they come."""

import json
from typing import Any

import pytest

from memorygw.testing import RecordedRequest, ScriptedModelServer
from tests.conftest import Api, learn

FRAGMENTS = [
    ("user", "I li"), ("user", "ve in "), ("user", "Pune."),
    ("assistant", " "), ("assistant", "Nice"), ("assistant", " city!"),
    ("user", "My s"), ("user", "ister is in Goa"), ("user", "."),
    ("assistant", "  "),
    ("user", "Bye"),
]  # fmt: skip
MESSAGES = [
    ("user", "I live in Pune."), ("assistant", "Nice city!"), ("user", "My sister is in Goa."), ("user", "Bye"),
]  # fmt: skip


@pytest.fixture
def sessions(service_api: Api, model: ScriptedModelServer) -> "Sessions":
    model.defaults["cheap"] = lambda request: json.dumps(["Lives in Pune"])
    return Sessions(service_api, model)


class Sessions:
    def __init__(self, api: Api, model: ScriptedModelServer) -> None:
        self.api, self.model = api, model

    def hold(self, *requests: list[tuple[str, str]], user: str | None = "ada", closes: int = 1) -> list[Any]:
        """A whole session; what each close answers."""
        self.api.user = user
        session_id = self.api("POST", "/voice/sessions", {}).body["id"]
        for fragments in requests:
            items = [{"role": role, "text": text} for role, text in fragments]
            assert self.api("POST", f"/voice/sessions/{session_id}/fragments", {"items": items}).status == 202
        closed = [self.api("POST", f"/voice/sessions/{session_id}/close") for _ in range(closes)]
        learn()
        return [[(message["role"], message["content"]) for message in reply.body["messages"]] for reply in closed]

    @property
    def requests(self) -> list[RecordedRequest]:
        return self.model.requests_for("cheap")


def said(request: RecordedRequest) -> list[tuple[str, str]]:
    """Role and text of the lines of a transcript."""
    lines = [line for line in request.text.splitlines() if line.startswith("[2")]
    return [tuple(line.partition("] ")[2].split(": ", 1)) for line in lines]  # type: ignore[misc]


@pytest.mark.rows("A91", "A92", "A93", "A94", "A95", "A96", "A97")
def test_a_session_is_read_once_whichever_end_comes_first(sessions: Sessions) -> None:
    assert sessions.hold(FRAGMENTS, closes=2) == [MESSAGES, MESSAGES]
    [request] = sessions.requests
    assert said(request) == MESSAGES
    assert list(sessions.api.facts().values()) == ["Lives in Pune"]


def test_how_fragments_are_packed_makes_no_difference(sessions: Sessions) -> None:
    assert sessions.hold(*([fragment] for fragment in FRAGMENTS)) == [MESSAGES]
    assert sessions.hold(FRAGMENTS[:2], FRAGMENTS[2:7], FRAGMENTS[7:]) == [MESSAGES]


@pytest.mark.rows("A98", "A99")
@pytest.mark.parametrize(
    ("fragments", "user"),
    [([], "ada"), (FRAGMENTS, None), ([("user", " "), ("assistant", "\n"), ("user", "")], "ada")],
    ids=["no fragment", "no user", "only blank ones"],
)
def test_nothing_said_by_anybody_is_not_read(
    sessions: Sessions, fragments: list[tuple[str, str]], user: str | None
) -> None:
    sessions.hold(*([fragments] if fragments else []), user=user)
    assert sessions.requests == []


@pytest.mark.rows("A102")
def test_a_second_session_is_read_alone(sessions: Sessions) -> None:
    sessions.hold(FRAGMENTS)
    sessions.hold([("user", "I have "), ("user", "a cat.")])
    first, second = sessions.requests
    assert (said(first), said(second)) == (MESSAGES, [("user", "I have a cat.")])
