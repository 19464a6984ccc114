"""What a measure is called on a page, and its values as numbers to draw and as text. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from protocol.rest.answers import Measured
from svc.domain.quantities import NOT_KNOWN, Number, count, duration, money, percent
from svc.domain.queries.measures import MeasureName

#: By name, as selects and headings show them.
LABELS: Final[dict[MeasureName, str]] = {
    "count": "Count",
    "errors": "Errors",
    "error_rate": "Error rate",
    "cost": "Cost",
    "tokens": "Tokens",
    "duration_p50": "Median duration",
    "duration_p95": "p95 duration",
    "duration_p99": "p99 duration",
    "traces": "Traces",
    "sessions": "Sessions",
    "users": "Users",
}
_WRITERS: Final[dict[MeasureName, Callable[[Number | None], str]]] = {
    "error_rate": percent,
    "cost": money,
    "duration_p50": duration,
    "duration_p95": duration,
    "duration_p99": duration,
}


def measured_number(measure: MeasureName, answer: Measured) -> float | None:
    """The value of a measure in an answer, a bucket or a facet; None where nothing is known."""
    value = answer.figure(measure)
    if isinstance(value, Mapping):
        value = value["total"]
    return None if value is None else float(value)


def number_text(measure: MeasureName, value: float | None) -> str:
    """A value of a measure as text."""
    return NOT_KNOWN if value is None else _WRITERS.get(measure, count)(value)


def measured_text(measure: MeasureName, answer: Measured) -> str:
    """The value of a measure in an answer as text."""
    return number_text(measure, measured_number(measure, answer))
