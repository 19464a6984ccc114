"""Runs in MLflow's own environment: logs traces by its client, and prints how many of what there are."""

import json
import sys

import mlflow

TRACES = int(sys.argv[2])


def main() -> None:
    mlflow.set_tracking_uri(sys.argv[1])
    mlflow.set_experiment("moving out")
    tokens = spans = 0
    for n in range(TRACES):
        with mlflow.start_span("answer", span_type="AGENT") as root:
            root.set_inputs({"question": f"question {n}"})
            mlflow.update_current_trace(
                tags={"team": "support"},
                metadata={"mlflow.trace.session": f"session {n % 50}", "mlflow.trace.user": f"user {n % 7}"},
            )
            with mlflow.start_span("look up", span_type="TOOL") as tool:
                tool.set_inputs({"order": n})
                tool.set_outputs({"late": True})
            with mlflow.start_span("chat", span_type="CHAT_MODEL") as call:
                call.set_inputs(
                    {"messages": [{"role": "user", "content": f"question {n}"}], "model": "gpt-4o"}
                )
                call.set_outputs({"choices": [{"message": {"role": "assistant", "content": "late"}}]})
                used = {"input_tokens": 100 + n, "output_tokens": 10, "total_tokens": 110 + n}
                call.set_attribute("mlflow.chat.tokenUsage", used)
                call.set_attribute("mlflow.llm.model", "gpt-4o")
                if n % 10 == 0:
                    call.set_status("ERROR")
            root.set_outputs("late")
        tokens += 110 + n
        spans += 3
    mlflow.flush_trace_async_logging()
    print(json.dumps({"traces": TRACES, "spans": spans, "tokens": tokens}))


main()
