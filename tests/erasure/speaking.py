"""What people, programs and operators say, each method one way to say it; and what the models answer.

A word is known to `Words` before it is said.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from uuid import UUID

from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.auth.models import User
from django.contrib.contenttypes.models import ContentType
from django.db import connection
from django.db.models import Model

from memorygw import gateway
from memorygw.conf import component
from memorygw.exceptions import (
    ErasureRunningError,
    LeaseLostError,
    NotFoundError,
    ThreadAwaitingHumanError,
    ThreadBusyError,
    ThreadClosedError,
)
from memorygw.models import Tenant, VoiceSession
from memorygw.testing import RecordedRequest, ScriptedModelServer
from tests.conftest import Api, learn
from tests.erasure.words import ANYWHERE, ELSEWHERE, FACTS, Person, Words, found_in
from threads.models import Thread
from threads.turns import TurnDraft
from usermemory.models import Fact, Owner, UserMemory
from usermemory.rows import Source

_REFUSALS = (ThreadBusyError, ThreadClosedError, ThreadAwaitingHumanError, NotFoundError, LeaseLostError)
_NEW_TURNS = "New turns, each with its time"


class Speaking:
    """Everybody, and everything that they can say.

    ``off`` are the people who have memory switched off; ``meanwhile`` what may happen while a model is asked about
    somebody; ``failure`` what went wrong in that.
    """

    def __init__(self, server: ScriptedModelServer, tenants: Sequence[Tenant]) -> None:
        """Two tenants, one with review; three user ids, one of them in both."""
        self.server, self.words = server, Words(lambda: len(server.requests))
        acme, globex = (tenant.pk for tenant in tenants)
        Tenant.objects.filter(pk=globex).update(review_policy="always_extracted")
        self.people = [Person(acme, "ada"), Person(acme, "bob"), Person(globex, "ada"), Person(globex, "eve")]
        self.personas = {tenant.pk: gateway.create_persona(tenant, "coach").pk for tenant in tenants}
        keys = {tenant.pk: gateway.create_api_key(tenant.name, role="admin", name="tests")[1] for tenant in tenants}
        self.apis = {tenant_id: Api(key, None) for tenant_id, key in keys.items()}
        self.operator, _ = User.objects.get_or_create(username="operator")
        self.off: frozenset[Person] = frozenset()
        self.interruption: Callable[[], object] | None = None
        self.interrupted, self.interrupted_at = self.people[0], 0
        self.failure: BaseException | None = None

    def live(self) -> None:
        """Everybody has something everywhere."""
        self.begin(self.people[0])
        for person in self.people:
            self.talk(person, None)
            self.append(person, 0)
            self.set_fact(person, with_persona=True)
            self.add_text(person)
            self.speak(person, ends=False)
        learn()

    # --- models

    def begin(self, person: Person, interruption: Callable[[], object] | None = None, *, at: int = 0) -> None:
        """Before a rule: nothing is scripted, and no request is made yet. The interruption comes while a model is asked
        about the person, ``at`` so many requests from now."""
        self.tidy_log()
        self.server.reset()
        self.words.gone = dict.fromkeys(self.words.gone, 0)
        self.server.defaults |= {"main": self._answer, "cheap": self._help}
        self.interruption, self.interrupted, self.interrupted_at = interruption, person, at

    def _answer(self, request: RecordedRequest) -> Any:
        self._interrupt(request)
        return "ok"

    def _call_tool(self, request: RecordedRequest) -> Any:
        self._interrupt(request)

    def _help(self, request: RecordedRequest) -> Any:
        """Learn every new word; keep those of the notes."""
        self._interrupt(request)
        lines = request.text.partition(_NEW_TURNS)[2].splitlines()
        user_words = sorted(found_in([line for line in lines if " user: " in line]))
        if '"operations"' in request.text:
            words = sorted(found_in(lines))
            # Every other one is quoted.
            quotes = {word for word in user_words if int(word[4:-1]) % 2}
            return {
                "operations": [
                    {"op": "SET", "key": f"about {word}", "value": word, "evidence": word if word in quotes else ""}
                    for word in words
                ]
            }
        if '"summary"' in request.text:
            return {"summary": " ".join(sorted(found_in(request.text))), "facts": user_words}
        if "JSON array of strings" in request.text:
            return user_words
        return " ".join(["On", *sorted(found_in(request.text))[:1]])

    def _interrupt(self, request: RecordedRequest) -> None:
        """In the server's thread, while the gateway waits for the answer to something about the person."""
        if self.interruption and found_in(request.text) & self.words.of(self.interrupted):
            self.interrupted_at -= 1
        if self.interruption and self.interrupted_at < 0:
            work, self.interruption = self.interruption, None
            try:
                work()
            except BaseException as error:
                self.failure = error
            finally:
                connection.close()

    # --- what is said

    @contextmanager
    def saying(self, person: Person, words: int = 1, *, fenced: bool = True) -> Iterator[list[str]]:
        """New words; where the call is refused they were never said, and ``fenced`` ones are refused while the person
        is erased. What is said while memory is off is to be in no fact and no notes."""
        is_marked = self.is_marked(person)
        places = frozenset({ELSEWHERE}) if person in self.off else ANYWHERE
        said = [self.words.new(person, places) for _ in range(words)]
        try:
            yield said
        except ErasureRunningError:
            assert self.is_marked(person)
            self.words.banish(said, *ANYWHERE)
        except _REFUSALS:
            self.words.banish(said, *ANYWHERE)
        else:
            assert not (is_marked and fenced), "It was written behind the fence."

    def talk(self, person: Person, pick: int | None) -> None:
        """In one of the threads, or in a new one that an agent named."""
        with self.saying(person, 2) as (word, name):
            thread_id = self.a_thread(person, pick) or gateway.open_session(*person, f"session {name}").pk
            gateway.ask(*person, _sentence(word), thread_id=thread_id, metadata={"where": word})

    def talk_with_tool(self, person: Person, pick: int, *, answers: bool) -> None:
        """The model calls the caller's tool; the run waits, or goes on with the result."""
        with self.saying(person, 4) as (word, told, argument, result):
            calls = [_call(f'{{"at": "{argument}"}}')]
            self.server.reply(self._call_tool, model="main", tool_calls=calls)
            tool = {"type": "function", "function": {"name": "look", "description": told, "parameters": {}}}
            asked = gateway.ask(*person, _sentence(word), thread_id=self.a_thread(person, pick), tools=[tool])
            if answers:
                decision = gateway.Decision(tool_call_id="c1", content=result)
                gateway.continue_run(*person, asked.run.pk, [decision])

    def append(self, person: Person, pick: int) -> None:
        """What a host's own model said, words in every column; nothing where there is no thread."""
        if thread_id := self.a_thread(person, pick):
            with self.saying(person, 4) as words:
                gateway.append_turns(*person, thread_id, _drafts(*words))

    def send_twice(self, person: Person) -> None:
        with self.saying(person) as [word]:
            for _ in range(2):
                options: dict[str, Any] = {"user": person.user_id, "headers": {"Idempotency-Key": word}}
                reply = self.apis[person.tenant_id]("POST", "/ask", {"content": _sentence(word)}, **options)
                if reply.status in (404, 409):
                    raise ErasureRunningError if reply.error["code"] == "erasure_running" else LeaseLostError
                assert reply.status == 200, reply.body

    def tell_messages(self, person: Person) -> None:
        with self.saying(person) as [word]:
            gateway.learn_from_messages(*person, [{"role": "user", "content": _sentence(word)}])

    def set_fact(self, person: Person, *, with_persona: bool) -> None:
        """By hand, which memory that is off does not keep anybody from."""
        owner = Owner.persona_user(self.personas[person.tenant_id], person.user_id)
        with self.saying(person) as [word]:
            self.words.allow(word, FACTS)
            if with_persona:
                store = component("USER_MEMORY_STORE")
                store.set_fact(person.tenant_id, owner, f"set {word}", word, Source("manual"))
            else:
                gateway.upsert_user_fact(*person, f"set {word}", word)

    def add_text(self, person: Person) -> None:
        with self.saying(person) as [word]:
            self.words.allow(word, FACTS)
            gateway.add_user_facts(*person, [_sentence(word)])

    def speak(self, person: Person, *, ends: bool) -> None:
        """In the session that is open, or in a new one."""
        sessions = VoiceSession.objects.filter(tenant_id=person.tenant_id, user_id=person.user_id)
        session = sessions.filter(closed_at__isnull=True).first()
        with self.saying(person, fenced=session is None) as [word]:
            if session:
                # FAULT: what is said while memory is off is learned if it was on when the session began.
                self.words.allow(word, FACTS)
            session_id = session.pk if session else gateway.open_voice_session(*person).id
            gateway.add_voice_fragments(*person, session_id, [("user", _sentence(word))])
            if ends:
                gateway.close_voice_session(*person, session_id)

    def rename(self, person: Person, pick: int) -> None:
        if thread_id := self.a_thread(person, pick):
            with self.saying(person, fenced=False) as [word]:
                gateway.rename_thread(*person, thread_id, f"My {word}")

    def edit(self, person: Person, pick: int) -> None:
        """Put other words in the place of a fact's."""
        facts = Fact.objects.of_user(*person).order_by("pk")
        if facts:
            fact = facts[pick % len(facts)]
            with self.saying(person) as [word]:
                self.words.allow(word, FACTS)
                key = f"edited {word}" if fact.key else None
                gateway.change_memory(*person, fact.pk, key=key, value=_sentence(word))

    def log(self, person: Person, pick: int) -> None:
        """An operator changes a row in Django's admin, which keeps a note of it."""
        rows: list[Model] = [
            *Thread.objects.filter(tenant_id=person.tenant_id, user_id=person.user_id).order_by("pk"),
            *Fact.objects.personal_to(*person).order_by("pk"),
        ]
        if rows:
            row, word = rows[pick % len(rows)], self.words.new(person)
            LogEntry.objects.create(
                user=self.operator,
                content_type=ContentType.objects.get_for_model(row),
                object_id=str(row.pk),
                object_repr=word,
                action_flag=CHANGE,
                change_message=word,
            )

    def tidy_log(self) -> None:
        """FAULT: what the log says of a row that goes before its person does stays when they are erased."""
        for entry in LogEntry.objects.select_related("content_type"):
            model = entry.content_type and entry.content_type.model_class()
            if model and not model._base_manager.filter(pk=entry.object_id).exists():
                entry.delete()

    # --- what there is

    def a_thread(self, person: Person, pick: int | None) -> UUID | None:
        """The newest first."""
        threads = Thread.objects.filter(tenant_id=person.tenant_id, user_id=person.user_id).order_by("-pk")
        ids = list(threads.values_list("pk", flat=True))
        return None if pick is None or not ids else ids[pick % len(ids)]

    def is_marked(self, person: Person) -> bool:
        records = UserMemory.objects.filter(tenant_id=person.tenant_id, user_id=person.user_id)
        return records.filter(erasing_at__isnull=False).exists()


def _sentence(word: str) -> str:
    return f"All that I say is {word}."


def _call(arguments: str) -> dict[str, Any]:
    return {"id": "c1", "type": "function", "function": {"name": "look", "arguments": arguments}}


def _drafts(said: str, called: str, found: str, answered: str) -> list[TurnDraft]:
    return [
        TurnDraft(role="user", content=[{"type": "text", "text": _sentence(said)}], metadata={"where": said}),
        TurnDraft(role="assistant", content=None, tool_calls=[_call(f'"{called}"')], extras={"reasoning": called}),
        TurnDraft(role="tool", content=found, tool_call_id="c1"),
        TurnDraft(
            role="assistant",
            content=_sentence(answered),
            refusal=f"Not {answered}.",
            client_view={"role": "assistant", "content": answered},
        ),
    ]
