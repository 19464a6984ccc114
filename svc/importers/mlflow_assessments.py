"""Assessments of MLflow as events of spans, which is how feedback comes with them.

Called by `svc.importers.mlflow`. Fields are named as MLflow's `assessments.proto` names them: feedback of
people, judges and code. Expectations say what an answer should have been, and are left out; so is feedback
that another replaced.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from svc.importers.evaluations import add_evaluation, evaluation_event
from svc.importers.source import instant_of

#: Assessments of one trace that come along.
MOST_ASSESSMENTS: Final = 50


def add_assessments(info: Mapping[str, Any], spans: Sequence[dict[str, Any]]) -> int:
    """Add the feedback of a trace to the spans that it is about, else to the root. Returns how many."""
    by_id = {span["spanId"]: span for span in spans}
    root = next((span for span in spans if not span.get("parentSpanId")), spans[0])
    assessments = [one for one in info.get("assessments") or () if isinstance(one, dict)]
    added = 0
    for assessment in assessments[:MOST_ASSESSMENTS]:
        event = _event(assessment)
        if event is not None:
            add_evaluation(by_id.get(str(assessment.get("span_id") or ""), root), event)
            added += 1
    return added


def _event(assessment: Mapping[str, Any]) -> dict[str, Any] | None:
    feedback, source = assessment.get("feedback"), assessment.get("source")
    if not isinstance(feedback, dict) or assessment.get("valid") is False:
        return None
    return evaluation_event(
        assessment.get("assessment_name"),
        feedback.get("value"),
        label=feedback.get("value"),
        text=assessment.get("rationale"),
        author=source.get("source_id") if isinstance(source, dict) else None,
        at=instant_of(assessment.get("create_time")),
    )
