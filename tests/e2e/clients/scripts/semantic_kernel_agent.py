import asyncio
import os

os.environ["SEMANTICKERNEL_EXPERIMENTAL_GENAI_ENABLE_OTEL_DIAGNOSTICS_SENSITIVE"] = "true"

from exporting import MODELS, QUESTION, done
from openai import AsyncOpenAI
from semantic_kernel.agents import ChatCompletionAgent
from semantic_kernel.connectors.ai.open_ai import OpenAIChatCompletion
from semantic_kernel.functions import kernel_function


class Weather:
    @kernel_function(name="get_weather", description="The weather in a city.")
    def get_weather(self, city: str) -> str:
        return "sunny"


async def main():
    client = AsyncOpenAI(base_url=MODELS + "/v1", api_key="none")
    agent = ChatCompletionAgent(
        service=OpenAIChatCompletion(ai_model_id="gpt-4o", async_client=client),
        name="forecaster",
        instructions="Be brief.",
        plugins=[Weather()],
    )
    await agent.get_response(messages=QUESTION)


asyncio.run(main())
done()
