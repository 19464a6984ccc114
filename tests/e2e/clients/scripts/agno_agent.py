from agno.agent import Agent
from agno.models.openai import OpenAIChat
from exporting import MODELS, QUESTION, SESSION, done, provider
from openinference.instrumentation.agno import AgnoInstrumentor

AgnoInstrumentor().instrument(tracer_provider=provider)


def get_weather(city: str) -> str:
    """The weather in a city."""
    return "sunny"


model = OpenAIChat(id="gpt-4o", base_url=MODELS + "/v1", api_key="none")
agent = Agent(name="forecaster", model=model, tools=[get_weather], telemetry=False)
agent.run(QUESTION, session_id=SESSION)
done()
