"""What is measured of rows: the one list that validation, SQL, schemas and help are made from. Pure.

A measure is named here or it does not exist; which dataset has which stands in `svc.domain.queries.datasets`,
how one is worked out in `svc.store.reads.questions.measures`.
"""

from __future__ import annotations

from typing import Final, Literal

import attrs

MeasureName = Literal[
    "count",
    "errors",
    "error_rate",
    "cost",
    "tokens",
    "duration_p50",
    "duration_p95",
    "duration_p99",
    "traces",
    "sessions",
    "users",
]


@attrs.frozen
class QueryMeasure:
    """A measure: its name, the unit of its values (None for plain numbers) and what it means in one line."""

    name: MeasureName
    unit: str | None
    meaning: str


MEASURES: Final = {
    measure.name: measure
    for measure in (
        QueryMeasure("count", None, "rows"),
        QueryMeasure("errors", None, "rows whose status is error"),
        QueryMeasure("error_rate", None, "share of rows whose status is error, 0 to 1"),
        QueryMeasure("cost", "USD", "sum of costs as decimal text; unpriced_spans have usage and no price"),
        QueryMeasure("tokens", "tokens", "sum of tokens by kind, and their total"),
        QueryMeasure("duration_p50", "ms", "median duration of rows that ended, within 1 %"),
        QueryMeasure("duration_p95", "ms", "95th percentile of durations, within 1 %"),
        QueryMeasure("duration_p99", "ms", "99th percentile of durations, within 1 %"),
        QueryMeasure("traces", None, "distinct traces; beyond 10,000 an estimate within 2 %"),
        QueryMeasure("sessions", None, "distinct sessions, likewise"),
        QueryMeasure("users", None, "distinct users, likewise"),
    )
}
COUNT: Final = MEASURES["count"]
