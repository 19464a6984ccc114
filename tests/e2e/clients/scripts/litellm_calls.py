import os

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"

import time

import litellm
from exporting import CHAT_TOOL, MODELS, QUESTION, done, provider, traces
from litellm.integrations.opentelemetry import OpenTelemetry, OpenTelemetryConfig

litellm.callbacks = [OpenTelemetry(config=OpenTelemetryConfig(exporter="none"), tracer_provider=provider)]
common = {"api_base": MODELS + "/v1", "api_key": "none"}


def ask(messages, **options):
    return litellm.completion(model="openai/gpt-4o", messages=messages, **common, **options)


asked = [{"role": "user", "content": QUESTION}]
turn = ask(asked, tools=[CHAT_TOOL]).choices[0].message
told = {"role": "tool", "tool_call_id": turn.tool_calls[0].id, "content": "sunny"}
ask([*asked, turn.model_dump(exclude_none=True), told], tools=[CHAT_TOOL])
list(ask(asked, stream=True, stream_options={"include_usage": True}))
litellm.embedding(model="openai/text-embedding-3-small", input=[QUESTION], **common)
# Its callback runs on threads of its own.
deadline = time.monotonic() + 30
while len(traces.ids) < 4 and time.monotonic() < deadline:
    time.sleep(0.05)
time.sleep(0.5)
done()
