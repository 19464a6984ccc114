"""The page of one trace: where its time, its money and its errors went. One page, four views.

The address is the state: `view` is timeline, tree, conversation or graph, `span` what the panel shows,
`explain` which number is taken apart, `in` the list that one came from. The columns of the spans are a
document of their own, which the modules draw; without them the first spans are a table.
"""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import parse_qsl

import trio

from protocol.refusals import Refusal, Refused
from protocol.storage import Slow
from svc.domain.traces.agent_graph import agent_graph
from svc.store.feedback.sets import SetStore
from svc.store.reads.one_trace.skeleton import SkeletonReads
from svc.store.reads.one_trace.trace_graph import TraceGraphReads
from svc.store.reads.one_trace.trace_kin import TraceKin, TraceNeighbours
from svc.store.reads.one_trace.trace_marks import TraceMarkReads
from svc.store.reads.one_trace.trace_numbers import TraceNumbers
from svc.store.reads.traces.spans import SpanReads
from svc.store.reads.traces.traces import TraceReads
from svc.store.retention.sweep import read_override
from svc.web.feedback.feedback_view import of_trace, rows_of
from svc.web.feedback.sets import IN, SetStep, step_of
from svc.web.shell.aged_out import aged_out
from svc.web.shell.filters import read_filters
from svc.web.shell.page import Go, Html, PageRoute, Visit
from svc.web.shell.ranges import TimeRange
from svc.web.shell.render import packers, query
from svc.web.traces.graph_view import GraphView, graph_view
from svc.web.traces.one_trace import TRACE, OpenedTrace, explained, headline, opened, talk
from svc.web.traces.trace_compare import comparison
from svc.web.traces.trace_span import panel_context

VIEWS: Final = ("conversation", "graph", "timeline", "tree")


async def trace(visit: Visit) -> Html | Go:
    """The page."""
    try:
        opened_trace = await opened(visit)
    except Refused:
        return await _missing(visit)
    view = visit.query.get("view", "timeline")
    context = await _context(visit, opened_trace)
    context |= {"view": view if view in VIEWS else "timeline", "talk": None, "spans": (), "opening": None}
    context["comparison"] = None
    if visit.query.get("against"):
        compared = await comparison(visit, opened_trace)
        if isinstance(compared, Go):
            return compared
        context["comparison"] = compared
    elif context["view"] == "conversation":
        context["talk"] = await talk(visit, opened_trace)
    elif context["view"] == "graph":
        context["drawing"] = await _graph(visit, opened_trace)
    else:
        reads = TraceReads(visit.means.history, SpanReads(visit.means.history))
        document = await reads.one(visit.project.id, opened_trace.trace_id, payload=False)
        context["spans"] = document["spans"] if document else ()
        if "span" not in visit.query:
            context["opening"] = await SkeletonReads(visit.means.history).opening_span(
                visit.project.id, opened_trace.trace_id, opened_trace.head
            )
    if number := visit.query.get("explain"):
        told_of = await explained(visit, opened_trace, number)
        context |= {} if isinstance(told_of, Refusal) else told_of
    context |= await _around(visit, opened_trace)
    span_id = visit.query.get("span") or context["opening"]
    talks = context["view"] == "conversation"
    context |= await _judged(visit, opened_trace, context["step"], span_id, talks=talks)
    return Html("traces/trace", context)


async def _judged(
    visit: Visit, opened_trace: OpenedTrace, step: SetStep | None, span_id: str | None, *, talks: bool
) -> dict[str, Any]:
    """What was thought of the trace, and the panel of a span with what was thought of that."""
    rows = await rows_of(visit, opened_trace.trace_id)
    panel: dict[str, Any] | Refusal | None = None
    entry = None if step is None else step.entry
    # Whoever reviews a span judges that, not the trace around it.
    by_span = entry is not None and entry.span_id is not None
    if span_id:
        reviewed = entry is not None and (entry.span_id or b"").hex() == span_id.lower()
        panel = await panel_context(visit, opened_trace, span_id, rows, reviewed=reviewed)
    feedback = of_trace(
        visit,
        opened_trace.trace_id,
        rows,
        keyed=talks and not by_span,
        noted=not by_span,
        blind=step is not None and not by_span,
    )
    return {"panel": None if isinstance(panel, Refusal) else panel, "feedback": feedback}


