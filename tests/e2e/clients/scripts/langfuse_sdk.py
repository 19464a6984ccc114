import os

os.environ |= {
    "LANGFUSE_PUBLIC_KEY": "pk",
    "LANGFUSE_SECRET_KEY": "sk",
    "LANGFUSE_HOST": os.environ["MODELS"],
}

from exporting import MODELS, QUESTION, SESSION, done, provider
from langfuse import Langfuse, observe, propagate_attributes
from langfuse.openai import OpenAI
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult


class Nowhere(SpanExporter):
    """Langfuse's own way out is not wanted: its spans leave by the provider's."""

    def export(self, spans):
        return SpanExportResult.SUCCESS


Langfuse(tracer_provider=provider, span_exporter=Nowhere())
client = OpenAI(base_url=MODELS + "/v1", api_key="none")


@observe(as_type="tool")
def get_weather(city):
    return "sunny"


@observe(as_type="agent")
def forecaster(question):
    with propagate_attributes(session_id=SESSION):
        get_weather("Paris")
        answer = client.chat.completions.create(
            model="gpt-4o", messages=[{"role": "user", "content": question}]
        )
        return answer.choices[0].message.content


with propagate_attributes(session_id=SESSION):
    forecaster(QUESTION)
done()
