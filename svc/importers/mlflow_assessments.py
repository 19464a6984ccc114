"""Assessments of MLflow as events of spans, which is how feedback comes with them.

Called by `svc.importers.mlflow`. Fields are named as MLflow's `assessments.proto` names them: feedback of
people, judges and code. Expectations say what an answer should have been, and are left out; so is feedback
that another replaced.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from protocol.refusals import Refused
from protocol.rest.query import instant
from svc.domain.feedback.entries import AUTHOR_ATTRIBUTE, EVALUATION_EVENT
from svc.importers.source import pairs_of

#: Assessments of one trace that come along.
MOST_ASSESSMENTS: Final = 50


def add_assessments(info: Mapping[str, Any], spans: Sequence[dict[str, Any]]) -> int:
    """Add the feedback of a trace to the spans that it is about, else to the root. Returns how many."""
    by_id = {span["spanId"]: span for span in spans}
    root = next((span for span in spans if not span.get("parentSpanId")), spans[0])
    assessments = [one for one in info.get("assessments") or () if isinstance(one, dict)]
    added = 0
    for assessment in assessments[:MOST_ASSESSMENTS]:
        attributes = _attributes(assessment)
        if attributes is None:
            continue
        span = by_id.get(str(assessment.get("span_id") or ""), root)
        event = {
            "name": EVALUATION_EVENT,
            "timeUnixNano": str(_time_ns(assessment.get("create_time"))),
            "attributes": pairs_of(attributes),
        }
        span["events"] = [*(span.get("events") or ()), event]
        added += 1
    return added


def _attributes(assessment: Mapping[str, Any]) -> dict[str, Any] | None:
    feedback = assessment.get("feedback")
    if not isinstance(feedback, dict) or assessment.get("valid") is False:
        return None
    value = feedback.get("value")
    attributes: dict[str, Any] = {
        "gen_ai.evaluation.name": str(assessment.get("assessment_name") or "feedback")
    }
    match value:
        case bool():
            # MLflow's yes and no are a thumb.
            attributes["gen_ai.evaluation.score.value"] = float(value)
        case int() | float():
            attributes["gen_ai.evaluation.score.value"] = float(value)
        case str():
            attributes["gen_ai.evaluation.score.label"] = value
    if isinstance(rationale := assessment.get("rationale"), str):
        attributes["gen_ai.evaluation.explanation"] = rationale
    source = assessment.get("source")
    if isinstance(source, dict) and isinstance(author := source.get("source_id"), str):
        attributes[AUTHOR_ATTRIBUTE] = author
    return attributes


def _time_ns(moment: Any) -> int:
    """A time of protobuf's JSON in nanoseconds; 0 for one that cannot be read."""
    if not isinstance(moment, str):
        return 0
    try:
        return int(instant(moment, "create_time").timestamp() * 1_000_000) * 1000
    except Refused:
        return 0
