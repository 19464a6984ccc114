import asyncio
import os

os.environ |= {"GOOGLE_API_KEY": "none", "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "SPAN_ONLY"}

from exporting import MODELS, QUESTION, SESSION, done
from google.adk.agents import Agent
from google.adk.models import Gemini
from google.adk.runners import InMemoryRunner
from google.genai import types


def get_weather(city: str) -> str:
    """The weather in a city."""
    return "sunny"


async def main():
    agent = Agent(
        name="forecaster",
        model=Gemini(model="gemini-2.5-flash", base_url=MODELS),
        instruction="Be brief.",
        tools=[get_weather],
    )
    runner = InMemoryRunner(agent=agent, app_name="client")
    await runner.session_service.create_session(app_name="client", user_id="anna", session_id=SESSION)
    question = types.Content(role="user", parts=[types.Part(text=QUESTION)])
    async for _ in runner.run_async(user_id="anna", session_id=SESSION, new_message=question):
        pass


asyncio.run(main())
done()
