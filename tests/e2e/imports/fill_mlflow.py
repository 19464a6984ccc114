"""Runs in MLflow's own environment: logs traces by its client, and prints how many of what there are."""

import json
import sys

import mlflow
from mlflow.entities import AssessmentSource

TRACES = int(sys.argv[2])


def judge(span) -> None:  # type: ignore[no-untyped-def]
    """Assess one trace and a span of it, as people and judges do."""
    trace_id = span.trace_id
    person = AssessmentSource("HUMAN", "bob@example.org")
    mlflow.log_feedback(trace_id=trace_id, name="useful", value=True, source=person)
    first = mlflow.log_feedback(trace_id=trace_id, name="grade", value=0.75, span_id=span.span_id)
    mlflow.override_feedback(
        trace_id=trace_id,
        assessment_id=first.assessment_id,
        value=0.25,
        rationale="It only repeats the question.",
    )
    judge_source = AssessmentSource("LLM_JUDGE", "gpt-4o")
    mlflow.log_feedback(trace_id=trace_id, name="manner", value="calm", source=judge_source)
    mlflow.log_expectation(trace_id=trace_id, name="expected", value="Paris")


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
        last_span = call
    mlflow.flush_trace_async_logging()
    judge(last_span)
    print(json.dumps({"traces": TRACES, "spans": spans, "tokens": tokens}))


main()
