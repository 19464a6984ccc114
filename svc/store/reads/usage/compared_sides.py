"""A side of a comparison: what makes a trace part of it, as traces, spans and SQL are asked for it.

Called by `svc.store.reads.usage.compared_traces`; the API, the tool, the command and the page make sides with
`side_of`. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

import attrs

from protocol.rest.query import FilterValue
from svc.domain.calendar import hour_of
from svc.domain.queries.datasets import SPANS, Field
from svc.domain.queries.measures import MEASURES
from svc.domain.spans.span import Status
from svc.store.postgres.clauses import Where
from svc.store.reads.questions.columns.asked import columns_know
from svc.store.reads.questions.questions import (
    Question,
    checked_filters,
    equals,
    field_of,
    filter_text,
    in_order,
)
from svc.store.reads.traces.trace_filter import TraceFilter, holding

_STEP: Final = timedelta(microseconds=1)
_FIRST: Final = datetime.min.replace(tzinfo=UTC)

#: Pairs of the name of a field and its value as a text, None for none.
SpansKey = tuple[tuple[str, str | None], ...]


@attrs.frozen
class Side:
    """What makes a trace part of a population: when it began, its status, and one span with all values."""

    low: datetime | None
    high: datetime | None
    filters: tuple[tuple[Field, FilterValue], ...] = ()
    status: Status | None = None
    failed_spans: bool | None = None

    @property
    def fields(self) -> tuple[Field, ...]:
        """The fields of its filters."""
        return tuple(field for field, _ in self.filters)

    @property
    def split_by(self) -> set[str]:
        """The fields that choose its traces; what failed chooses by kind of error as well."""
        names = {field.name for field, _ in self.filters}
        failure = self.status is not None or self.failed_spans is not None or "status" in names
        return names | ({"error_type"} if failure else set())

    @property
    def traces(self) -> TraceFilter:
        """The same as traces are asked for, without what their spans have."""
        high = None if self.high is None else max(self.high, _FIRST + _STEP) - _STEP
        return TraceFilter(status=self.status, low=self.low, high=high, failed_spans=self.failed_spans)

    @property
    def in_an_index(self) -> Side:
        """What of it the indexes on when traces began tell."""
        return Side(self.low, self.high, status="error" if self.status == "error" else None)

    def of_trace(self, where: Where) -> list[str]:
        """What the row of a trace `t` tells of it."""
        clauses = [] if self.low is None else [f"t.started_at >= {where.value(self.low)}"]
        if self.high is not None:
            clauses.append(f"t.started_at < {where.value(self.high)}")
        if self.status is not None:
            # In so many words, not as a parameter, so that the index on failed traces serves.
            clauses.append("t.status = 'error'" if self.status == "error" else "t.status = 'ok'")
        if self.failed_spans is not None:
            clauses.append("t.error_count > 0" if self.failed_spans else "t.error_count = 0")
        return clauses

    def of_spans(self, where: Where) -> list[str]:
        """What a look into the spans of a trace `t` tells of it."""
        conditions = " and ".join(equals(where, field, value) for field, value in self.filters)
        return [holding(conditions)] if conditions else []

    def both(self, other: Side) -> Side | None:
        """What a trace of both sides is asked for, without what its spans have; None where none can be."""
        lows = [low for low in (self.low, other.low) if low is not None]
        highs = [high for high in (self.high, other.high) if high is not None]
        low, high = max(lows, default=None), min(highs, default=None)
        if low is not None and high is not None and low >= high:
            return None
        for mine, theirs in ((self.status, other.status), (self.failed_spans, other.failed_spans)):
            if None not in (mine, theirs) and mine != theirs:
                return None
        failed_spans = other.failed_spans if self.failed_spans is None else self.failed_spans
        return Side(low, high, (), self.status or other.status, failed_spans)

    @property
    def span_filters(self) -> tuple[tuple[Field, FilterValue], ...]:
        """What one of its spans must have all of; none where nothing is asked of them."""
        if not self.filters and self.failed_spans:
            return ((field_of(SPANS, "status"), "error"),)
        return self.filters

    @property
    def key(self) -> SpansKey:
        """What is asked of its spans, the same for sides that ask for the same."""
        return tuple(
            (field.name, None if value is None else filter_text(value)) for field, value in self.span_filters
        )


def question_of(project_id: int, sides: Sequence[Side]) -> Question | None:
    """The spans of sides that ask these for the same, as columns are asked for their traces.

    None where columns do not tell.
    """
    lows = [side.low for side in sides]
    low = None if None in lows else hour_of(min(low for low in lows if low is not None))
    # A trace begins with its first span; with its last it may go on behind the range.
    question = Question(
        *(project_id, SPANS, low, None, sides[0].span_filters, MEASURES["traces"]), time_column="started_at"
    )
    return question if columns_know(question, None) else None


def side_of(
    low: datetime | None,
    high: datetime | None,
    filters: Mapping[str, FilterValue] | None,
    status: Status | None,
    failed_spans: bool | None,
) -> Side:
    """A side with its parts checked. Raises `Refused` naming the offender."""
    return Side(*in_order(low, high), checked_filters(SPANS, filters), status, failed_spans)
