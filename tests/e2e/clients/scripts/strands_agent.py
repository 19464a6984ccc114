from exporting import MODELS, QUESTION, SESSION, done
from strands import Agent, tool
from strands.models.openai import OpenAIModel


@tool
def get_weather(city: str) -> str:
    """The weather in a city."""
    return "sunny"


model = OpenAIModel(client_args={"base_url": MODELS + "/v1", "api_key": "none"}, model_id="gpt-4o")
agent = Agent(
    model=model,
    tools=[get_weather],
    name="forecaster",
    system_prompt="Be brief.",
    callback_handler=None,
    trace_attributes={"session.id": SESSION},
)
agent(QUESTION)
done()
