from exporting import MODELS, QUESTION, SESSION, done, provider
from haystack.components.agents import Agent
from haystack.components.generators.chat import OpenAIChatGenerator
from haystack.dataclasses import ChatMessage
from haystack.tools import tool
from haystack.utils import Secret
from openinference.instrumentation import using_session
from openinference.instrumentation.haystack import HaystackInstrumentor

HaystackInstrumentor().instrument(tracer_provider=provider)


@tool
def get_weather(city: str) -> str:
    """The weather in a city."""
    return "sunny"


model = OpenAIChatGenerator(model="gpt-4o", api_base_url=MODELS + "/v1", api_key=Secret.from_token("none"))
agent = Agent(chat_generator=model, tools=[get_weather], system_prompt="Be brief.")
with using_session(SESSION):
    agent.run(messages=[ChatMessage.from_user(QUESTION)])
done()
