"""Tool calls that are told more than once, and which telling counts.

Owns: `dedupe_tool_calls`. The trace roller calls it when a trace settles, the writer for what comes in one
batch; the store drops what it names. Never reads attributes, never touches the clock.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from typing import Final, Protocol

import attrs

from svc.domain.spans.span import FIRST_IN_REQUEST, Kind, Repeats, ToolCall
from svc.domain.traces.rollup import Timed, by_start, overlapping, preorder


class CallingSpan(Timed, Protocol):
    """What the deduplication of tool calls needs of a span; `SpanRow` has it."""

    parent_span_id: bytes | None
    kind: Kind
    name: str
    tool_calls: tuple[ToolCall, ...]
    usage_repeats: Repeats | None


@attrs.define(eq=False)
class _Embedded:
    """A tool call inside an answer; its time is that of the span that holds it."""

    span_id: bytes
    started_at: datetime
    ended_at: datetime | None
    call: ToolCall


_TOOLS: Final = ("tool", "mcp")


@attrs.define(eq=False)
class _Told:
    """One call of a tool and the spans that tell it; the first of them counts."""

    name: str
    call_id: str | None
    spans: list[CallingSpan]
    #: The names of the spans.
    labels: set[str] = attrs.field(factory=set)


def dedupe_tool_calls(rows: Sequence[CallingSpan]) -> frozenset[tuple[bytes, int]]:
    """The tool calls, as span id and index, that another span of the trace tells.

    Of a tool's spans that tell one call the outermost that failed counts, else the one with an id, else the
    outermost (see `_told_by_spans`). A tool's span tells every call inside an answer with its id. Where
    either has no id, one span tells one call of its name, in order of time. Answers that overlap in time and
    hold a call of the same id tell it once. What a request holds repeats a call of the same id.
    """
    if sum(len(row.tool_calls) for row in rows) < 2 and not any(row.usage_repeats == "twin" for row in rows):
        return frozenset()
    ordered = sorted(rows, key=by_start)
    embedded = [
        _Embedded(row.span_id, row.started_at, row.ended_at, call)
        for row in ordered
        if row.kind not in _TOOLS
        for call in row.tool_calls
    ]
    spans = _told_by_spans(ordered)
    repeated = {
        (row.span_id, call.index) for told in spans for row in told.spans[1:] for call in row.tool_calls
    }
    # Told in another trace.
    spans = [told for told in spans if told.spans[0].usage_repeats != "twin"]
    repeated |= {
        (row.span_id, call.index) for row in rows if row.usage_repeats == "twin" for call in row.tool_calls
    }
    told = _told_embedded(spans, embedded)
    return frozenset(repeated | {(e.span_id, e.call.index) for e in told})


def _told_by_spans(ordered: Sequence[CallingSpan]) -> list[_Told]:
    """The calls that tools' spans tell, each with its spans, best first.

    Two instrumentations tell one call by two spans: of one tool, the one inside the other with nothing but
    steps between, with one id or, where either has none, under two names; or beside each other, of one tool
    and id, overlapping. Over MCP one request has a span at the client, one for its message and one at the
    server, under any names.
    """
    tools = [row for row in ordered if row.kind in _TOOLS and row.tool_calls]
    told: list[_Told] = []
    if len({row.tool_calls[0].name for row in tools}) == len(tools):
        return [_Told(row.tool_calls[0].name, row.tool_calls[0].call_id, [row]) for row in tools]
    around = _around(ordered)
    by_span: dict[bytes, _Told] = {}
    by_id: dict[tuple[str, str], _Told] = {}
    # Whoever starts with its child stands before it all the same.
    for row in sorted(tools, key=lambda row: around[row.span_id][0]):
        call = row.tool_calls[0]
        outer = around[row.span_id][1]
        group = None if outer is None else by_span.get(outer)
        if group is None or not _may_be_one(group, row):
            group = None if call.call_id is None else by_id.get((call.name, call.call_id))
            if group is not None and not overlapping(sorted((group.spans[0], row), key=by_start)):
                group = None
        if group is None:
            group = _Told(call.name, call.call_id, [])
            told.append(group)
        if group.call_id is None:
            group.call_id = call.call_id
        group.spans.append(row)
        group.labels.add(row.name)
        by_span[row.span_id] = group
        if group.call_id is not None:
            by_id[group.name, group.call_id] = group
    for group in told:
        group.spans.sort(key=_weight)
    return told


def _weight(row: CallingSpan) -> tuple[bool, bool]:
    call = row.tool_calls[0]
    succeeded = call.status != "error"
    return succeeded, succeeded and call.call_id is None


def _may_be_one(told: _Told, row: CallingSpan) -> bool:
    call = row.tool_calls[0]
    if told.name != call.name:
        return False
    if told.call_id is not None and call.call_id is not None:
        return told.call_id == call.call_id
    # Of one instrumentation it is a tool that calls itself, but client and server name a request alike.
    return row.kind == "mcp" or row.name not in told.labels


def _around(rows: Sequence[CallingSpan]) -> dict[bytes, tuple[int, bytes | None]]:
    """Each span's place, parents first, and the tool's span around it with nothing but steps between."""
    order, parents = preorder(rows)
    around: dict[bytes, tuple[int, bytes | None]] = {}
    for place, i in enumerate(order):
        outer: bytes | None = None
        if parents[i] >= 0:
            parent = rows[parents[i]]
            if parent.kind in _TOOLS:
                outer = parent.span_id
            elif parent.kind == "step":
                outer = around[parent.span_id][1]
        around[rows[i].span_id] = place, outer
    return around


def _told_embedded(spans: Sequence[_Told], embedded: Sequence[_Embedded]) -> list[_Embedded]:
    ids = {call.call_id for call in spans if call.call_id is not None}
    told = [e for e in embedded if e.call.call_id in ids]
    told_ids = {e.call.call_id for e in told}
    rest = [e for e in embedded if e.call.call_id not in ids]
    by_id: defaultdict[str, list[_Embedded]] = defaultdict(list)
    for e in rest:
        if e.call.call_id is not None:
            by_id[e.call.call_id].append(e)
    again = [e for group in by_id.values() for e in overlapping(group)]
    # Once more in what a model was given.
    again += [
        e
        for group in by_id.values()
        for e in group[1:]
        if e.call.index >= FIRST_IN_REQUEST and e not in again
    ]
    told += again
    twice = {id(e) for e in again}
    # Each name keeps the spans that no id has matched yet: those with an id and those without.
    unmatched: defaultdict[tuple[str, bool], int] = defaultdict(int)
    for call in spans:
        if call.call_id is None or call.call_id not in told_ids:
            unmatched[call.name, call.call_id is not None] += 1
    for e in rest:
        if id(e) in twice:
            continue
        for span_has_id in (False, True):
            if span_has_id and e.call.call_id is not None:
                continue
            if unmatched[e.call.name, span_has_id]:
                unmatched[e.call.name, span_has_id] -= 1
                told.append(e)
                break
    return told
