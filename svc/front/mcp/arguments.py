"""The arguments of the tools, one class each: their types, their schema, their texts.

`tools/list` shows the schema of these classes and `tools/call` validates with them, so the two cannot differ.
Absent is `UNSET`; null and blank texts are taken for absent before a class sees them.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from protocol.detection import CaseState, EvidenceRole, Severity
from protocol.rest.query import Q_MAX, FilterValue
from protocol.taxonomy import FailureScope, Layer
from svc.domain.marks.table import MarkName
from svc.domain.measures import MeasureName
from svc.domain.span import Kind, Status

DatasetName = Literal["spans", "tool_calls", "classifier_events", "metric_rollups"]

_Limit = Annotated[int, Meta(description="Rows a page: 50 unless told, at most 100.")]
_LongLimit = Annotated[int, Meta(description="Rows a page: 100 unless told, at most 1000.")]
_Cursor = Annotated[
    str, Meta(description="`next_cursor` of the page before. A stale one starts again at the newest page.")
]
_CallSite = Annotated[str, Meta(description="Id of a call site, as list_call_sites shows it.")]
_Detector = Annotated[str, Meta(description="Only those of this detector, named in whole.")]
_TraceId = Annotated[str, Meta(description="32 hexadecimal characters.")]
_SpanId = Annotated[str, Meta(description="16 hexadecimal characters.")]
_Kind = Annotated[Kind, Meta(description="What a span is.")]
_Q = Annotated[str, Meta(max_length=Q_MAX, description="A part of the text, in any case; no wildcards.")]
_Mode = Annotated[Literal["keyword"], Meta(description="How `q` is understood.")]
_Fields = Annotated[
    list[Literal["payload"]],
    Meta(
        max_length=1,
        description='["payload"] gives full input, output, attributes and provided_usage instead'
        " of previews.",
    ),
]
_Filters = Annotated[
    dict[str, FilterValue],
    Meta(
        description="Field to value, all must be equal; null asks for rows without one."
        " Fields as describe_dataset shows them."
    ),
]


class Arguments(Struct, forbid_unknown_fields=True):
    """What every class of arguments is."""


class Between(Arguments, rename={"from_": "from"}):
    """Two instants in ISO 8601, UTC unless they say otherwise; either may be missing."""

    from_: str | UnsetType = UNSET
    to: str | UnsetType = UNSET


class BothBounds(Arguments, rename={"from_": "from"}):
    """Two instants in ISO 8601, UTC unless they say otherwise; both are required."""

    from_: str
    to: str


_Closed = Annotated[Between, Meta(description="ISO 8601 instants `from` and `to`, both inclusive.")]
_HalfOpen = Annotated[
    Between,
    Meta(description="ISO 8601 instants [from, to) on the dataset's time column; `to` itself is outside."),
]


_By = Annotated[
    Literal["created_at", "started_at"],
    Meta(
        description="The time that range is on: created_at (when rows arrived, unless told) or started_at"
        " (when it happened). Ask about yesterday or last week by started_at."
    ),
]
_Measure = Annotated[
    MeasureName,
    Meta(description="What to work out beside the count: see measures of describe_dataset."),
]


class GetProject(Arguments):
    """get_project takes none."""


class ListCallSites(Arguments):
    """list_call_sites takes none."""


class ListFailureModes(Arguments):
    """list_failure_modes."""

    call_site_id: _CallSite | UnsetType = UNSET
    chain_id: Annotated[str, Meta(description="Only modes of this chain.")] | UnsetType = UNSET
    scope: Annotated[FailureScope, Meta(description="Where such a failure shows.")] | UnsetType = UNSET
    severity: Severity | UnsetType = UNSET
    layer: Annotated[Layer, Meta(description="The layer of the taxonomy.")] | UnsetType = UNSET
    pack_id: (
        Annotated[str, Meta(description="Only modes of this pack; get_project has them.")] | UnsetType
    ) = UNSET
    compliance_tag: Annotated[str, Meta(description="Only modes with this tag.")] | UnsetType = UNSET


class ListCases(Arguments):
    """list_cases."""

    state: Annotated[CaseState, Meta(description="`open` unless told.")] | UnsetType = UNSET
    detector: _Detector | UnsetType = UNSET
    call_site_id: _CallSite | UnsetType = UNSET
    limit: _Limit | UnsetType = UNSET
    cursor: _Cursor | UnsetType = UNSET


class GetCase(Arguments):
    """get_case."""

    id: Annotated[str, Meta(description="Stored id, or human reference such as C-12.")]


class ListFindings(Arguments):
    """list_findings."""

    status: (
        Annotated[str, Meta(description="As detectors write it: `open`, or how it was closed.")] | UnsetType
    ) = UNSET
    call_site_id: _CallSite | UnsetType = UNSET
    detector: _Detector | UnsetType = UNSET
    include: (
        Annotated[Literal["confirmed", "all"], Meta(description="`confirmed` unless told.")] | UnsetType
    ) = UNSET


class GetFinding(Arguments):
    """get_finding."""

    id: Annotated[str, Meta(description="Id of a finding, as list_findings or get_case show it.")]


class GetFindingEvidence(Arguments):
    """get_finding_evidence."""

    finding_id: Annotated[str, Meta(description="Id of a finding, as list_findings or get_case show it.")]
    role: Annotated[EvidenceRole, Meta(description="Only refs of this role.")] | UnsetType = UNSET
    count_only: Annotated[bool, Meta(description="Sizes per role and no refs.")] | UnsetType = UNSET
    limit: _LongLimit | UnsetType = UNSET
    cursor: _Cursor | UnsetType = UNSET


class ListTraces(Arguments):
    """list_traces."""

    model: Annotated[str, Meta(description="Traces with a span of this model.")] | UnsetType = UNSET
    kind: Annotated[Kind, Meta(description="Traces with a span of this kind.")] | UnsetType = UNSET
    call_site_id: Annotated[str, Meta(description="Traces with a span of this call site.")] | UnsetType = (
        UNSET
    )
    status: (
        Annotated[Status, Meta(description="Of the root span. Failed spans anywhere: list_spans.")]
        | UnsetType
    ) = UNSET
    range: (
        Annotated[Between, Meta(description="ISO 8601 instants, both inclusive on started_at.")] | UnsetType
    ) = UNSET
    q: (
        Annotated[
            str,
            Meta(
                max_length=Q_MAX,
                description="A part of the name, a preview, or the trace, session or user id.",
            ),
        ]
        | UnsetType
    ) = UNSET
    limit: _Limit | UnsetType = UNSET
    cursor: _Cursor | UnsetType = UNSET


class ListTracesExtended(ListTraces):
    """list_traces with what extends the specification."""

    failed_spans: (
        Annotated[bool, Meta(description="true: traces in which any span failed, whatever status says.")]
        | UnsetType
    ) = UNSET
    sort: (
        Annotated[
            Literal["started_at", "latency", "cost", "tokens", "errors"],
            Meta(description="Largest first, on one page, within range: newest (started_at) unless told."),
        ]
        | UnsetType
    ) = UNSET
    mark: Annotated[MarkName, Meta(description="Traces with this mark.")] | UnsetType = UNSET
    filters: (
        Annotated[
            dict[str, FilterValue],
            Meta(
                description="Fields of dataset spans, attributes too: traces with one span that has them all."
            ),
        ]
        | UnsetType
    ) = UNSET


class GetTrace(Arguments):
    """get_trace."""

    trace_id: _TraceId
    fields: _Fields | UnsetType = UNSET


class ListSpans(Arguments):
    """list_spans."""

    trace_id: _TraceId | UnsetType = UNSET
    call_site_id: _CallSite | UnsetType = UNSET
    kind: _Kind | UnsetType = UNSET
    name: Annotated[str, Meta(description="The whole name; a part of it is `q`.")] | UnsetType = UNSET
    status: Annotated[Status, Meta(description="Of the span itself.")] | UnsetType = UNSET
    model_id: (
        Annotated[
            str,
            Meta(
                description="Id in the price book. Spans of a model that is not in it have none: ask"
                " list_traces for the model, or query_facets with filters on provided_model_name."
            ),
        ]
        | UnsetType
    ) = UNSET
    session_id: Annotated[str, Meta(description="Id of a session, in whole.")] | UnsetType = UNSET
    range: (
        Annotated[Between, Meta(description="ISO 8601 instants, both inclusive on created_at.")] | UnsetType
    ) = UNSET
    q: Annotated[str, Meta(max_length=Q_MAX, description="A part of the name or a preview.")] | UnsetType = (
        UNSET
    )
    mode: _Mode | UnsetType = UNSET
    fields: _Fields | UnsetType = UNSET
    limit: _Limit | UnsetType = UNSET
    cursor: _Cursor | UnsetType = UNSET


class ListSpansExtended(ListSpans):
    """list_spans with what extends the specification."""

    by: (
        Annotated[
            Literal["created_at", "started_at"],
            Meta(
                description="The time of range and order: created_at (when spans arrived, unless told) or"
                " started_at (when they ran)."
            ),
        ]
        | UnsetType
    ) = UNSET


class GetSpan(Arguments):
    """get_span."""

    trace_id: _TraceId
    span_id: _SpanId


class ListSessions(Arguments):
    """list_sessions."""

    limit: _Limit | UnsetType = UNSET
    cursor: _Cursor | UnsetType = UNSET


class GetSession(Arguments):
    """get_session."""

    id: Annotated[str, Meta(description="Id of a session, as list_sessions or a span shows it.")]


class DescribeDataset(Arguments):
    """describe_dataset."""

    dataset: Annotated[DatasetName, Meta(description="Only this one.")] | UnsetType = UNSET


class QueryCount(Arguments):
    """query_count."""

    dataset: DatasetName
    range: _HalfOpen | UnsetType = UNSET
    filters: _Filters | UnsetType = UNSET


class QueryCountExtended(QueryCount):
    """query_count with what extends the specification."""

    by: _By | UnsetType = UNSET
    measure: _Measure | UnsetType = UNSET


class QueryTimeseries(Arguments):
    """query_timeseries."""

    dataset: DatasetName
    interval: Literal["hour", "day", "week", "month"]
    range: Annotated[
        BothBounds,
        Meta(description="ISO 8601 instants [from, to) on the dataset's time column; both needed."),
    ]
    filters: _Filters | UnsetType = UNSET


class QueryTimeseriesExtended(QueryTimeseries):
    """query_timeseries with what extends the specification."""

    interval: Literal["minute", "hour", "day", "week", "month"]  # type: ignore[assignment] # takes more
    by: _By | UnsetType = UNSET
    measure: _Measure | UnsetType = UNSET
    group_by: (
        Annotated[str, Meta(description="A facetable field: series holds its largest values beside the sum.")]
        | UnsetType
    ) = UNSET
    top_n: Annotated[int, Meta(description="Series of group_by: 5 unless told, at most 20.")] | UnsetType = (
        UNSET
    )


class QueryFacets(Arguments):
    """query_facets."""

    dataset: DatasetName
    field: Annotated[str, Meta(description="A facetable field, as describe_dataset shows it.")]
    range: _HalfOpen | UnsetType = UNSET
    filters: _Filters | UnsetType = UNSET
    top_n: Annotated[int, Meta(description="Values shown: 20 unless told, at most 100.")] | UnsetType = UNSET


class QueryFacetsExtended(QueryFacets):
    """query_facets with what extends the specification."""

    by: _By | UnsetType = UNSET
    measure: _Measure | UnsetType = UNSET
    sort: (
        Annotated[
            Literal["descending", "ascending"],
            Meta(description="By the measure, or the count: the most first unless told."),
        ]
        | UnsetType
    ) = UNSET


class QuerySearch(Arguments):
    """query_search."""

    dataset: Literal["tool_calls", "classifier_events"]
    q: _Q | UnsetType = UNSET
    mode: _Mode | UnsetType = UNSET
    range: _HalfOpen | UnsetType = UNSET
    filters: _Filters | UnsetType = UNSET
    limit: _LongLimit | UnsetType = UNSET
    cursor: _Cursor | UnsetType = UNSET


class QuerySearchExtended(QuerySearch):
    """query_search with what extends the specification."""

    by: _By | UnsetType = UNSET


class PopulationArguments(Arguments):
    """Traces by when they began, their status, and the values of one span of theirs."""

    range: (
        Annotated[Between, Meta(description="ISO 8601 instants [from, to) on when traces began.")] | UnsetType
    ) = UNSET
    filters: (
        Annotated[
            dict[str, FilterValue],
            Meta(description="Field of spans to value: traces with one span that has them all."),
        ]
        | UnsetType
    ) = UNSET
    status: Annotated[Status, Meta(description="Of the trace.")] | UnsetType = UNSET
    failed_spans: Annotated[bool, Meta(description="Whether any span of the trace failed.")] | UnsetType = (
        UNSET
    )


class Compare(Arguments):
    """compare."""

    baseline: Annotated[PopulationArguments, Meta(description="What is usual: before, healthy, release A.")]
    comparison: Annotated[
        PopulationArguments, Meta(description="What is asked about: since, failing, release B.")
    ]
