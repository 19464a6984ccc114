"""The four datasets: the one list of what can be counted, faceted, filtered and searched.

It feeds validation, SQL and the description for agents (spec, "Datasets"; contract §4). A field is named
here or it does not exist.
"""

from __future__ import annotations

from typing import Final, Literal

import attrs

from svc.domain.attributes.conventions import CONVENTIONS, PAYLOAD, PREFIX
from svc.domain.queries.measures import MEASURES, MeasureName
from svc.domain.spans.span import HEAD_COLUMNS, TOKEN_BUCKETS
from svc.domain.traces.agent_path import AGENT_PATH

FieldType = Literal["text", "trace_id", "span_id", "attribute"]
#: The column that says when something happened, where rows know it.
EVENT_TIME: Final = "started_at"
CountedAs = Literal["count", "sum"]


@attrs.frozen
class Field:
    """A field that can be filtered by equality, and counted by value when it is facetable.

    `counted_ahead` says that the cubes hold its counts hour by hour; a facet with too many values for that is
    counted row by row. `of_span` says that not the row itself has the attribute, but the span it belongs to.
    """

    name: str
    facetable: bool
    type: FieldType = "text"
    counted_ahead: bool = False
    of_span: bool = False


@attrs.frozen
class Dataset:
    """A table as the query API sees it.

    `searched` are the columns that `q` looks into; empty means that the dataset does not support search.
    `identity` are the columns that tell rows of one instant apart, in the order of their key. `measures` are
    what can be asked beside the count. `has_event_time` says whether a row knows when it happened
    (`started_at`) beside when it arrived.
    """

    name: str
    table: str
    fields: tuple[Field, ...]
    searched: tuple[str, ...]
    time_column: str
    counted_as: CountedAs
    identity: tuple[str, ...]
    shown: tuple[str, ...]
    measures: tuple[MeasureName, ...] = ("count",)
    has_event_time: bool = False
    #: Whether its rows have the fields of attributes: any name that begins with `attr.` may be one.
    has_attributes: bool = False

    @property
    def times(self) -> tuple[str, ...]:
        """The times that a range can be on; the first is the one that an answer takes by itself."""
        return (self.time_column, EVENT_TIME) if self.has_event_time else (self.time_column,)

    def field(self, name: str) -> Field | None:
        """The field of this name, or None."""
        if self.has_attributes and name.startswith(PREFIX):
            return Field(name, facetable=True, type="attribute")
        return next((field for field in self.fields if field.name == name), None)


def _facets(*names: str) -> tuple[Field, ...]:
    return tuple(Field(name, facetable=True, type=_type(name), counted_ahead=True) for name in names)


def _row_facets(*names: str) -> tuple[Field, ...]:
    return tuple(Field(name, facetable=True, type=_type(name)) for name in names)


def _filters(*names: str) -> tuple[Field, ...]:
    return tuple(Field(name, facetable=False, type=_type(name)) for name in names)


def _type(name: str) -> FieldType:
    if name.endswith("trace_id"):
        return "trace_id"
    return "span_id" if name.endswith("span_id") else "text"


SPANS: Final = Dataset(
    name="spans",
    table="span",
    fields=(
        # Of spans that call a model, those whose usage repeats nothing are the calls.
        *_facets("kind", "name", "call_site_id", "session_id", "status", "model_id", "provider"),
        *_facets("cost_source", "usage_repeats"),
        *_row_facets("provided_model_name"),
        *_filters("trace_id", "span_id"),
        *_row_facets("user_id", "error_type"),
        *(Field(convention.name, facetable=True, type="attribute") for convention in CONVENTIONS),
        # Not equal to what a span said, but somewhere in it.
        Field(PAYLOAD, facetable=False, type="attribute"),
    ),
    searched=("name", "error_type", "error_message", "input_preview", "output_preview"),
    time_column="created_at",
    counted_as="count",
    identity=("trace_id", "span_id"),
    shown=(
        "trace_id",
        "span_id",
        *HEAD_COLUMNS,
        *TOKEN_BUCKETS,
        "total_cost",
        "cost_source",
        "price_book",
        "usage_repeats",
        "input_preview",
        "output_preview",
    ),
    measures=tuple(MEASURES),
    has_event_time=True,
    has_attributes=True,
)
TOOL_CALLS: Final = Dataset(
    name="tool_calls",
    table="tool_call",
    fields=(
        *_facets("name", "status", "error_type"),
        *_filters("trace_id", "span_id"),
        *_row_facets("call_site_id"),
        Field(AGENT_PATH, facetable=True, type="attribute", of_span=True),
    ),
    searched=("name", "error_type", "error_message"),
    time_column="created_at",
    counted_as="count",
    identity=("trace_id", "span_id", "index"),
    shown=(
        "trace_id",
        "span_id",
        "index",
        "name",
        "call_id",
        "status",
        "error_type",
        "error_message",
        "call_site_id",
        "started_at",
    ),
    measures=("count", "errors", "error_rate", "traces"),
    has_event_time=True,
)
CLASSIFIER_EVENTS: Final = Dataset(
    name="classifier_events",
    table="classifier_event",
    fields=(
        *_facets("classifier_id", "severity", "confidence", "subject_kind"),
        *_filters("subject_session_id", "subject_trace_id", "subject_span_id"),
        *_row_facets("call_site_id"),
    ),
    searched=("classifier_id", "summary"),
    time_column="created_at",
    counted_as="count",
    identity=("id",),
    shown=(
        "classifier_id",
        "severity",
        "confidence",
        "subject_kind",
        "subject_session_id",
        "subject_trace_id",
        "subject_span_id",
        "cause_span_id",
        "call_site_id",
        "summary",
    ),
    measures=("count", "traces", "sessions"),
)
METRIC_ROLLUPS: Final = Dataset(
    name="metric_rollups",
    table="metric_rollup",
    fields=_facets("metric", "granularity"),
    searched=(),
    time_column="bucket_start",
    counted_as="sum",
    identity=(),
    shown=(),
)

DATASETS: Final = {
    dataset.name: dataset for dataset in (SPANS, TOOL_CALLS, CLASSIFIER_EVENTS, METRIC_ROLLUPS)
}
