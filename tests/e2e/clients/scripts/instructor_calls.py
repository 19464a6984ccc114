import instructor
from exporting import MODELS, QUESTION, SESSION, done, provider
from openai import OpenAI
from openinference.instrumentation import using_session
from openinference.instrumentation.instructor import InstructorInstrumentor
from openinference.instrumentation.openai import OpenAIInstrumentor
from pydantic import BaseModel

InstructorInstrumentor().instrument(tracer_provider=provider)
OpenAIInstrumentor().instrument(tracer_provider=provider)


class get_weather(BaseModel):
    """The place that a question is about."""

    city: str


client = instructor.from_openai(OpenAI(base_url=MODELS + "/v1", api_key="none"))
with using_session(SESSION):
    client.chat.completions.create(
        model="gpt-4o", response_model=get_weather, messages=[{"role": "user", "content": QUESTION}]
    )
done()
