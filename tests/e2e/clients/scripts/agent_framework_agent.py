import asyncio

from agent_framework import Agent
from agent_framework.observability import enable_sensitive_telemetry
from agent_framework.openai import OpenAIChatClient
from exporting import MODELS, QUESTION, done

enable_sensitive_telemetry()


def get_weather(city: str) -> str:
    """The weather in a city."""
    return "sunny"


client = OpenAIChatClient(model="gpt-4o", base_url=MODELS + "/v1", api_key="none")
agent = Agent(client, "Be brief.", name="forecaster", tools=get_weather)
asyncio.run(agent.run(QUESTION))
done()
