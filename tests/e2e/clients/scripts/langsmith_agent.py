import os

os.environ |= {"LANGSMITH_TRACING": "true", "LANGSMITH_TRACING_MODE": "otel", "LANGSMITH_API_KEY": "none"}

from exporting import MODELS, QUESTION, SESSION, done
from langchain.agents import create_agent
from langchain_core.tracers.langchain import wait_for_all_tracers
from langchain_openai import ChatOpenAI


def get_weather(city: str) -> str:
    """The weather in a city."""
    return "sunny"


model = ChatOpenAI(model="gpt-4o", base_url=MODELS + "/v1", api_key="none")
agent = create_agent(model, [get_weather], name="forecaster")
asked = {"messages": [{"role": "user", "content": QUESTION}]}
agent.invoke(asked, {"metadata": {"session_id": SESSION}})
wait_for_all_tracers()
done()
