"""Feedback of other products as events of spans, which is how it comes along with a history.

Called by the importers of products that keep scores or annotations. The event and its attributes are those of
OpenTelemetry's conventions (`svc.domain.feedback.entries`). Never fetches.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from svc.domain.feedback.entries import (
    AUTHOR_ATTRIBUTE,
    CATEGORY_ATTRIBUTE,
    EVALUATION_EVENT,
    NAME_ATTRIBUTE,
    NUMBER_ATTRIBUTE,
    SESSION_ATTRIBUTE,
    TEXT_ATTRIBUTE,
)
from svc.importers.source import nanoseconds, pairs_of

#: Entries of one span that come along.
MOST_EVALUATIONS: Final = 50


def evaluation_event(
    name: Any,
    value: Any,
    *,
    label: Any = None,
    text: Any = None,
    author: Any = None,
    at: datetime | None = None,
    session_id: Any = None,
) -> dict[str, Any] | None:
    """An event of what was thought of a span, or of the session; None where nothing was. A yes or no is a
    thumb.
    """
    attributes: dict[str, Any] = {NAME_ATTRIBUTE: str(name or "feedback")}
    if isinstance(value, int | float):
        attributes[NUMBER_ATTRIBUTE] = float(value)
    if isinstance(label, str) and label:
        attributes[CATEGORY_ATTRIBUTE] = label
    if isinstance(text, str) and text:
        attributes[TEXT_ATTRIBUTE] = text
    if len(attributes) == 1:
        return None
    if isinstance(author, str) and author:
        attributes[AUTHOR_ATTRIBUTE] = author
    if isinstance(session_id, str) and session_id:
        attributes[SESSION_ATTRIBUTE] = session_id
    return {
        "name": EVALUATION_EVENT,
        "timeUnixNano": "0" if at is None else nanoseconds(at),
        "attributes": pairs_of(attributes),
    }


def add_evaluation(span: dict[str, Any], event: dict[str, Any] | None) -> None:
    """Put an event on a span, which has room for `MOST_EVALUATIONS`."""
    events = [*(span.get("events") or ())]
    held = sum(present.get("name") == EVALUATION_EVENT for present in events)
    if event is not None and held < MOST_EVALUATIONS:
        span["events"] = [*events, event]
