import json
import signal
import sys
from pathlib import Path
from subprocess import SubprocessError
from tempfile import TemporaryDirectory
from time import monotonic
from typing import IO, Any, cast

from django.core.management.base import BaseCommand, CommandError
from rich import box
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.panel import Panel
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from memorygw.conf import conf
from memorygw.management.demo import Client, Stage, Thread, is_offline

# Facts are looked for after the first answer and at every 10th turn, notes are written at every 6th.
ADA_SAYS = (
    "Hi, my name is Ada Lovelace and I live in Turin.",
    "My favourite tea is oolong, and I am allergic to peanuts.",
    "It has been raining since breakfast.",
    "On Friday I give a talk about the Analytical Engine.",
    "Remind me to bring the punched cards.",
)
TAUGHT = {"Ada Lovelace", "Turin", "oolong", "peanuts"}
QUESTION = "What do you know about me?"
OFFLINE = (
    "The offline model: plain patterns, no language model, no network. It cannot chat; it repeats what memory put "
    "into its prompt, and says at the end of every answer what it is (left out below). Set OPENAI_API_KEY or "
    "MEMORYGW_LLM_BASE_URL to see the demo with a real model."
)
OFFLINE_REMARK = "(Offline model: no language model is configured.)"
_WIDEST = 100


class Command(BaseCommand):
    help = "See memorygw at work: a real server with an empty database, two users, three threads, one erasure."
    # The commands that the demo runs check their own settings, which are not these.
    requires_system_checks = []

    def handle(self, *args: Any, **options: Any) -> None:
        # However it ends, the server and the folder go.
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda received, _: sys.exit(128 + received))
        with TemporaryDirectory(prefix="memorygw-demo-") as folder:
            stage = Stage(Path(folder))
            try:
                Story(stage, Screen(self._console(options))).tell()
            except KeyboardInterrupt:
                raise CommandError("Stopped.", returncode=130) from None
            except (CommandError, OSError, SubprocessError) as error:
                log = stage.log_tail()
                raise CommandError(f"{error}\n\nThe end of the server's log:\n{log}" if log else str(error)) from error

    def _console(self, options: dict[str, Any]) -> Console:
        console = Console(
            file=cast("IO[str]", self.stdout),
            no_color=options["no_color"] or None,
            force_terminal=options["force_color"] or None,
            markup=False,
            emoji=False,
            highlight=False,
        )
        console.width = min(console.width, _WIDEST)
        return console


