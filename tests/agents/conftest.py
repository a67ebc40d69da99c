"""The memory and the agent of most of these tests."""

import pytest

from memorygw.agents import Agent, UserMemory
from memorygw.models import Tenant


@pytest.fixture
def memory(tenant: Tenant) -> UserMemory:
    return UserMemory(model="mem", tenant=tenant)


@pytest.fixture
def agent(memory: UserMemory) -> Agent:
    return Agent(name="A", instructions="Be kind.", model="main", user_memory=memory)
