"""What arguments of several tools share: their types with their texts, ranges, and the class of all.

Used by `arguments` alone.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from protocol.rest.query import Q_MAX, FilterValue
from svc.domain.queries.measures import MeasureName
from svc.domain.spans.span import HeadColumn, Kind

LimitArgument = Annotated[int, Meta(description="Rows a page: 50 unless told, at most 100.")]
LongLimitArgument = Annotated[int, Meta(description="Rows a page: 100 unless told, at most 1000.")]
CursorArgument = Annotated[
    str, Meta(description="`next_cursor` of the page before. A stale one starts again at the newest page.")
]
CallSiteArgument = Annotated[str, Meta(description="Id of a call site, as list_call_sites shows it.")]
DetectorArgument = Annotated[str, Meta(description="Only those of this detector, named in whole.")]
TraceIdArgument = Annotated[str, Meta(description="32 hexadecimal characters.")]
SpanIdArgument = Annotated[str, Meta(description="16 hexadecimal characters.")]
KindArgument = Annotated[Kind, Meta(description="What a span is.")]
QArgument = Annotated[
    str, Meta(max_length=Q_MAX, description="A part of the text, in any case; no wildcards.")
]
ModeArgument = Annotated[Literal["keyword"], Meta(description="How `q` is understood.")]
FieldsArgument = Annotated[
    list[Literal["payload"]],
    Meta(
        max_length=1,
        description='["payload"] gives full input, output, attributes and provided_usage instead'
        " of previews.",
    ),
]
#: Columns of a row, apart from its ids; a law holds them to the rows of `svc.front.mcp.outputs`.
TraceColumn = Literal[
    "name",
    "started_at",
    "ended_at",
    "latency_ms",
    "session_id",
    "user_id",
    "call_site_id",
    "span_count",
    "error_count",
    "status",
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "reasoning_tokens",
    "total_tokens",
    "input_cost",
    "output_cost",
    "total_cost",
    "unpriced_spans",
    "is_settled",
    "input_preview",
    "output_preview",
    "set_entries",
]
SpanColumn = Literal[
    "payload",
    HeadColumn,
    "error_message",
    "created_at",
    "latency_ms",
    "total_tokens",
    "total_cost",
    "cost_source",
    "payload_available",
    "input_preview",
    "output_preview",
    "agent_path",
]
TraceColumnsArgument = Annotated[
    list[TraceColumn],
    Meta(max_length=40, description="Rows with these and their id alone: more of them fit."),
]
SpanColumnsArgument = Annotated[
    list[SpanColumn],
    Meta(
        max_length=40,
        description='["payload"] gives full input, output, attributes and provided_usage instead'
        " of previews; others give spans with these and their ids alone.",
    ),
]
FiltersArgument = Annotated[
    dict[str, FilterValue],
    Meta(
        description="Field to value, all must be equal; null asks for rows without one."
        " Fields as describe_dataset shows them."
    ),
]


class Arguments(Struct, forbid_unknown_fields=True):
    """What every class of arguments is."""

    def __post_init__(self) -> None:
        fields = getattr(self, "fields", UNSET)
        if fields is not UNSET and len(set(fields)) < len(fields):
            raise ValueError("fields names one of them twice")


class Between(Arguments, rename={"from_": "from"}):
    """Two instants in ISO 8601, UTC unless they say otherwise; either may be missing."""

    from_: str | UnsetType = UNSET
    to: str | UnsetType = UNSET


class BothBounds(Arguments, rename={"from_": "from"}):
    """Two instants in ISO 8601, UTC unless they say otherwise; both are required."""

    from_: str
    to: str


HalfOpenArgument = Annotated[
    Between,
    Meta(description="ISO 8601 instants [from, to) on the dataset's time column; `to` itself is outside."),
]


ByArgument = Annotated[
    Literal["created_at", "started_at"],
    Meta(
        description="The time that range is on: created_at (when rows arrived, unless told) or started_at"
        " (when it happened). Ask about yesterday or last week by started_at."
    ),
]
MeasureArgument = Annotated[
    MeasureName,
    Meta(description="What to work out beside the count: see measures of describe_dataset."),
]
