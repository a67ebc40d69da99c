"""What tests of agents look at."""

from memorygw.agents import UserMemory, VoiceConnection
from memorygw.testing import RecordedRequest


def texts(memory: UserMemory, user: str | int = "ada") -> list[str]:
    return [fact.fact for fact in memory.get_facts(user)]


def heard(request: RecordedRequest) -> list[str]:
    """The lines of a transcript that is read for facts, without their times."""
    return [line.partition("] ")[2] for line in request.text.splitlines() if line.startswith("[2")]


def messages(call: VoiceConnection) -> list[tuple[str, str]]:
    """What was said, at the end."""
    return [(message["role"], message["content"]) for message in call.close()]
