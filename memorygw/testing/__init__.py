"""For tests of projects that talk to a model. See `memorygw.testing.server`."""

from memorygw.testing.answers import RecordedRequest
from memorygw.testing.server import ScriptedModelServer

__all__ = ["RecordedRequest", "ScriptedModelServer"]
