"""Runs in Phoenix's own environment: annotates spans, traces and sessions by its client."""

import json
import sys

from phoenix.client import Client


def main() -> None:
    url, (span_id, trace_id, session_id) = sys.argv[1], json.loads(sys.argv[2])
    client = Client(base_url=url)
    person = {"annotator_kind": "HUMAN", "sync": True}
    client.spans.add_span_annotation(
        span_id=span_id, annotation_name="correct", score=0.75, explanation="It is what was asked.", **person
    )
    client.spans.add_span_annotation(
        span_id=span_id, annotation_name="tone", annotator_kind="LLM", label="calm", sync=True
    )
    client.traces.add_trace_annotation(trace_id=trace_id, annotation_name="helpful", score=1.0, **person)
    client.sessions.add_session_annotation(
        session_id=session_id, annotation_name="visit", label="solved", score=0.5, **person
    )


main()
