from agents import Agent, Runner

from memorygw import gateway
from memorygw.adapters.openai_agents import MemorygwSession, memory_tools

session = MemorygwSession("session-2", user_id="user-42")
agent = Agent(
    name="Assistant",
    instructions=f"You are a helpful personal assistant.\n\n{gateway.get_facts_text('default', 'user-42')}",
    tools=memory_tools("default", "user-42", session=session),
)

result = Runner.run_sync(agent, "Which meetups are near me?", session=session)
print(result.final_output)