async def _graph(visit: Visit, opened_trace: OpenedTrace) -> GraphView:
    reads = TraceGraphReads(visit.means.history)
    spans, truncated = await reads.spans(visit.project.id, opened_trace.trace_id, opened_trace.head)
    # Twenty thousand spans take a while to lay out.
    graph = await trio.to_thread.run_sync(agent_graph, spans, limiter=packers)
    return graph_view(graph, truncated=truncated)


async def _missing(visit: Visit) -> Html:
    """The page of a trace that is not there, which says why that may be."""
    override = await visit.means.database.run(
        lambda connection: read_override(connection, visit.project.id), readonly=True
    )
    id_text, terms = visit.call.path["traceId"][:200], override.over(visit.means.terms)
    return Html("traces/trace_missing", {"named": id_text, "days": terms.traces}, status=404)


async def _context(visit: Visit, opened_trace: OpenedTrace) -> dict[str, Any]:
    numbers = TraceNumbers(visit.means.history)
    return {
        "found": opened_trace,
        "trace": opened_trace.fields,
        "head": opened_trace.head,
        "aged_out": await aged_out(visit, [opened_trace.head.payload_available]),
        "models": await numbers.models(visit.project.id, opened_trace.trace_id, opened_trace.head),
        "headline": headline(opened_trace.fields, opened_trace.head),
        "marks": await TraceMarkReads(visit.means.history).of(
            visit.project.id, opened_trace.trace_id, opened_trace.head
        ),
        "here": opened_trace.link,
        "span_id": visit.query.get("span", ""),
        "number": "",
    }


async def top(visit: Visit) -> Html:
    """What stands above the spans, for a page that stays while the trace grows."""
    return Html("traces/trace_head", await _context(visit, await opened(visit)), part=True)


async def _around(visit: Visit, opened_trace: OpenedTrace) -> dict[str, Any]:
    """The list that one came from, or the set, and the addresses of the traces beside this one in it."""
    came_from = visit.query.get("in", "")
    set_id = came_from.removeprefix(IN) if came_from.startswith(IN) else None
    step = None if set_id is None else await step_of(visit, set_id, opened_trace.trace_id)
    sets = await SetStore(visit.means.database).list(visit.project.id) if visit.manages else ()
    if step is not None:
        listed = f"{visit.base}/sets/{step.set.id}"
        return {"step": step, "sets": sets, "listed": listed, "newer": step.before, "older": step.after}
    kin = await _neighbours(visit, opened_trace)
    beside = [
        None if trace_id is None else query(f"{visit.base}/traces/{trace_id}", in_=came_from)
        for trace_id in (kin.newer, kin.older)
    ]
    listed = f"{visit.base}/traces" + (f"?{came_from}" if came_from else "")
    return {"step": None, "sets": sets, "listed": listed, "newer": beside[0], "older": beside[1]}


async def _neighbours(visit: Visit, opened_trace: OpenedTrace) -> TraceNeighbours:
    """The traces beside this one in the list that the address names."""
    if "in" not in visit.query:
        return TraceNeighbours(None, None)
    try:
        parameters = dict(parse_qsl(visit.query["in"], max_num_fields=20))
        trace_filter = read_filters(parameters.get("q", "")).over(TimeRange.of(parameters, visit.means.now()))
        return await TraceKin(visit.means.history).neighbours(
            visit.project.id, opened_trace.head, trace_filter
        )
    except (Refused, ValueError, Slow):
        # A list that cannot be read, or takes too long, has no neighbours; the trace stands.
        return TraceNeighbours(None, None)


PAGES: Final = (
    PageRoute("GET", TRACE, "ORG_VIEW", trace),
    PageRoute("GET", TRACE + "/top", "ORG_VIEW", top),
)