class Screen:
    """How the demo looks."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._chapters = 0
        self.checks = 0

    def card(self, title: str, text: str, *, rows: dict[str, str] | None = None) -> None:
        """A frame around a text and rows of label and text."""
        grid = Table.grid(padding=(0, 2, 0, 0))
        grid.add_column(style="bold")
        for label, content in (rows or {}).items():
            grid.add_row(label, content)
        parts: list[RenderableType] = [Text(text)] if text else []
        if rows:
            parts += [*([""] if text else []), grid]
        heading = Text(title, style="bold not dim")
        self._console.print(Panel(Group(*parts), title=heading, title_align="left", padding=(0, 1), border_style="dim"))

    def chapter(self, title: str, text: str) -> None:
        self._chapters += 1
        self._console.print()
        self._console.print(Rule(Text(f"{self._chapters}. {title}", style="bold not dim"), align="left", style="dim"))
        self.say(text)
        self._console.print()

    def say(self, text: str) -> None:
        self._console.print(Text(text))

    def turn(self, number: int, speaker: str, text: str) -> None:
        row = Table.grid(padding=(0, 2))
        row.add_column(width=3, justify="right", style="dim")
        row.add_column(width=9, style="dim" if speaker == "assistant" else "bold")
        row.add_column()
        row.add_row(str(number), speaker, text)
        self._console.print(row)

    def table(self, header: tuple[str, ...], *rows: tuple[Any, ...]) -> None:
        """Numbers are set to the right."""
        table = Table(box=box.SIMPLE_HEAD, show_edge=False, header_style="bold", border_style="dim")
        for position, name in enumerate(header):
            table.add_column(name, justify="right" if any(isinstance(row[position], int) for row in rows) else "left")
        for row in rows:
            table.add_row(*map(str, row))
        self._console.print(Padding(table, (0, 0, 0, 1)))

    def check(self, *claims: tuple[bool, str]) -> None:
        """Show the claims that hold; the first one that does not ends the demo."""
        self._console.print()
        for held, claim in claims:
            if not held:
                raise CommandError(f"This does not hold, and should: {claim}")
            self.checks += 1
            self._console.print(Text.assemble(("  ok  ", "green"), claim))


class Story:
    """What is done, in which order, and what must be true of it."""

    def __init__(self, stage: Stage, screen: Screen) -> None:
        self._stage, self._screen = stage, screen
        self._offline = is_offline()

    def tell(self) -> None:
        self._stage.manage("migrate", "--verbosity", "0")
        made = self._stage.manage("create_api_key", "--tenant", "demo", "--role", "admin", "--name", "demo", "--json")
        key = json.loads(made)["key"]
        with self._stage.server() as address:
            self._introduce(address)
            ada, bob = (Client(address, key, user) for user in ("ada", "bob"))
            first = self._talk(ada)
            self._show_facts(first)
            second = self._ask_anew(ada)
            third = self._ask_as_stranger(bob, first)
            self._show_notes(first)
            self._show_costs(first, second, third)
            self._forget(first, third)
        self._say_goodbye()

    def _introduce(self, address: str) -> None:
        rows = {
            "Model": OFFLINE if self._offline else f"{conf.MODEL}; {conf.CHEAP_MODEL} learns.",
            "Server": f"`manage.py serve` at {address}, with an empty SQLite database; both go at the end.",
        }
        text = (
            "A language model forgets everything from one request to the next. memorygw stands in front of it: it "
            "keeps conversations, remembers users across them, and forgets on demand."
        )
        self._screen.card("memorygw demo", text, rows=rows)

    def _talk(self, ada: Client) -> Thread:
        self._screen.chapter("Ada talks", "POST /api/v1/ask as user ada. Turns are numbered; all are kept.")
        thread = Thread("thread 1", ada)
        self._ask(thread, ADA_SAYS[0])
        seconds = self._wait_for_learning()
        self._screen.say(f"                (learning goes on behind the answer; waited {seconds:.1f} s for it)")
        for content in ADA_SAYS[1:]:
            self._ask(thread, content)
        self._wait_for_learning()
        return thread

    def _show_facts(self, thread: Thread) -> None:
        self._screen.chapter("What was learned about her", "GET /api/v1/facts as ada:")
        facts = thread.client.get("facts")["items"]
        rows = [(fact["key"], fact["value"], _source(fact, thread)) for fact in facts]
        self._screen.table(("Key", "Value", "Learned from"), *rows)
        if self._offline:
            said = {value for _, value, source in rows if "turn" in source}
            self._screen.check((said >= TAUGHT, "Name, home, tea and allergy are known, and where each was said"))
        else:
            self._screen.check((bool(facts), "Something is known about Ada"))

    def _ask_anew(self, ada: Client) -> Thread:
        thread = Thread("thread 2", ada)
        context = self._begin(thread, "Ada starts a new conversation")
        self._screen.check(
            (not context["messages"], "No turn of thread 1 is in the prompt of thread 2"),
            ("<user_memory>" in context["system"], "What was learned in thread 1 is in it"),
        )
        return thread

    def _ask_as_stranger(self, bob: Client, hers: Thread) -> Thread:
        thread = Thread("thread 3", bob)
        context = self._begin(thread, "Bob asks the same")
        self._screen.check(
            (not context["system"], "There is no memory block in Bob's prompt"),
            (not bob.get("facts")["items"], "Bob's list of facts is empty"),
            (bob.status(f"threads/{hers.id}") == 404, "Ada's thread does not exist for Bob: 404"),
        )
        return thread

    def _begin(self, thread: Thread, title: str) -> Any:
        """A new thread and its first question. Returns what the prompt carried besides the question."""
        thread.create()
        self._screen.chapter(title, "POST /api/v1/threads/{id}/context shows what a question will be sent with:")
        context = thread.client.post(f"threads/{thread.id}/context")
        messages, tokens = len(context["messages"]), context["usage"]["prompt_tokens"]
        memory = context["system"] or "(no memory block)"
        self._screen.card(f"{thread.label}: {messages} earlier messages, {tokens} tokens", memory)
        self._screen.say("")
        self._ask(thread, QUESTION)
        return context

    def _show_notes(self, thread: Thread) -> None:
        text = "Notes stand in for old turns. GET /api/v1/threads/{id}/memory of thread 1:"
        self._screen.chapter("Notes on a conversation", text)
        notes = thread.client.get(f"threads/{thread.id}/memory")
        lines = [notes["summary"], *(f"- {fact}" for fact in notes["facts"])]
        self._screen.card(f"Notes on turns 1 to {notes['turn_count']}", "\n".join(lines))
        if self._offline:
            self._screen.check((bool(notes["summary"]), "The notes of thread 1 are written"))

    def _show_costs(self, *threads: Thread) -> None:
        unit = " (the offline model counts words)" if self._offline else ""
        self._screen.chapter("What it cost", f"Tokens by thread, as the answers report them{unit}:")
        rows = ((thread.label, thread.client.user, thread.asks, *thread.usage.values()) for thread in threads)
        self._screen.table(("Thread", "User", "Asks", "Prompt tokens", "Answer tokens"), *rows)

    def _forget(self, hers: Thread, his: Thread) -> None:
        ada, bob = hers.client, his.client
        self._screen.chapter("Ada is forgotten", "POST /api/v1/users/ada/forget, for admin keys only. The receipt:")
        receipt = ada.post("users/ada/forget", mode="delete")
        counts, verified = receipt["counts"], receipt["verified"]
        self._screen.table(
            (*(name.capitalize() for name in counts), "Verified"), (*counts.values(), "yes" if verified else "no")
        )
        left = [thread["id"] for thread in bob.get("threads")["items"]]
        self._screen.check(
            (verified, "Verified: the gateway looked again and found nothing of hers"),
            (not ada.get("threads")["items"], "Ada's list of threads is empty"),
            (not ada.get("facts")["items"], "Ada's list of facts is empty"),
            (ada.status(f"threads/{hers.id}") == 404, "Thread 1 does not exist any more: 404"),
            (left == [his.id] and len(his.turns()) == 2, "Bob's thread is untouched"),
        )

    def _say_goodbye(self) -> None:
        rows = {
            "Shown": "Memory across conversations, kept apart by user, with its sources; notes, costs, and an erasure. "
            f"{self._screen.checks} checks held.",
            "Go on": "`make serve` starts the gateway on http://127.0.0.1:8000, its API is described at /api/v1/docs. "
            "More is in docs/.",
        }
        self._screen.say("")
        self._screen.card("Done", "", rows=rows)

    def _ask(self, thread: Thread, content: str) -> None:
        for turn in thread.ask(content):
            speaker = thread.client.user if turn["role"] == "user" else turn["role"]
            text = str(turn["content"] or turn["refusal"]).removesuffix(OFFLINE_REMARK).rstrip()
            self._screen.turn(turn["seq"], speaker, text)

    def _wait_for_learning(self) -> float:
        started = monotonic()
        self._stage.manage("sweep", "--until-idle", "--timeout", "60")
        return monotonic() - started


def _source(fact: dict[str, Any], thread: Thread) -> str:
    if fact["source_thread_id"] != thread.id:
        return "-"
    number = thread.turn_that_says(fact["value"])
    return f"{thread.label}, turn {number}" if number else thread.label
