"""One call told by two instrumentations, each in a trace of its own.

Owns: `mark_twins`. The store calls it for what it writes together; the roll-up leaves out what is marked, and
so does the deduplication of tool calls. Within one trace these find such calls themselves.
"""

from __future__ import annotations

from collections.abc import Iterable

from svc.domain.rollup import by_start, reports_usage
from svc.domain.span import SpanRow


def mark_twins(rows: Iterable[SpanRow]) -> None:
    """Mark the calls of models and tools that a second instrumentation tells in a trace of its own.

    The rows are those of one project that are written together, as an exporter sends them. Of spans of
    several traces with one response id that report usage, and of tools' spans with one name and id of the
    call, the first to start counts; those that overlap it in time and bear another name are its twins. Equal
    names are two calls, whatever a gateway or a stand-in gives as their id.
    """
    # What comes once, as nearly all does, costs no list and no look at its usage.
    alone: dict[str | tuple[str, str], SpanRow] = {}
    told: dict[str | tuple[str, str], list[SpanRow]] = {}
    for row in rows:
        key: str | tuple[str, str] | None = row.response_id
        if row.kind in ("tool", "mcp") and row.tool_calls and (key is None or not reports_usage(row)):
            own = row.tool_calls[0]
            key = None if own.call_id is None else (own.name, own.call_id)
        if key is not None:
            earlier = alone.setdefault(key, row)
            if earlier is not row:
                told.setdefault(key, [earlier]).append(row)
    for key, those in told.items():
        telling = [row for row in those if type(key) is tuple or reports_usage(row)]
        telling.sort(key=by_start)
        for row in telling[1:]:
            first = telling[0]
            apart = row.trace_id != first.trace_id and row.name != first.name
            if apart and row.started_at <= (first.ended_at or first.started_at):
                row.mark("twin")
