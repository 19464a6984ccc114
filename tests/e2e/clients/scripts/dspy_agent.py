import dspy
from exporting import MODELS, QUESTION, SESSION, done, provider
from openinference.instrumentation import using_session
from openinference.instrumentation.dspy import DSPyInstrumentor

DSPyInstrumentor().instrument(tracer_provider=provider)


def get_weather(city: str) -> str:
    """The weather in a city."""
    return "sunny"


model = dspy.LM("openai/gpt-4o", api_base=MODELS + "/v1", api_key="none", cache=False)
with using_session(SESSION):
    with dspy.context(lm=model):
        model(QUESTION)
    dspy.Tool(get_weather)(city="Paris")
done()
