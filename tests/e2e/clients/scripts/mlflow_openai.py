import json
import os

os.environ |= {
    "MLFLOW_ENABLE_OTEL_GENAI_SEMCONV": "true",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": os.environ["SVC"] + "/v1/traces",
    "OTEL_EXPORTER_OTLP_TRACES_HEADERS": "Authorization=Bearer%20" + os.environ["WRITE_KEY"],
    "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf",
}

import mlflow
from openai import OpenAI

QUESTION = "What is the weather in Paris?"
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOL = {"type": "function", "function": {"name": "get_weather", "parameters": PARAMETERS}}

mlflow.openai.autolog()
client = OpenAI(base_url=os.environ["MODELS"] + "/v1", api_key="none")


@mlflow.trace(span_type="TOOL")
def get_weather(city):
    return "sunny"


@mlflow.trace(span_type="AGENT")
def forecaster(question):
    mlflow.update_current_trace(metadata={"mlflow.trace.session": os.environ["SESSION"]})
    history = [{"role": "user", "content": question}]
    turn = client.chat.completions.create(model="gpt-4o", messages=history, tools=[TOOL]).choices[0].message
    call = turn.tool_calls[0]
    result = get_weather(**json.loads(call.function.arguments))
    history += [turn, {"role": "tool", "tool_call_id": call.id, "content": result}]
    client.chat.completions.create(model="gpt-4o", messages=history, tools=[TOOL])
    return mlflow.get_current_active_span().trace_id


trace_id = forecaster(QUESTION)
mlflow.flush_trace_async_logging()
print(json.dumps([trace_id.removeprefix("tr-")]))
