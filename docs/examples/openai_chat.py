from openai import OpenAI

client = OpenAI(default_headers={"X-Memorygw-User": "user-42"})

messages = [{"role": "user", "content": "Hi, I am Ada and I live in Turin."}]
reply = client.chat.completions.create(model="gpt-5.4-mini", messages=messages)
print(reply.choices[0].message.content)

# As always with this API, the client sends the whole conversation; memorygw stores what is new of it.
messages += [reply.choices[0].message, {"role": "user", "content": "What is there to see?"}]
for chunk in client.chat.completions.create(model="gpt-5.4-mini", messages=messages, stream=True):
    if chunk.choices:
        print(chunk.choices[0].delta.content or "", end="")
print()

# Another conversation: what was learned is known.
question = [{"role": "user", "content": "Where do I live?"}]
print(client.chat.completions.create(model="gpt-5.4-mini", messages=question).choices[0].message.content)
