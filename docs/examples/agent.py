from memorygw.agents import Agent, UserMemory

memory = UserMemory(model="gpt-5.4-nano", max_facts=50)
agent = Agent(
    name="Assistant",
    model="gpt-5.4-mini",
    instructions="You are a helpful personal assistant.",
    user_memory=memory,
)

agent.run("Hi! I am a developer and I live in Mumbai.", user_id="user-42", session_id="session-1")
# Later, in another session: the agent knows.
answer = agent.run("Which meetups are near me?", user_id="user-42", session_id="session-2")
print(answer.answer.content)
