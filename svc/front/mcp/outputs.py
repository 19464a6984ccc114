"""What the tools answer, one class each: the output schemas that `tools/list` shows.

`svc.front.mcp.tools` takes a schema from here for each tool. Clients validate every answer against it and
drop one that does not fit, so a class says what holds of every row: what may be missing or null says so,
objects are open, and lists of values are never closed. Where the API answers the same, its class is used;
what no caller of MCP may see is left out of it, as it is left out of the answers.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from msgspec import UNSET, Struct, UnsetType

from protocol.rest.answers import Buckets, Compared, Counted, FoundPage, Ranked
from protocol.rest.cases import CasePage, CaseWhole, EvidencePage, FindingList, FindingWhole
from svc.front.mcp.columns import IDS
from svc.front.mcp.redaction import HIDDEN
from svc.front.mcp.schemas import schema_of

#: What a schema says beyond types: none of it binds, and all of it is read by models that pay for it.
_SAID: Final = frozenset({"description", "format", "default"})


class PackShown(Struct):
    """A pack that the project engages."""

    id: str
    name: str | None
    version: str | None


class Watching(Struct):
    """What watches the project."""

    enabled_classifiers: list[str]
    call_sites_swept: int
    traces_last_day: int


class ProjectAnswer(Struct, kw_only=True):
    """get_project."""

    id: int
    slug: str
    name: str
    org: str
    pipeline_version: str
    counts: dict[str, int]
    packs: list[PackShown]
    judge_runtime: dict[str, Any] | None
    watching: Watching
    first_look: dict[str, Any] | UnsetType | None = UNSET


class SiteObserved(Struct):
    """What the newest calls of a site were like."""

    error_rate: float | None
    p50_latency_ms: float | None
    p95_latency_ms: float | None
    cost_per_call: float | None


class CallSiteRow(Struct, kw_only=True):
    """A call site."""

    id: str
    intent: str | None
    shape: str | None
    model: str | None
    provider: str | None
    tagged: bool
    sample_count: int
    observed: SiteObserved
    output_schema: Any | UnsetType = UNSET


class CallSitesAnswer(Struct):
    """list_call_sites."""

    call_sites: list[CallSiteRow]
    call_sites_truncated: bool
    call_sites_left_out: int


class FailureModeRow(Struct):
    """A known way to fail."""

    id: str
    name: str | None
    description: str | None
    severity: str | None
    scope: str | None
    call_site_id: str | None
    chain_id: str | None
    layer: str | None
    pack_id: str | None
    compliance_tags: list[str] | None


class FailureModesAnswer(Struct):
    """list_failure_modes."""

    failure_modes: list[FailureModeRow]


class TraceRow(Struct, kw_only=True):
    """A trace as lists show it."""

    trace_id: str
    name: str | None
    started_at: str | None
    ended_at: str | None
    latency_ms: float | None
    session_id: str | None
    user_id: str | None
    call_site_id: str | None
    span_count: int
    error_count: int
    status: str | None
    input_tokens: int | None
    output_tokens: int | None
    cache_read_tokens: int | None
    cache_write_tokens: int | None
    reasoning_tokens: int | None
    total_tokens: int | None
    input_cost: float | None
    output_cost: float | None
    total_cost: float | None
    unpriced_spans: int | None
    is_settled: bool
    input_preview: str | None
    output_preview: str | None
    set_entries: list[dict[str, Any]] | UnsetType = UNSET


class TracesAnswer(Struct, kw_only=True):
    """list_traces."""

    traces: list[TraceRow]
    next_cursor: str | None
    notes: list[str] | UnsetType = UNSET


class SpanAnswer(Struct, kw_only=True):
    """A span: with previews, or with all it said in place of them."""

    trace_id: str
    span_id: str
    parent_span_id: str | None
    kind: str
    name: str
    status: str
    error_type: str | None
    error_message: str | UnsetType | None = UNSET
    call_site_id: str | None
    session_id: str | None
    user_id: str | None
    provided_model_name: str | None
    model_id: str | None
    provider: str | None
    started_at: str
    ended_at: str | None
    created_at: str
    latency_ms: float | None
    total_tokens: int | None
    total_cost: float | None
    cost_source: str | None
    payload_available: bool
    input_preview: str | UnsetType | None = UNSET
    output_preview: str | UnsetType | None = UNSET
    agent_path: str | UnsetType = UNSET
    payload_truncated: Any | UnsetType = UNSET


class TraceAnswer(TraceRow, kw_only=True):
    """get_trace."""

    spans: list[SpanAnswer]
    spans_truncated: bool


class SpansAnswer(Struct, kw_only=True):
    """list_spans."""

    spans: list[SpanAnswer]
    next_cursor: str | None
    notes: list[str] | UnsetType = UNSET


class SessionRow(Struct):
    """A session, identity only."""

    id: str
    user_id: str | None
    started_at: str
    last_activity_at: str


class SessionsAnswer(Struct):
    """list_sessions."""

    sessions: list[SessionRow]
    next_cursor: str | None


class SessionAnswer(SessionRow, kw_only=True):
    """get_session."""

    trace_count: int
    unsettled_traces: int
    span_count: int
    error_count: int
    total_tokens: int | None
    total_cost: float | None
    unpriced_spans: int | None
    traces: list[TraceRow]
    traces_truncated: bool


class DatasetRow(Struct, kw_only=True):
    """What can be asked of a dataset."""

    name: str
    time_column: str
    measure: str
    facetable_fields: list[str]
    filterable_fields: list[str]
    searchable: bool
    search_with: str | None
    measures: dict[str, str] | UnsetType = UNSET
    times: list[str] | UnsetType = UNSET
    note: str | UnsetType = UNSET


class DatasetsAnswer(Struct):
    """describe_dataset."""

    datasets: list[DatasetRow]


#: Of each tool what it answers.
ANSWERS: Final[dict[str, type[Struct]]] = {
    "get_project": ProjectAnswer,
    "list_call_sites": CallSitesAnswer,
    "list_failure_modes": FailureModesAnswer,
    "list_cases": CasePage,
    "get_case": CaseWhole,
    "list_findings": FindingList,
    "get_finding": FindingWhole,
    "get_finding_evidence": EvidencePage,
    "list_traces": TracesAnswer,
    "get_trace": TraceAnswer,
    "list_spans": SpansAnswer,
    "get_span": SpanAnswer,
    "list_sessions": SessionsAnswer,
    "get_session": SessionAnswer,
    "describe_dataset": DatasetsAnswer,
    "query_count": Counted,
    "query_timeseries": Buckets,
    "query_facets": Ranked,
    "query_search": FoundPage,
    "compare": Compared,
}
#: The rows of which a caller chooses columns, by tool.
_COLUMNED: Final = {"list_traces": "traces", "get_trace": "spans", "list_spans": "spans"}


@cache
def output_schema(tool: str) -> dict[str, Any]:
    """The schema that every answer of a tool fits."""
    schema: dict[str, Any] = _opened(schema_of(ANSWERS[tool]))
    if tool in _COLUMNED:
        rows = schema["properties"][_COLUMNED[tool]]["items"]
        rows["required"] = [name for name in rows["required"] if name in IDS]
    return schema


def _opened(schema: dict[str, Any]) -> dict[str, Any]:
    """A schema without what does not bind, without closed lists of values, and without what is hidden."""
    opened: dict[str, Any] = {}
    for keyword, value in schema.items():
        if keyword in _SAID:
            continue
        if keyword == "enum":
            # Another release may know a further value, which is no reason to drop an answer.
            opened["type"] = _types_of(value)
        elif keyword == "properties":
            opened[keyword] = {name: _opened(below) for name, below in value.items() if name not in HIDDEN}
        elif keyword == "required":
            opened[keyword] = [name for name in value if name not in HIDDEN]
        elif keyword in ("items", "additionalProperties") and isinstance(value, dict):
            opened[keyword] = _opened(value)
        elif keyword == "anyOf":
            opened[keyword] = [_opened(below) for below in value]
        else:
            opened[keyword] = value
    return _joined(opened)


def _types_of(values: list[Any]) -> Any:
    return ["string", "null"] if None in values else "string"


def _joined(schema: dict[str, Any]) -> dict[str, Any]:
    """Alternatives that differ in nothing but their type, as one list of types: half the length."""
    choices = schema.get("anyOf")
    if choices is None or any(choice.keys() != {"type"} for choice in choices):
        return schema
    types: list[str] = []
    for choice in choices:
        types += choice["type"] if isinstance(choice["type"], list) else [choice["type"]]
    return {**{name: value for name, value in schema.items() if name != "anyOf"}, "type": types}
