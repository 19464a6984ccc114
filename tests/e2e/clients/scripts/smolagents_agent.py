from exporting import MODELS, QUESTION, SESSION, done, provider
from openinference.instrumentation import using_session
from openinference.instrumentation.smolagents import SmolagentsInstrumentor
from smolagents import LogLevel, OpenAIModel, ToolCallingAgent, tool

SmolagentsInstrumentor().instrument(tracer_provider=provider)


@tool
def get_weather(city: str) -> str:
    """The weather in a city.

    Args:
        city: its name
    """
    return "sunny"


model = OpenAIModel("gpt-4o", api_base=MODELS + "/v1", api_key="none")
agent = ToolCallingAgent(tools=[get_weather], model=model, verbosity_level=LogLevel.OFF)
with using_session(SESSION):
    agent.run(QUESTION)
done()
