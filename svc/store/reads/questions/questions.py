"""Questions to the query API: what is asked of which rows, checked.

Every identifier comes from `svc.domain.queries.datasets` and `svc.domain.queries.measures`; every value is a
parameter. Called by the fronts before anything runs; raises `Refused` that names the offender and what is
allowed. Reads nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final, get_args

import attrs

from protocol.refusals import (
    BAD_REQUEST,
    INVALID_RANGE,
    UNKNOWN_DATASET,
    UNKNOWN_FIELD,
    UNKNOWN_MEASURE,
    UNKNOWN_TIME,
    Refused,
)
from protocol.rest.query import FilterValue
from svc.domain.attributes.conventions import PAYLOAD, PREFIX
from svc.domain.queries.datasets import DATASETS, METRIC_ROLLUPS, SPANS, TOOL_CALLS, Dataset, Field
from svc.domain.queries.measures import COUNT, MEASURES, QueryMeasure
from svc.domain.spans.span import Kind, Status
from svc.domain.spans.values import identifier
from svc.store.postgres.clauses import Where
from svc.store.reads.questions.attributes import attribute_equals

_IDENTIFIERS: Final = {"session_id", "user_id", "call_site_id", "subject_session_id"}
#: The values of fields that have no others; each of their rows has one.
_ONLY_VALUES: Final[Mapping[tuple[str, str], tuple[str, ...]]] = {
    (SPANS.name, "kind"): get_args(Kind),
    (SPANS.name, "status"): get_args(Status),
    (TOOL_CALLS.name, "status"): get_args(Status),
    (METRIC_ROLLUPS.name, "granularity"): ("hour", "day"),
}


@attrs.frozen
class ChosenSpans:
    """The spans that a question is about, where payloads told which: their keys in columns.

    `looked` spans were looked through; `since` is where that ended, on the time of the question, None: it
    went through all.
    """

    trace_ids: Sequence[bytes]
    span_ids: Sequence[bytes]
    started: Sequence[datetime]
    looked: int = 0
    since: datetime | None = None

    @classmethod
    def of(
        cls, keys: Sequence[tuple[bytes, bytes, datetime, int]], looked: int, since: datetime | None
    ) -> ChosenSpans:
        """Of these keys."""
        started = [key[2] for key in keys]
        return cls([key[0] for key in keys], [key[1] for key in keys], started, looked, since)

    def clause(self, where: Where) -> str:
        """That a row is one of them."""
        if not self.started:
            return "false"
        columns = (
            f"{where.value(self.trace_ids)}::bytea[], {where.value(self.span_ids)}::bytea[],"
            f" {where.value(self.started)}::timestamptz[]"
        )
        # The bounds name the days to look into.
        return (
            f"started_at between {where.value(min(self.started))} and {where.value(max(self.started))}"
            f" and (trace_id, span_id, started_at) in (select * from unnest({columns}))"
        )


@attrs.frozen
class Question:
    """What every question has: project, dataset, range and the time it is on, filters, measures."""

    project_id: int
    dataset: Dataset
    low: datetime | None
    high: datetime | None
    filters: tuple[tuple[Field, FilterValue], ...]
    measure: QueryMeasure = COUNT
    #: Measures that each group is asked for beside the one that ranks them; one of all counts distinct ids.
    beside: tuple[QueryMeasure, ...] = ()
    #: Nothing but these, by `svc.store.reads.questions.spans_by_payload`.
    spans: ChosenSpans | None = None
    time_column: str = attrs.field(kw_only=True)

    @time_column.default
    def _default_time(self) -> str:
        return self.dataset.time_column

    @property
    def by_event_time(self) -> bool:
        """Whether its range is on when rows happened, not on when they arrived."""
        return self.time_column != self.dataset.time_column

    @property
    def measures(self) -> tuple[QueryMeasure, ...]:
        """All that is measured, the one that ranks groups first."""
        return (self.measure, *self.beside)

    @property
    def fields(self) -> tuple[Field, ...]:
        """The fields of its filters."""
        return tuple(field for field, _ in self.filters)

    def where(self) -> Where:
        """The clause of the question itself."""
        where = Where(["project_id = $1"], [self.project_id])
        if self.low is not None:
            where.clauses.append(f"{self.time_column} >= {where.value(self.low)}")
        if self.high is not None:
            where.clauses.append(f"{self.time_column} < {where.value(self.high)}")
        for field, value in self.filters:
            where.clauses.append(equals(where, field, value))
        if self.spans is not None:
            where.clauses.append(self.spans.clause(where))
        return where


def ask(
    project_id: int,
    dataset: str,
    bounds: tuple[datetime | None, datetime | None],
    filters: Mapping[str, FilterValue] | None,
    *,
    by: str | None = None,
    measure: str | None = None,
    beside: Sequence[str] = (),
) -> Question:
    """Check the parts that all questions share. Raises `Refused` naming the offender."""
    source = DATASETS.get(dataset)
    if source is None:
        raise Refused(UNKNOWN_DATASET.saying(f"unknown dataset '{dataset[:100]}'", allowed=list(DATASETS)))
    narrowed = checked_filters(source, filters)
    measures = _measure(source, measure), tuple(_measure(source, name) for name in beside)
    question = Question(project_id, source, *in_order(*bounds), narrowed, *measures)
    return question if by is None else attrs.evolve(question, time_column=_time(source, by))


def checked_filters(
    dataset: Dataset, filters: Mapping[str, FilterValue] | None
) -> tuple[tuple[Field, FilterValue], ...]:
    """The filters with their fields. Raises `Refused` for a field that is not there, and for a blank text."""
    text = (filters or {}).get(PAYLOAD, "…")
    if dataset.has_attributes and (text is None or not str(text).strip()):
        raise Refused(BAD_REQUEST.saying(f"'{PAYLOAD}' takes the text to search for"))
    return tuple((field_of(dataset, name), value) for name, value in (filters or {}).items())


def in_order(low: datetime | None, high: datetime | None) -> tuple[datetime | None, datetime | None]:
    """The bounds of a range. Raises `Refused` where the first is after the second."""
    if low is not None and high is not None and low > high:
        raise Refused(INVALID_RANGE.saying("'range.from' is after 'range.to'"))
    return low, high


def _measure(dataset: Dataset, name: str | None) -> QueryMeasure:
    if name is None:
        return COUNT
    for measure in dataset.measures:
        if measure == name:
            return MEASURES[measure]
    raise Refused(
        UNKNOWN_MEASURE.saying(
            f"unknown measure '{name[:100]}' for dataset '{dataset.name}'", allowed=list(dataset.measures)
        )
    )


def _time(dataset: Dataset, name: str) -> str:
    if name not in dataset.times:
        raise Refused(
            UNKNOWN_TIME.saying(
                f"unknown time '{name[:100]}' for dataset '{dataset.name}'", allowed=list(dataset.times)
            )
        )
    return name


def field_of(dataset: Dataset, name: str, *, facet: bool = False) -> Field:
    """The field of this name. Raises `Refused` for one that is not there, or no facet where one is wanted."""
    field = dataset.field(name)
    if field is None or (facet and not field.facetable):
        raise Refused(
            UNKNOWN_FIELD.saying(
                f"unknown field '{name[:100]}' for dataset '{dataset.name}'{_own(dataset, name)}"
                if field is None
                else f"dataset '{dataset.name}' is filtered by '{name[:100]}', but not grouped by it",
                allowed=[f.name for f in dataset.fields if f.facetable or not facet],
            )
        )
    return field


def _own(dataset: Dataset, name: str) -> str:
    """What to write for an attribute that is no convention; names of ours have no dot."""
    is_own = dataset.has_attributes and "." in name
    return f"; for an attribute of your own, write {PREFIX}{name[:100]}" if is_own else ""


def equals(where: Where, field: Field, value: FilterValue) -> str:
    """That a column has a value; `false` for one that no row can have."""
    if field.type == "attribute":
        return attribute_equals(where, field, None if value is None else filter_text(value))
    if value is None:
        return f"{field.name} is null"
    text = filter_text(value)
    if field.name == "status" and text == "error":
        # In so many words, not as a parameter, so that the indexes on what failed serve.
        return "status = 'error'"
    if field.type == "text":
        return f"{field.name} = {where.value(stored_value(field, text))}"
    try:
        return f"{field.name} = {where.value(bytes.fromhex(text))}"
    except ValueError:
        # No id looks like this, so no row has it.
        return "false"


def unknown_values(dataset: Dataset, filters: Iterable[tuple[Field, FilterValue]]) -> list[str]:
    """Which filters no row can meet, since their field knows other values alone."""
    return [
        f"{field.name} is never {'null' if value is None else _quoted(value)}, only {', '.join(values)}"
        for field, value in filters
        if (values := _ONLY_VALUES.get((dataset.name, field.name)))
        if value is None or filter_text(value) not in values
    ]


def _quoted(value: FilterValue) -> str:
    return f"'{filter_text(value)[:120]}'"


def filter_text(value: FilterValue) -> str:
    """The value of a filter as columns of texts hold it."""
    return str(value).lower() if isinstance(value, bool) else str(value).replace("\x00", "\ufffd")


def stored_value(field: Field, text: str) -> str:
    """The form in which a value stands in its column: long identifiers are stored cut."""
    return identifier(text) if field.name in _IDENTIFIERS else text
