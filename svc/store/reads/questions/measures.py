"""How measures are worked out of rows, and how an answer shows them.

Called by `svc.store.reads.questions.query`. Owns the SQL of each measure of `svc.domain.queries.measures`;
never reads. Usage that repeats another span's is counted once, as everywhere (contract §3); percentiles are
exact, by nearest rank, over rows that ended.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, Final

import attrs

from protocol.rest.answers import Measured
from svc.domain.queries.datasets import CLASSIFIER_EVENTS, Dataset
from svc.domain.queries.measures import MeasureName, QueryMeasure
from svc.domain.spans.span import TOKEN_BUCKETS
from svc.domain.traces.rollup import MOST_TOKENS

#: Beside the columns of a row whose distinct ids were too many to count.
ESTIMATED: Final = "estimated"


@attrs.frozen
class MeasureColumns:
    """The columns of a measure: their SQL by name, the one that ranks groups, and how an answer shows a row.

    `show` sets the measure of an answer from a row, or from an empty mapping where no row matched.
    """

    columns: Mapping[str, str]
    ranking: str
    show: Callable[[Measured, Mapping[str, Any]], None]


def measure_columns(dataset: Dataset, measure: QueryMeasure) -> MeasureColumns:
    """The columns of a measure over the rows of a dataset."""
    if dataset is CLASSIFIER_EVENTS and measure.name in ("traces", "sessions"):
        return _distinct(measure.name, f"subject_{measure.name.removesuffix('s')}_id")
    return _COLUMNS[measure.name]


def decimal_text(value: Decimal) -> str:
    """Money as plain decimal text without trailing zeros."""
    # Not `normalize`, which rounds to the digits of the context.
    text = f"{value:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _distinct(name: MeasureName, column: str) -> MeasureColumns:
    return MeasureColumns(
        {name: f"count(distinct {column})"},
        name,
        lambda answer, row: setattr(answer, name, row.get(name) or 0),
    )


def _percentile(name: MeasureName, fraction: str) -> MeasureColumns:
    # Rows without an end have no duration, and an aggregate over an order leaves nulls out.
    duration_ms = "extract(epoch from ended_at - started_at)::float8 * 1000"
    return MeasureColumns(
        {name: f"percentile_disc({fraction}) within group (order by {duration_ms})"},
        name,
        lambda answer, row: setattr(answer, name, row.get(name)),
    )


def _errors(answer: Measured, row: Mapping[str, Any]) -> None:
    answer.errors = row.get("errors") or 0


def _error_rate(answer: Measured, row: Mapping[str, Any]) -> None:
    _errors(answer, row)
    answer.error_rate = row.get("error_rate")


def _cost(answer: Measured, row: Mapping[str, Any]) -> None:
    cost = row.get("cost")
    answer.cost = None if cost is None else decimal_text(cost)
    answer.unpriced_spans = row.get("unpriced_spans") or 0


def _tokens(answer: Measured, row: Mapping[str, Any]) -> None:
    """Sums by kind and their total, null where nobody reported any; they stop where the roll-up's do."""
    sums = {bucket: row.get(bucket) for bucket in TOKEN_BUCKETS}
    if all(value is None for value in sums.values()):
        answer.tokens = None
        return
    by_kind = {bucket.removesuffix("_tokens"): _whole(value) for bucket, value in sums.items()}
    answer.tokens = by_kind | {"total": min(MOST_TOKENS, sum(value or 0 for value in by_kind.values()))}


def _whole(value: Decimal | None) -> int | None:
    return None if value is None else min(MOST_TOKENS, int(value))


_OWN_USAGE: Final = "usage_repeats is null"
_FAILED: Final = "count(*) filter (where status = 'error')"
_TOTAL_TOKENS: Final = " + ".join(f"coalesce({bucket}, 0)::numeric" for bucket in TOKEN_BUCKETS)

_COLUMNS: Final[dict[MeasureName, MeasureColumns]] = {
    "count": MeasureColumns({}, "n", lambda _answer, _row: None),
    "errors": MeasureColumns({"errors": _FAILED}, "errors", _errors),
    "error_rate": MeasureColumns(
        {"errors": _FAILED, "error_rate": f"{_FAILED}::float8 / count(*)"}, "error_rate", _error_rate
    ),
    "cost": MeasureColumns(
        {
            "cost": f"sum(total_cost) filter (where {_OWN_USAGE})",
            "unpriced_spans": f"count(*) filter (where {_OWN_USAGE}"
            " and span_priced_by(cost_source, total_cost, price_book) = 'unpriced')",
        },
        "cost",
        _cost,
    ),
    "tokens": MeasureColumns(
        {bucket: f"sum({bucket}) filter (where {_OWN_USAGE})" for bucket in TOKEN_BUCKETS}
        | {"all_tokens": f"nullif(sum({_TOTAL_TOKENS}) filter (where {_OWN_USAGE}), 0)"},
        "all_tokens",
        _tokens,
    ),
    "duration_p50": _percentile("duration_p50", "0.5"),
    "duration_p95": _percentile("duration_p95", "0.95"),
    "duration_p99": _percentile("duration_p99", "0.99"),
    "traces": _distinct("traces", "trace_id"),
    "sessions": _distinct("sessions", "session_id"),
    "users": _distinct("users", "user_id"),
}
