import logfire
from agents import Agent, OpenAIProvider, RunConfig, Runner, function_tool
from exporting import MODELS, QUESTION, SESSION, done, processors

logfire.configure(
    service_name="client",
    send_to_logfire=False,
    console=False,
    scrubbing=False,
    add_baggage_to_attributes=True,
    additional_span_processors=processors,
)
logfire.instrument_openai_agents()


@function_tool
def get_weather(city: str) -> str:
    """The weather in a city."""
    return "sunny"


agent = Agent(name="forecaster", instructions="Be brief.", tools=[get_weather], model="gpt-4o")
for use_responses in (True, False):
    models = OpenAIProvider(base_url=MODELS + "/v1", api_key="none", use_responses=use_responses)
    Runner.run_sync(agent, QUESTION, run_config=RunConfig(model_provider=models, group_id=SESSION))
done()
