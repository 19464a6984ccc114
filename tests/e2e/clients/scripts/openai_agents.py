from agents import Agent, OpenAIProvider, RunConfig, Runner, function_tool
from exporting import MODELS, QUESTION, SESSION, done, provider
from openinference.instrumentation import using_session
from openinference.instrumentation.openai_agents import OpenAIAgentsInstrumentor

OpenAIAgentsInstrumentor().instrument(tracer_provider=provider)


@function_tool
def get_weather(city: str) -> str:
    """The weather in a city."""
    return "sunny"


agent = Agent(name="forecaster", instructions="Be brief.", tools=[get_weather], model="gpt-4o")
config = RunConfig(model_provider=OpenAIProvider(base_url=MODELS + "/v1", api_key="none"))
with using_session(SESSION):
    Runner.run_sync(agent, QUESTION, run_config=config)
done()
