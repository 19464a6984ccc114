from exporting import MODELS, QUESTION, SESSION, done, provider
from pydantic_ai import Agent, InstrumentationSettings
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

Agent.instrument_all(InstrumentationSettings(tracer_provider=provider))
model = OpenAIChatModel("gpt-4o", provider=OpenAIProvider(base_url=MODELS + "/v1", api_key="none"))
agent = Agent(model, name="forecaster")


@agent.tool_plain
def get_weather(city: str) -> str:
    """The weather in a city."""
    return "sunny"


agent.run_sync(QUESTION, conversation_id=SESSION)
done()
