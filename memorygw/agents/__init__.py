"""Memory for agent developers: an agent, what it remembers about users, and voice sessions, in a few lines (rows A).

Everything here is a thin use of `memorygw.gateway`, over the same tables, rules and caps. Each method that waits has an
async form of the same name with an ``a`` before it.
"""

from memorygw.agents.agent import Agent
from memorygw.agents.memory import UserFact, UserMemory
from memorygw.agents.voice import VoiceAgent, VoiceConnection
from memorygw.gateway import Answer, Decision, Event

__all__ = ["Agent", "Answer", "Decision", "Event", "UserFact", "UserMemory", "VoiceAgent", "VoiceConnection"]
