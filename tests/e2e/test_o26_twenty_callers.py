"""O26: twenty callers on one thread at once, and a caller that overran its lease. Rules K13, K15."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from threading import Barrier, Event

import pytest

from memorygw.testing import RecordedRequest, ScriptedModelServer
from tests.e2e.conftest import Caller, Gateway, wait_for

CALLERS = 20
LEASE_SECONDS = 2


@contextmanager
def caller_on_a_server(running: Gateway, lease_seconds: int) -> Iterator[Caller]:
    """Of a server of its own, beside the running gateway, on the same database."""
    server = Gateway(running.environment | {"MEMORYGW_LEASE_SECONDS": str(lease_seconds)}, running.log)
    try:
        server.serve()
        yield server.key("acme")
    finally:
        server.stop()


class Conversation:
    """One user's thread, as its callers see it."""

    def __init__(self, caller: Caller, user: str) -> None:
        self.caller, self.user = caller, user
        self.id = caller("POST", "/threads", {}, user=user, expect=201)["id"]

    def chat(self, content: str) -> int:
        """The status of one ask, whatever it is."""
        return self.caller.send("POST", f"/threads/{self.id}/ask", {"content": content}, user=self.user).status_code

    @property
    def turns(self) -> list[tuple[str, str]]:
        return [(turn["role"], turn["content"]) for turn in self.caller.turns(self.id, user=self.user)]

    @property
    def turn_count(self) -> int:
        return int(self.caller("GET", f"/threads/{self.id}", user=self.user)["turn_count"])


@pytest.fixture
def thread(running: Gateway, e2e_model: ScriptedModelServer) -> Iterator[Conversation]:
    """On a server whose leases do not run out, however busy the machine is."""
    e2e_model.defaults["main"] = answer_to
    with caller_on_a_server(running, lease_seconds=300) as caller:
        yield Conversation(caller, "twenty")


def answer_to(request: RecordedRequest) -> str:
    return f"answer to {request.last_user}"


def all_at_once(pool: ThreadPoolExecutor, call: Callable[[str], int]) -> list["Future[int]"]:
    start = Barrier(CALLERS)

    def run(content: str) -> int:
        start.wait()
        return call(content)

    return [pool.submit(run, f"n={n}") for n in range(1, CALLERS + 1)]


@pytest.mark.rows("T7", "T77", "T78", "T79", "T80")
def test_of_twenty_callers_at_once_one_is_answered_and_the_others_leave_nothing(
    thread: Conversation, e2e_model: ScriptedModelServer
) -> None:
    with ThreadPoolExecutor(CALLERS) as pool:
        with e2e_model.hold(model="main"):
            chats = all_at_once(pool, thread.chat)
            wait_for(lambda: sum(chat.done() for chat in chats) == CALLERS - 1, "those that get no lease")
        assert sorted(chat.result() for chat in chats) == [200] + [409] * (CALLERS - 1)
    [question, answer] = thread.turns
    assert question[0] == "user"
    assert answer == ("assistant", f"answer to {question[1]}")
    assert len(e2e_model.requests_for("main")) == 1


@pytest.mark.rows("T7", "T14", "T57", "T84")
def test_twenty_callers_that_try_again_are_answered_one_after_the_other(
    thread: Conversation, e2e_model: ScriptedModelServer
) -> None:
    e2e_model.reply(answer_to, model="main", times=CALLERS, delay_seconds=0.3)

    def until_answered(content: str) -> int:
        while (status := thread.chat(content)) == 409:
            time.sleep(0.05)
        return status

    with ThreadPoolExecutor(CALLERS) as pool:
        chats = all_at_once(pool, until_answered)
        assert [chat.result() for chat in chats] == [200] * CALLERS
    questions, answers = thread.turns[::2], thread.turns[1::2]
    assert sorted(questions) == sorted(("user", f"n={n}") for n in range(1, CALLERS + 1))
    assert answers == [("assistant", f"answer to {content}") for _, content in questions]
    assert thread.turn_count == 2 * CALLERS


class Held:
    """An answer of the model that comes when it is let go."""

    def __init__(self, text: str) -> None:
        self.text, self._free = text, Event()

    def __call__(self, _: RecordedRequest) -> str:
        self._free.wait(60)
        return self.text

    def let_go(self) -> None:
        self._free.set()


@pytest.mark.rows("T81", "T82", "T85")
def test_a_caller_that_overran_its_lease_frees_nothing_and_writes_no_answer(
    running: Gateway, e2e_model: ScriptedModelServer
) -> None:
    answer_a, answer_b = Held("answer A"), Held("answer B")
    for answer in (answer_a, answer_b):
        e2e_model.reply(answer, model="main")
    with caller_on_a_server(running, LEASE_SECONDS) as caller, ThreadPoolExecutor(2) as pool:
        thread = Conversation(caller, "overrun")
        a = pool.submit(thread.chat, "question A")
        e2e_model.wait_for_requests(1, model="main")
        time.sleep(2 * LEASE_SECONDS)
        b = pool.submit(thread.chat, "question B")
        e2e_model.wait_for_requests(2, model="main")
        # B's lease is still young: A ends and C comes within it.
        answer_a.let_go()
        wait([a])
        c = thread.chat("question C")
        answer_b.let_go()
        assert (a.result(), b.result(), c) == (409, 200, 409)

        expected = [("user", "question A"), ("user", "question B"), ("assistant", "answer B")]
        assert thread.turns == expected
        assert thread.chat("question D") == 200
        messages = e2e_model.requests_for("main")[-1].messages
        conversation = [(message["role"], message["content"]) for message in messages if message["role"] != "system"]
        assert conversation == [*expected, ("user", "question D")]
