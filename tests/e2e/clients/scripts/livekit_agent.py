import asyncio

from exporting import MODELS, QUESTION, SESSION, done, provider
from livekit.agents import Agent, AgentSession, function_tool
from livekit.agents.telemetry import set_tracer_provider
from livekit.plugins import openai

set_tracer_provider(provider, metadata={"session.id": SESSION})


@function_tool
async def get_weather(city: str) -> str:
    """The weather in a city."""
    return "sunny"


async def main():
    model = openai.LLM(model="gpt-4o", base_url=MODELS + "/v1", api_key="none")
    async with AgentSession(llm=model) as session:
        await session.start(Agent(instructions="Be brief.", tools=[get_weather]))
        await session.run(user_input=QUESTION)


asyncio.run(main())
done()
