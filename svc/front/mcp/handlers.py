"""What the nineteen tools do: arguments in, an answer fit for JSON out.

Each reads one project and writes nothing. A fault of meaning is a `ToolError`, whose text says what to call
next; the stores' `Refused` and `Outage` pass through and are told by the caller.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final, TypeVar
from uuid import UUID

from msgspec import UNSET, UnsetType

from protocol.release import release
from protocol.rest.query import (
    SEARCH_LIMIT_DEFAULT,
    SEARCH_LIMIT_MAX,
    TOP_N_DEFAULT,
    TOP_N_MAX,
    instant,
)
from svc.domain.datasets import DATASETS, METRIC_ROLLUPS, SPANS, Dataset
from svc.domain.detect.table import DETECTORS, lacking
from svc.domain.values import identifier
from svc.front.mcp import arguments as a
from svc.front.mcp.cut import with_places
from svc.front.mcp.reads import Reads
from svc.front.mcp.redaction import redacted
from svc.store.detection.taxonomy import ModeFilter
from svc.store.reads.query import Question, ask
from svc.store.reads.spans import SpanFilter
from svc.store.reads.traces import TraceFilter

PAGE_DEFAULT: Final = 50
PAGE_MAX: Final = 100
PAYLOAD_WINDOW: Final = timedelta(hours=24)
#: Call sites whose spans are counted.
COUNTED_SITES: Final = 10_000
PIPELINE_VERSION: Final = release()

_ID: Final = {16: re.compile(r"[0-9a-fA-F]{32}", re.ASCII), 8: re.compile(r"[0-9a-fA-F]{16}", re.ASCII)}

T = TypeVar("T")
Answer = dict[str, Any]


class ToolError(Exception):
    """The tool cannot answer this; the text is for the agent that asked."""


async def get_project(reads: Reads, project_id: int, _asked: a.GetProject) -> Answer:
    """The bound project."""
    project = await reads.projects.one(project_id, reads.now())
    if project is None:
        raise ToolError("the project of this key was deleted")
    spans = await reads.queries.count(_everything(project_id, SPANS))
    watched = {name: project.pop(name) for name in ("call_sites_swept", "traces_last_day")}
    settings = await reads.detectors.of(project_id)
    enabled = [
        name
        for name, detector in DETECTORS.items()
        if settings[name].enabled and lacking(detector, reads.installed) is None
    ]
    return {
        **project,
        "pipeline_version": PIPELINE_VERSION,
        "counts": {"spans": spans["count"], **project["counts"]},
        "judge_runtime": await reads.runs.judge_runtime(project_id, reads.ambient),
        "watching": {"enabled_classifiers": enabled, **watched},
        "first_look": await reads.first_look.brief(project_id, reads.now()),
    }


async def list_call_sites(reads: Reads, project_id: int, _asked: a.ListCallSites) -> Answer:
    """The call sites, the busiest first."""
    facets = await reads.queries.facets(_everything(project_id, SPANS), "call_site_id", COUNTED_SITES)
    counts = {facet["value"]: facet["count"] for facet in facets["facets"]}
    sites, left_out = await reads.call_sites.page(project_id, reads.now(), list(counts))
    return {
        "call_sites": [{**site, "sample_count": counts.get(site["id"], 0)} for site in sites],
        "call_sites_truncated": left_out > 0,
        "call_sites_left_out": left_out,
    }


async def list_failure_modes(reads: Reads, project_id: int, asked: a.ListFailureModes) -> Answer:
    """The taxonomy."""
    mode_filter = ModeFilter(**{name: _given(getattr(asked, name)) for name in type(asked).__struct_fields__})
    return {"failure_modes": await reads.taxonomy.failure_modes(project_id, mode_filter)}


async def list_cases(reads: Reads, project_id: int, asked: a.ListCases) -> Answer:
    """A page of cases."""
    return redacted(
        await reads.cases.page(
            project_id,
            state=_given(asked.state) or "open",
            detector=_given(asked.detector),
            call_site_id=_given(asked.call_site_id),
            limit=_limit(asked.limit),
            cursor=_given(asked.cursor),
            now=reads.now(),
        )
    )


async def get_case(reads: Reads, project_id: int, asked: a.GetCase) -> Answer:
    """One case, without its ruling."""
    case = await reads.cases.one(project_id, asked.id, reads.now())
    if case is None:
        raise ToolError(f"there is no case {asked.id[:80]!r} in this project; list_cases shows them")
    return redacted(case)


async def list_findings(reads: Reads, project_id: int, asked: a.ListFindings) -> Answer:
    """Headlines, without the triage ruling."""
    return redacted(
        await reads.findings.list(
            project_id,
            status=_given(asked.status),
            call_site_id=_given(asked.call_site_id),
            detector=_given(asked.detector),
            confirmed_only=asked.include != "all",
        )
    )


async def get_finding(reads: Reads, project_id: int, asked: a.GetFinding) -> Answer:
    """One finding, without the triage ruling."""
    finding_id = _uuid(asked.id)
    finding = None if finding_id is None else await reads.findings.one(project_id, finding_id)
    if finding is None:
        raise _no_finding(asked.id)
    return redacted(finding)


async def get_finding_evidence(reads: Reads, project_id: int, asked: a.GetFindingEvidence) -> Answer:
    """A page of references."""
    finding_id = _uuid(asked.finding_id)
    found = None
    if finding_id is not None:
        found = await reads.evidence.page(
            project_id,
            finding_id,
            role=_given(asked.role),
            count_only=asked.count_only is True,
            limit=_long_limit(asked.limit),
            cursor=_given(asked.cursor),
        )
    if found is None:
        raise _no_finding(asked.finding_id)
    return found


async def list_traces(reads: Reads, project_id: int, asked: a.ListTraces) -> Answer:
    """A page of traces."""
    low, high = _bounds(asked.range)
    return await reads.traces.page(
        project_id,
        TraceFilter(
            model=_given(asked.model),
            kind=_given(asked.kind),
            call_site_id=_identifier(asked.call_site_id),
            status=_given(asked.status),
            low=low,
            high=high,
            q=_given(asked.q),
        ),
        limit=_limit(asked.limit),
        cursor=_given(asked.cursor),
    )


async def get_trace(reads: Reads, project_id: int, asked: a.GetTrace) -> Answer:
    """One trace with its spans."""
    trace_id = _hex(asked.trace_id, 16)
    payload = bool(_given(asked.fields))
    trace = (
        None
        if trace_id is None
        else await reads.traces.one(
            project_id, trace_id, payload=payload, room_bytes=reads.payload_bytes, opening=reads.opening
        )
    )
    if trace is None:
        raise _no_trace(asked.trace_id)
    await with_places(trace["spans"], partial(reads.projects.slugs, project_id))
    return trace


async def list_spans(reads: Reads, project_id: int, asked: a.ListSpans) -> Answer:
    """A page of spans, with payloads when the page is narrow enough."""
    low, high = _bounds(asked.range)
    payload = bool(_given(asked.fields))
    narrow = low is not None and high is not None and high - low <= PAYLOAD_WINDOW
    if payload and asked.trace_id is UNSET and not narrow:
        raise ToolError(
            'fields ["payload"] on list_spans needs trace_id, or a range with both from and to at most'
            " 24 hours apart; add one, or read one span with get_span"
        )
    trace_id = None
    if asked.trace_id is not UNSET:
        trace_id = _hex(asked.trace_id, 16)
        if trace_id is None:
            raise _no_trace(asked.trace_id)
    page = await reads.spans.page(
        project_id,
        SpanFilter(
            trace_id=trace_id,
            call_site_id=_identifier(asked.call_site_id),
            kind=_given(asked.kind),
            name=_given(asked.name),
            status=_given(asked.status),
            model_id=_given(asked.model_id),
            session_id=_identifier(asked.session_id),
            low=low,
            high=high,
            q=_given(asked.q),
        ),
        payload=payload,
        limit=_limit(asked.limit),
        cursor=_given(asked.cursor),
        room_bytes=reads.payload_bytes,
        opening=reads.opening,
    )
    await with_places(page["spans"], partial(reads.projects.slugs, project_id))
    return page


async def get_span(reads: Reads, project_id: int, asked: a.GetSpan) -> Answer:
    """One span with everything it said."""
    trace_id, span_id = _hex(asked.trace_id, 16), _hex(asked.span_id, 8)
    span = None
    if trace_id is not None and span_id is not None:
        span = await reads.spans.one(
            project_id, trace_id, span_id, room_bytes=reads.payload_bytes, opening=reads.opening
        )
    if span is None:
        raise ToolError(
            f"there is no span {asked.span_id[:80]!r} in trace {asked.trace_id[:80]!r} of this project;"
            " get_trace and list_spans show both ids"
        )
    await with_places([span], partial(reads.projects.slugs, project_id))
    return span


async def list_sessions(reads: Reads, project_id: int, asked: a.ListSessions) -> Answer:
    """A page of sessions."""
    return await reads.sessions.page(project_id, limit=_limit(asked.limit), cursor=_given(asked.cursor))


async def get_session(reads: Reads, project_id: int, asked: a.GetSession) -> Answer:
    """One session with totals and traces."""
    session = await reads.sessions.one(project_id, identifier(asked.id))
    if session is None:
        raise ToolError(f"there is no session {asked.id[:80]!r} in this project; list_sessions shows them")
    return session


async def describe_dataset(_reads: Reads, _project_id: int, asked: a.DescribeDataset) -> Answer:
    """What can be asked of the datasets."""
    wanted = list(DATASETS.values()) if asked.dataset is UNSET else [DATASETS[asked.dataset]]
    return {"datasets": [_described(dataset) for dataset in wanted]}


async def query_count(reads: Reads, project_id: int, asked: a.QueryCount) -> Answer:
    """A count."""
    return await reads.queries.count(_question(project_id, asked))


async def query_timeseries(reads: Reads, project_id: int, asked: a.QueryTimeseries) -> Answer:
    """Counts by interval."""
    return await reads.queries.timeseries(_question(project_id, asked), asked.interval)


async def query_facets(reads: Reads, project_id: int, asked: a.QueryFacets) -> Answer:
    """Counts by value."""
    top_n = _page(asked.top_n, TOP_N_DEFAULT, TOP_N_MAX)
    return await reads.queries.facets(_question(project_id, asked), asked.field, top_n)


async def query_search(reads: Reads, project_id: int, asked: a.QuerySearch) -> Answer:
    """A page of rows."""
    return await reads.queries.search(
        _question(project_id, asked),
        _given(asked.q),
        _given(asked.mode),
        _long_limit(asked.limit),
        _given(asked.cursor),
    )


def _given(value: T | UnsetType) -> T | None:
    return None if isinstance(value, UnsetType) else value


def _identifier(value: str | UnsetType) -> str | None:
    """An identifier as it is stored: whoever has a long one from elsewhere has it whole."""
    return None if isinstance(value, UnsetType) else identifier(value)


def _page(wanted: int | UnsetType, default: int, most: int) -> int:
    """A page size: below 1 becomes the default, above the most is clamped (contract §5)."""
    return default if isinstance(wanted, UnsetType) or wanted < 1 else min(wanted, most)


def _limit(wanted: int | UnsetType) -> int:
    return _page(wanted, PAGE_DEFAULT, PAGE_MAX)


def _long_limit(wanted: int | UnsetType) -> int:
    return _page(wanted, SEARCH_LIMIT_DEFAULT, SEARCH_LIMIT_MAX)


def _bounds(
    between: a.Between | a.BothBounds | UnsetType,
) -> tuple[datetime | None, datetime | None]:
    """The two bounds; an instant that cannot be read raises `Refused`."""
    if isinstance(between, UnsetType):
        return None, None
    low = None if isinstance(between.from_, UnsetType) else instant(between.from_, "range.from")
    high = None if isinstance(between.to, UnsetType) else instant(between.to, "range.to")
    if low is not None and high is not None and low > high:
        raise ToolError("'range.from' is after 'range.to'; swap them")
    return low, high


def _question(
    project_id: int, asked: a.QueryCount | a.QueryTimeseries | a.QueryFacets | a.QuerySearch
) -> Question:
    return ask(project_id, asked.dataset, _bounds(asked.range), _given(asked.filters))


def _everything(project_id: int, dataset: Dataset) -> Question:
    return ask(project_id, dataset.name, (None, None), None)


def _hex(text: str, length: int) -> bytes | None:
    """An id as bytes, or None when it cannot be one."""
    return bytes.fromhex(text) if _ID[length].fullmatch(text) else None


def _uuid(text: str) -> UUID | None:
    try:
        return UUID(text.strip())
    except ValueError:
        return None


def _no_trace(trace_id: str) -> ToolError:
    return ToolError(
        f"there is no trace {trace_id[:80]!r} in this project; list_traces shows them (32"
        f" hexadecimal characters)"
    )


def _no_finding(finding_id: str) -> ToolError:
    return ToolError(f"there is no finding {finding_id[:80]!r} in this project; list_findings shows them")


def _described(dataset: Dataset) -> Answer:
    # Spans have a tool of their own that searches them.
    search = "list_spans" if dataset is SPANS else "query_search" if dataset.searched else None
    told: Answer = {
        "name": dataset.name,
        "time_column": dataset.time_column,
        "measure": "sum of value" if dataset.measure == "sum" else "count",
        "facetable_fields": [field.name for field in dataset.fields if field.facetable],
        "filterable_fields": [field.name for field in dataset.fields],
        "searchable": search == "query_search",
        "search_with": search,
    }
    if dataset is METRIC_ROLLUPS:
        told["note"] = "filter granularity (hour or day), or both grains are summed together"
    return told
