from exporting import MODELS, QUESTION, SESSION, done, provider
from langchain.agents import create_agent
from langchain_openai import ChatOpenAI
from openinference.instrumentation import using_session
from openinference.instrumentation.langchain import LangChainInstrumentor

LangChainInstrumentor().instrument(tracer_provider=provider)


def get_weather(city: str) -> str:
    """The weather in a city."""
    return "sunny"


model = ChatOpenAI(model="gpt-4o", base_url=MODELS + "/v1", api_key="none")
agent = create_agent(model, [get_weather], name="forecaster")
with using_session(SESSION):
    agent.invoke({"messages": [{"role": "user", "content": QUESTION}]})
done()
