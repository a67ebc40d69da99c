import asyncio

from agents import Agent, OpenAIChatCompletionsModel, Runner, function_tool, set_tracing_disabled
from openai import AsyncOpenAI


@function_tool
def find_meetups(city: str) -> str:
    """Meetups of this week."""
    return f"Python {city}, Thursday at 19:00"


async def main() -> None:
    async with AsyncOpenAI(default_headers={"X-Memorygw-User": "user-42"}) as client:
        model = OpenAIChatCompletionsModel("gpt-5.4-mini", openai_client=client)
        agent = Agent(name="Assistant", model=model, tools=[find_meetups])
        result = await Runner.run(agent, "Which meetups are near me?")
        print(result.final_output)


set_tracing_disabled(True)
asyncio.run(main())
