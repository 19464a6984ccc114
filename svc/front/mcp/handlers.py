"""What the tools do: arguments in, an answer fit for JSON out.

Each reads one project and writes nothing. A fault of meaning is a `ToolError`, whose text says what to call
next; the stores' `Refused` and `Outage` pass through and are told by the caller.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, Final, get_args
from uuid import UUID

import attrs
from msgspec import UNSET

from protocol.detection import FindingStatus
from protocol.release import release
from svc.domain.detect.detectors.table import DETECTORS, lacking
from svc.domain.feedback.entries import AskedFeedback, WrongFeedback
from svc.domain.queries.datasets import EVENT_TIME, SPANS, Dataset
from svc.domain.spans.values import identifier
from svc.front.mcp import arguments as a
from svc.front.mcp.columns import chosen, narrowed, wants_payload
from svc.front.mcp.cut import with_places
from svc.front.mcp.given import NotInProject, ToolError, bounds, given, given_identifier, limit, long_limit
from svc.front.mcp.reads import Reads
from svc.front.mcp.redaction import redacted
from svc.store.detection.taxonomy import ModeFilter
from svc.store.feedback.sets import TraceSet
from svc.store.reads.questions.nothing_found import TEXT_NOTE, reasons
from svc.store.reads.questions.questions import Question, ask, checked_filters
from svc.store.reads.traces.filtered_spans import FilteredSpans
from svc.store.reads.traces.spans import SpanFilter
from svc.store.reads.traces.trace_filter import of_one_span
from svc.store.reads.traces.traces import TraceFilter
from svc.store.reads.usage.agent_paths import AgentPathReads

PAYLOAD_WINDOW: Final = timedelta(hours=24)
#: Call sites whose spans are counted.
COUNTED_SITES: Final = 10_000
#: Sets that are named where another was asked for.
SETS_NAMED: Final = 20
PIPELINE_VERSION: Final = release()

_ID: Final = {16: re.compile(r"[0-9a-fA-F]{32}", re.ASCII), 8: re.compile(r"[0-9a-fA-F]{16}", re.ASCII)}

Answer = dict[str, Any]


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
    answer = {
        **project,
        "pipeline_version": PIPELINE_VERSION,
        "counts": {"spans": spans.count, **project["counts"]},
        "judge_runtime": await reads.runs.judge_runtime(project_id, reads.ambient),
        "watching": {"enabled_classifiers": enabled, **watched},
    }
    if reads.extensions:
        answer["first_look"] = await reads.first_look.brief(project_id, int(spans.count), reads.now())
    return answer


async def list_call_sites(reads: Reads, project_id: int, _asked: a.ListCallSites) -> Answer:
    """The call sites, the busiest first."""
    facets = await reads.queries.facets(_everything(project_id, SPANS), "call_site_id", COUNTED_SITES)
    counts = {str(facet.value): facet.count for facet in facets.facets if facet.value is not None}
    sites, left_out = await reads.call_sites.page(project_id, reads.now(), list(counts))
    return {
        "call_sites": [{**site, "sample_count": counts.get(site["id"], 0)} for site in sites],
        "call_sites_truncated": left_out > 0,
        "call_sites_left_out": left_out,
    }


async def list_failure_modes(reads: Reads, project_id: int, asked: a.ListFailureModes) -> Answer:
    """The taxonomy."""
    mode_filter = ModeFilter(**{name: given(getattr(asked, name)) for name in type(asked).__struct_fields__})
    return {"failure_modes": await reads.taxonomy.failure_modes(project_id, mode_filter)}


async def list_cases(reads: Reads, project_id: int, asked: a.ListCases) -> Answer:
    """A page of cases."""
    page = await reads.cases.page(
        project_id,
        state=given(asked.state) or "open",
        detector=given(asked.detector),
        call_site_id=given(asked.call_site_id),
        limit=limit(asked.limit),
        cursor=given(asked.cursor),
        now=reads.now(),
    )
    if not page["cases"]:
        _require_known("detector", given(asked.detector), DETECTORS)
    return redacted(page)


async def get_case(reads: Reads, project_id: int, asked: a.GetCase) -> Answer:
    """One case, without its ruling."""
    case = await reads.cases.one(project_id, asked.id, reads.now())
    if case is None:
        raise NotInProject(f"there is no case {asked.id[:80]!r} in this project; list_cases shows them")
    return redacted(case)


async def list_findings(reads: Reads, project_id: int, asked: a.ListFindings) -> Answer:
    """Headlines, without the triage ruling."""
    listed = await reads.findings.list(
        project_id,
        status=given(asked.status),
        call_site_id=given(asked.call_site_id),
        detector=given(asked.detector),
        confirmed_only=asked.include != "all",
    )
    if not listed["findings"] and not listed["withheld"]:
        _require_known("detector", given(asked.detector), DETECTORS)
        _require_known("finding status", given(asked.status), get_args(FindingStatus))
    return redacted(listed)


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
            role=given(asked.role),
            count_only=asked.count_only is True,
            limit=long_limit(asked.limit),
            cursor=given(asked.cursor),
        )
    if found is None:
        raise _no_finding(asked.finding_id)
    return found


async def list_traces(reads: Reads, project_id: int, asked: a.ListTracesExtended) -> Answer:
    """A page of traces, or the largest of a range."""
    low, high = bounds(asked.range)
    columns = chosen(asked.fields)
    trace_filter = TraceFilter(
        model=given(asked.model),
        kind=given(asked.kind),
        call_site_id=given_identifier(asked.call_site_id),
        status=given(asked.status),
        low=low,
        high=high,
        q=given(asked.q),
        failed_spans=given(asked.failed_spans),
        marks=() if asked.mark is UNSET else (asked.mark,),
    )
    if asked.filters is not UNSET:
        trace_filter = attrs.evolve(trace_filter, **of_one_span(asked.filters))
    if asked.feedback is not UNSET:
        trace_filter = attrs.evolve(trace_filter, **_feedback(asked.feedback))
    trace_set = None if asked.set is UNSET else await _set(reads, project_id, asked.set)
    if trace_set is not None:
        trace_filter = attrs.evolve(trace_filter, set_id=trace_set.id)
    if asked.sort is UNSET or asked.sort == "started_at":
        answer = await reads.traces.page(
            project_id, trace_filter, limit=limit(asked.limit), cursor=given(asked.cursor)
        )
    elif low is None:
        raise ToolError(f"sort by {asked.sort} needs a range with from: add one, such as the last seven days")
    else:
        answer = await reads.traces.largest(project_id, trace_filter, asked.sort, limit=limit(asked.limit))
    if trace_set is not None:
        entries: dict[str, list[Answer]] = {}
        for entry in await reads.sets.entries(project_id, trace_set.id):
            span_id = None if entry.span_id is None else entry.span_id.hex()
            entries.setdefault(entry.trace_id.hex(), []).append({"span_id": span_id, "note": entry.note})
        answer["traces"] = [
            {**trace, "set_entries": entries.get(trace["trace_id"], [])} for trace in answer["traces"]
        ]
    if not answer["traces"] and reads.extensions and asked.cursor is UNSET:
        filters = checked_filters(SPANS, {} if asked.filters is UNSET else asked.filters)
        notes = await reasons(reads.queries.database, project_id, SPANS, filters, text=trace_filter.q)
        if notes := [*notes, *answer.get("notes", [])]:
            answer["notes"] = notes
    answer["traces"] = narrowed(answer["traces"], columns)
    return answer


def _feedback(texts: Sequence[str]) -> dict[str, Any]:
    """What is asked of feedback, as fields of a filter."""
    try:
        return {
            "feedback": tuple(AskedFeedback.of(text) for text in texts if not text.startswith("-")),
            "without_feedback": tuple(AskedFeedback.of(text[1:]) for text in texts if text.startswith("-")),
        }
    except WrongFeedback as error:
        raise ToolError(f"{error}; query_facets with field classifier_id counts the names") from None


async def _set(reads: Reads, project_id: int, name: str) -> TraceSet:
    """A set by its name or id."""
    sets = await reads.sets.list(project_id)
    for trace_set in sets:
        if name in (trace_set.name, str(trace_set.id)):
            return trace_set
    names = ", ".join(repr(trace_set.name) for trace_set in sets[:SETS_NAMED])
    raise ToolError(
        f"there is no set {name[:100]!r} in this project; "
        + (f"there are {names}" if names else "it has no sets")
    )


async def get_trace(reads: Reads, project_id: int, asked: a.GetTraceExtended) -> Answer:
    """One trace with its spans."""
    trace_id = _hex(asked.trace_id, 16)
    columns, payload = chosen(asked.fields), wants_payload(asked.fields)
    trace = (
        None
        if trace_id is None
        else await reads.traces.one(
            project_id, trace_id, payload=payload, room_bytes=reads.payload_bytes, opening=reads.opening
        )
    )
    if trace is None:
        raise _no_trace(asked.trace_id)
    await _complete(reads, project_id, trace["spans"])
    trace["spans"] = narrowed(trace["spans"], columns)
    return trace


async def list_spans(reads: Reads, project_id: int, asked: a.ListSpansExtended) -> Answer:
    """A page of spans, with payloads when the page is narrow enough."""
    low, high = bounds(asked.range)
    columns, payload = chosen(asked.fields), wants_payload(asked.fields)
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
    spans = reads.spans if asked.filters is UNSET else FilteredSpans(reads.spans.database, asked.filters)
    page = await spans.page(
        project_id,
        SpanFilter(
            trace_id=trace_id,
            call_site_id=given_identifier(asked.call_site_id),
            kind=given(asked.kind),
            name=given(asked.name),
            status=given(asked.status),
            model_id=given(asked.model_id),
            session_id=given_identifier(asked.session_id),
            low=low,
            high=high,
            q=given(asked.q),
            by_event_time=asked.by == EVENT_TIME,
        ),
        payload=payload,
        limit=limit(asked.limit),
        cursor=given(asked.cursor),
        room_bytes=reads.payload_bytes,
        opening=reads.opening,
    )
    if not page["spans"] and reads.extensions and asked.q is not UNSET and asked.cursor is UNSET:
        page["notes"] = [*page.get("notes", []), TEXT_NOTE]
    await _complete(reads, project_id, page["spans"])
    page["spans"] = narrowed(page["spans"], columns)
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
    await _complete(reads, project_id, [span])
    return span


async def list_sessions(reads: Reads, project_id: int, asked: a.ListSessions) -> Answer:
    """A page of sessions."""
    return await reads.sessions.page(project_id, limit=limit(asked.limit), cursor=given(asked.cursor))


async def get_session(reads: Reads, project_id: int, asked: a.GetSession) -> Answer:
    """One session with totals and traces."""
    session = await reads.sessions.one(project_id, identifier(asked.id))
    if session is None:
        raise ToolError(f"there is no session {asked.id[:80]!r} in this project; list_sessions shows them")
    return session


async def _complete(reads: Reads, project_id: int, spans: Sequence[Answer]) -> None:
    """Add to spans the agents above them, where that is allowed, and where to get what had no room."""
    if reads.extensions:
        await AgentPathReads(reads.spans.database).add_to(project_id, spans)
    await with_places(spans, partial(reads.projects.slugs, project_id))


def _require_known(what: str, name: str | None, names: Collection[str]) -> None:
    """Refuse an unknown name. Asked where nothing was found: an earlier release may have stored others."""
    if name is not None and name not in names:
        raise ToolError(f"there is no {what} {name[:80]!r}; one of: {', '.join(names)}")


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


def _no_trace(trace_id: str) -> NotInProject:
    return NotInProject(
        f"there is no trace {trace_id[:80]!r} in this project; list_traces shows them (32"
        f" hexadecimal characters)"
    )


def _no_finding(finding_id: str) -> ToolError:
    return ToolError(f"there is no finding {finding_id[:80]!r} in this project; list_findings shows them")
