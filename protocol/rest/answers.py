"""Answers of the query API and of health, and the failure envelope, as classes (contract §1, §4, §7).

The store of questions answers these, every front sends them as they are, and the document of the API is made
from them. What was not asked for is unset, and missing in the JSON.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from protocol.rest.accounts import Instant


class Measured(msgspec.Struct, kw_only=True):
    """A count, and beside it the value of the measure that was asked for, under its name.

    `cost` is decimal text in USD, durations are milliseconds, `tokens` are sums by kind with their total;
    null where nothing is known. On `metric_rollups` the count is the sum of values, maybe with a fraction.
    """

    count: int | float
    errors: int | UnsetType = UNSET
    error_rate: float | UnsetType | None = UNSET
    cost: str | UnsetType | None = UNSET
    unpriced_spans: int | UnsetType = UNSET
    tokens: dict[str, int | None] | UnsetType | None = UNSET
    duration_p50: float | UnsetType | None = UNSET
    duration_p95: float | UnsetType | None = UNSET
    duration_p99: float | UnsetType | None = UNSET
    traces: int | UnsetType = UNSET
    sessions: int | UnsetType = UNSET
    users: int | UnsetType = UNSET

    def figure(self, measure: str) -> Any:
        """The value of a measure as it stands here; None where it is not known or was not asked for."""
        value = getattr(self, measure)
        return None if value is UNSET else value


class Headed(msgspec.Struct, kw_only=True):
    """What an answer says of itself: its measure with the unit, its time, and notes."""

    measure: str | UnsetType = UNSET
    unit: str | UnsetType | None = UNSET
    by: str | UnsetType = UNSET
    notes: list[str] | UnsetType = UNSET


class Counted(Measured, kw_only=True):
    """How many rows match, and the measure over all of them, headed as `Headed`."""

    measure: str | UnsetType = UNSET
    unit: str | UnsetType | None = UNSET
    by: str | UnsetType = UNSET
    notes: list[str] | UnsetType = UNSET


class Bucket(Measured, kw_only=True):
    """One interval."""

    bucket_start: Instant


class Series(msgspec.Struct):
    """The buckets of one value of a field."""

    value: str | int | float | bool | None
    buckets: list[Bucket]


class Buckets(Headed, kw_only=True):
    """Every interval of the range, ascending, empty ones with 0; by the largest values of a field as well."""

    buckets: list[Bucket]
    group_by: str | UnsetType = UNSET
    series: list[Series] | UnsetType = UNSET


class Facet(Measured, kw_only=True):
    """A value and how often it is there; null counts rows without one."""

    value: str | int | float | bool | None


class Ranked(Headed, kw_only=True):
    """The values of a field with the most rows, or the most of the measure, first."""

    field: str
    facets: list[Facet]


class FoundRow(msgspec.Struct):
    """One row of a search."""

    id: str
    created_at: Instant
    fields: dict[str, Any]


class FoundPage(msgspec.Struct):
    """A page of rows, newest first, and the cursor of the next page."""

    rows: list[FoundRow]
    next_cursor: str | None
    notes: list[str] | UnsetType = UNSET


class ComparedSize(msgspec.Struct):
    """How many traces are on a side, and how many of them were looked at."""

    traces: int
    sampled: int


class ComparedValue(msgspec.Struct):
    """A value over the traces of a side, with its 95 % interval where there is one."""

    value: float | None
    low: float | UnsetType | None = UNSET
    high: float | UnsetType | None = UNSET

    def interval(self) -> tuple[float, float] | None:
        """Both ends of the interval, where there is one."""
        if isinstance(self.low, float | int) and isinstance(self.high, float | int):
            return self.low, self.high
        return None


class ComparedMeasure(msgspec.Struct):
    """A measure on both sides: shares of traces, and means a trace."""

    measure: str
    unit: str | None
    baseline: ComparedValue
    comparison: ComparedValue


class MovedValue(msgspec.Struct):
    """A value whose share of traces moved beyond chance; `only_in` names the side that alone has it."""

    field: str
    value: str
    baseline_share: float
    comparison_share: float
    odds_ratio: float
    odds_between: list[float]
    p_value: float
    only_in: Literal["baseline", "comparison"] | UnsetType = UNSET


class ComparedExamples(msgspec.Struct):
    """Ids of traces of each side, the newest first."""

    baseline: list[str]
    comparison: list[str]


class Compared(msgspec.Struct):
    """Two populations against each other; `moved` has the largest difference first."""

    baseline: ComparedSize
    comparison: ComparedSize
    measures: list[ComparedMeasure]
    moved: list[MovedValue]
    moved_left_out: int
    examples: ComparedExamples
    notes: list[str]


class SpanPayload(msgspec.Struct):
    """Everything a span said; beside these what `svc.domain.intake.payload` knows of it."""

    input: Any
    output: Any
    attributes: dict[str, Any]
    provided_usage: dict[str, Any]
    events: list[dict[str, Any]]
    links: list[dict[str, Any]]
    resource: dict[str, Any]
    scope: dict[str, Any]


class ErrorBody(msgspec.Struct):
    """Why a request failed."""

    code: str
    message: str
    details: Any = None


class Failure(msgspec.Struct):
    """The failure envelope."""

    ok: Literal[False]
    error: ErrorBody


class HealthReport(msgspec.Struct):
    """UP or DOWN, and for the whole report the same of each part."""

    status: Literal["UP", "DOWN"]
    components: dict[str, Any] = {}
