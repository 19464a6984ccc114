"""Assessments of MLflow come along as feedback on the spans that they are about."""

from __future__ import annotations

from typing import Any

from protocol.otlp.json import read_json
from protocol.otlp.reading import walk
from svc.domain.feedback.entries import Feedback, from_span
from svc.importers.mlflow_assessments import MOST_ASSESSMENTS, add_assessments
from svc.importers.source import request_of, service_resource

ROOT, CHILD = "00000000000000a1", "00000000000000b2"


def assessment(value: Any, **fields: Any) -> dict[str, Any]:
    """One as the server's JSON has it."""
    return {
        "assessment_id": "a-1",
        "assessment_name": "relevance",
        "trace_id": "tr-1",
        "source": {"source_type": "HUMAN", "source_id": "bob@example.org"},
        "create_time": "2026-11-20T10:00:00.250Z",
        "feedback": {"value": value},
        "rationale": "It answers what was asked.",
        "valid": True,
    } | fields


def brought(*assessments: Any) -> list[Feedback]:
    """What a trace of two spans with these says once its spans are decoded."""
    times = {"startTimeUnixNano": "1795168800000000000", "endTimeUnixNano": "1795168801000000000"}
    trace = {"traceId": "0af7651916cd43dd8448eb211c80319c", "name": "x", "attributes": [], **times}
    spans = [trace | {"spanId": ROOT}, trace | {"spanId": CHILD, "parentSpanId": ROOT}]
    add_assessments({"assessments": list(assessments)}, spans)
    body = request_of([(service_resource("app"), {"scope": {"name": "mlflow"}}, spans)])
    return [entry for span in walk(read_json(body)) for entry in from_span(span)]


def test_a_number_a_word_and_a_yes_are_feedback_of_who_said_them() -> None:
    number, word, yes = brought(assessment(0.75), assessment("good"), assessment(True))
    assert (number.name, number.number, number.author) == ("relevance", 0.75, "bob@example.org")
    assert (number.text, number.span_id) == ("It answers what was asked.", bytes.fromhex(ROOT))
    assert number.judged_at is not None
    assert number.judged_at.isoformat() == "2026-11-20T10:00:00.250000+00:00"
    assert (word.category, word.number) == ("good", None)
    assert yes.number == 1.0


def test_what_is_said_of_a_span_is_on_that_span() -> None:
    (entry,) = brought(assessment(1, span_id=CHILD))
    assert entry.span_id == bytes.fromhex(CHILD)


def test_what_was_replaced_and_what_is_expected_stay_behind() -> None:
    expected = assessment(1)
    del expected["feedback"]
    assert (
        brought(assessment(1, valid=False), expected | {"expectation": {"value": "Paris"}}, "nonsense") == []
    )


def test_damage_costs_no_more_than_its_own_part() -> None:
    (entry,) = brought(assessment(1, create_time="soon", source=None, rationale=7, assessment_name=None))
    assert (entry.name, entry.author, entry.text, entry.judged_at) == ("feedback", None, None, None)


def test_a_trace_brings_so_many_and_no_more() -> None:
    many = [assessment(number, assessment_name=f"n{number}") for number in range(MOST_ASSESSMENTS + 10)]
    assert len(brought(*many)) == MOST_ASSESSMENTS
