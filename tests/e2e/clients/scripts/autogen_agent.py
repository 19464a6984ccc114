import asyncio

from autogen_agentchat.agents import AssistantAgent
from autogen_ext.models.openai import OpenAIChatCompletionClient
from exporting import MODELS, QUESTION, SESSION, done, provider
from openinference.instrumentation import using_session
from openinference.instrumentation.autogen_agentchat import AutogenAgentChatInstrumentor
from openinference.instrumentation.openai import OpenAIInstrumentor

AutogenAgentChatInstrumentor().instrument(tracer_provider=provider)
OpenAIInstrumentor().instrument(tracer_provider=provider)


async def get_weather(city: str) -> str:
    """The weather in a city."""
    return "sunny"


async def main():
    model = OpenAIChatCompletionClient(model="gpt-4o", base_url=MODELS + "/v1", api_key="none")
    agent = AssistantAgent(
        "forecaster",
        model_client=model,
        tools=[get_weather],
        reflect_on_tool_use=True,
        system_message="Be brief.",
    )
    with using_session(SESSION):
        await agent.run(task=QUESTION)
    await model.close()


asyncio.run(main())
done()
