"""The arguments of the tools, one class each: their types, their schema, their texts.

`tools/list` shows the schema of these classes and `tools/call` validates with them, so the two cannot differ.
Absent is `UNSET`; null and blank texts are taken for absent before a class sees them.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta, UnsetType

from protocol.detection import CaseState, EvidenceRole, Severity
from protocol.rest.query import Q_MAX, FilterValue
from protocol.taxonomy import FailureScope, Layer
from svc.domain.marks.table import MarkName
from svc.domain.spans.span import Kind, Status
from svc.front.mcp.argument_types import (
    Arguments,
    Between,
    BothBounds,
    ByArgument,
    CallSiteArgument,
    CursorArgument,
    DetectorArgument,
    FieldsArgument,
    FiltersArgument,
    HalfOpenArgument,
    KindArgument,
    LimitArgument,
    LongLimitArgument,
    MeasureArgument,
    ModeArgument,
    QArgument,
    SpanColumnsArgument,
    SpanIdArgument,
    TraceColumnsArgument,
    TraceIdArgument,
)

#: Kinds of feedback that one question asks for.
MOST_FEEDBACK = 20

DatasetName = Literal["spans", "tool_calls", "classifier_events", "metric_rollups"]


class GetProject(Arguments):
    """get_project takes none."""


class ListCallSites(Arguments):
    """list_call_sites takes none."""


class ListFailureModes(Arguments):
    """list_failure_modes."""

    call_site_id: CallSiteArgument | UnsetType = UNSET
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
    detector: DetectorArgument | UnsetType = UNSET
    call_site_id: CallSiteArgument | UnsetType = UNSET
    limit: LimitArgument | UnsetType = UNSET
    cursor: CursorArgument | UnsetType = UNSET


class GetCase(Arguments):
    """get_case."""

    id: Annotated[str, Meta(description="Stored id, or human reference such as C-12.")]


class ListFindings(Arguments):
    """list_findings."""

    status: (
        Annotated[
            str,
            Meta(
                description="`confirmed` is live, `closed` is over. `withheld`, not confirmed yet, and"
                " `rejected`, no issue, are listed with include all."
            ),
        ]
        | UnsetType
    ) = UNSET
    call_site_id: CallSiteArgument | UnsetType = UNSET
    detector: DetectorArgument | UnsetType = UNSET
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
    limit: LongLimitArgument | UnsetType = UNSET
    cursor: CursorArgument | UnsetType = UNSET


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
                description="A part of the name, a preview, an error, or the trace, session or user id.",
            ),
        ]
        | UnsetType
    ) = UNSET
    limit: LimitArgument | UnsetType = UNSET
    cursor: CursorArgument | UnsetType = UNSET


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
    feedback: (
        Annotated[
            list[str],
            Meta(
                max_length=MOST_FEEDBACK,
                description='What was thought of them, all of it: ["helpful<0.5"], ["tone=rude"],'
                ' ["helpful"] for any; "-helpful" for none. query_facets counts the names.',
            ),
        ]
        | UnsetType
    ) = UNSET
    set: (
        Annotated[
            str,
            Meta(
                description="Traces that people keep in the set of this name or id; each row has set_entries"
                " with the notes on them."
            ),
        ]
        | UnsetType
    ) = UNSET
    filters: (
        Annotated[
            dict[str, FilterValue],
            Meta(
                description="Fields of dataset spans, attributes too: traces with one span that has them all."
            ),
        ]
        | UnsetType
    ) = UNSET
    fields: TraceColumnsArgument | UnsetType = UNSET


class GetTrace(Arguments):
    """get_trace."""

    trace_id: TraceIdArgument
    fields: FieldsArgument | UnsetType = UNSET


class GetTraceExtended(GetTrace):
    """get_trace with what extends the specification."""

    fields: SpanColumnsArgument | UnsetType = UNSET  # type: ignore[assignment] # takes more


class ListSpans(Arguments):
    """list_spans."""

    trace_id: TraceIdArgument | UnsetType = UNSET
    call_site_id: CallSiteArgument | UnsetType = UNSET
    kind: KindArgument | UnsetType = UNSET
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
    q: (
        Annotated[
            str,
            Meta(max_length=Q_MAX, description="A part of the name, a preview or an error."),
        ]
        | UnsetType
    ) = UNSET
    mode: ModeArgument | UnsetType = UNSET
    fields: FieldsArgument | UnsetType = UNSET
    limit: LimitArgument | UnsetType = UNSET
    cursor: CursorArgument | UnsetType = UNSET


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
    filters: FiltersArgument | UnsetType = UNSET
    fields: SpanColumnsArgument | UnsetType = UNSET  # type: ignore[assignment] # takes more


class GetSpan(Arguments):
    """get_span."""

    trace_id: TraceIdArgument
    span_id: SpanIdArgument


class ListSessions(Arguments):
    """list_sessions."""

    limit: LimitArgument | UnsetType = UNSET
    cursor: CursorArgument | UnsetType = UNSET


class GetSession(Arguments):
    """get_session."""

    id: Annotated[str, Meta(description="Id of a session, as list_sessions or a span shows it.")]


class DescribeDataset(Arguments):
    """describe_dataset."""

    dataset: Annotated[DatasetName, Meta(description="Only this one.")] | UnsetType = UNSET


class QueryCount(Arguments):
    """query_count."""

    dataset: DatasetName
    range: HalfOpenArgument | UnsetType = UNSET
    filters: FiltersArgument | UnsetType = UNSET


class QueryCountExtended(QueryCount):
    """query_count with what extends the specification."""

    by: ByArgument | UnsetType = UNSET
    measure: MeasureArgument | UnsetType = UNSET


class QueryTimeseries(Arguments):
    """query_timeseries."""

    dataset: DatasetName
    interval: Literal["hour", "day", "week", "month"]
    range: Annotated[
        BothBounds,
        Meta(description="ISO 8601 instants [from, to) on the dataset's time column; both needed."),
    ]
    filters: FiltersArgument | UnsetType = UNSET


class QueryTimeseriesExtended(QueryTimeseries):
    """query_timeseries with what extends the specification."""

    interval: Literal["minute", "hour", "day", "week", "month"]  # type: ignore[assignment] # takes more
    by: ByArgument | UnsetType = UNSET
    measure: MeasureArgument | UnsetType = UNSET
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
    range: HalfOpenArgument | UnsetType = UNSET
    filters: FiltersArgument | UnsetType = UNSET
    top_n: Annotated[int, Meta(description="Values shown: 20 unless told, at most 100.")] | UnsetType = UNSET


class QueryFacetsExtended(QueryFacets):
    """query_facets with what extends the specification."""

    by: ByArgument | UnsetType = UNSET
    measure: MeasureArgument | UnsetType = UNSET
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
    q: QArgument | UnsetType = UNSET
    mode: ModeArgument | UnsetType = UNSET
    range: HalfOpenArgument | UnsetType = UNSET
    filters: FiltersArgument | UnsetType = UNSET
    limit: LongLimitArgument | UnsetType = UNSET
    cursor: CursorArgument | UnsetType = UNSET


class QuerySearchExtended(QuerySearch):
    """query_search with what extends the specification."""

    by: ByArgument | UnsetType = UNSET


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
