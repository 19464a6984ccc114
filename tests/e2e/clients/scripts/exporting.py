"""What every client script shares: where to export, and which traces it made."""

import json
import os

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

MODELS, SESSION = os.environ["MODELS"], os.environ["SESSION"]
QUESTION = "What is the weather in Paris?"
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
CHAT_TOOL = {"type": "function", "function": {"name": "get_weather", "parameters": PARAMETERS}}
RESPONSES_TOOL = {"type": "function", "name": "get_weather", "parameters": PARAMETERS}
MESSAGES_TOOL = {"name": "get_weather", "input_schema": PARAMETERS}


class _Traces(SpanProcessor):
    def __init__(self):
        self.ids = {}

    def on_start(self, span, parent_context=None):
        self.ids[format(span.context.trace_id, "032x")] = None


traces = _Traces()
provider = TracerProvider(resource=Resource.create({"service.name": "client"}))
#: Also for those that make a provider of their own.
processors = [
    traces,
    BatchSpanProcessor(
        OTLPSpanExporter(
            endpoint=os.environ["SVC"] + "/v1/traces",
            headers={"Authorization": "Bearer " + os.environ["WRITE_KEY"]},
        )
    ),
]
for processor in processors:
    provider.add_span_processor(processor)
trace.set_tracer_provider(provider)


def done():
    """Export the rest, and say which traces there are."""
    provider.force_flush()
    provider.shutdown()
    print(json.dumps(list(traces.ids)))
