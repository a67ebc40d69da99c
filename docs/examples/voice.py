from memorygw.agents import UserMemory, VoiceAgent

agent = VoiceAgent(
    name="Phone", instructions="You are a friendly voice.", model="gpt-5.4-nano", user_memory=UserMemory()
)

with agent.connect(user_id="user-42") as call:
    print(call.instructions)  # for the realtime model: with what is known about the user
    call.add("user", "I li")  # fragments, as the realtime model sends them
    call.add("user", "ve in Pune.")
    call.add("assistant", "Nice city!")
