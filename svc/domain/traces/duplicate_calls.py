"""One call told by two instrumentations, each in a trace of its own.

Owns: `mark_duplicate_calls`. The store calls it for what it writes together; the roll-up leaves out what is
marked, and so does the deduplication of tool calls. Within one trace these find such calls themselves.
"""

from __future__ import annotations

from collections.abc import Iterable

from svc.domain.spans.span import SpanRow
from svc.domain.traces.rollup import by_start, reports_usage


def mark_duplicate_calls(rows: Iterable[SpanRow]) -> None:
    """Mark the calls of models and tools that a second instrumentation tells in a trace of its own.

    The rows are those of one project that are written together, as an exporter sends them. Of spans of
    several traces with one response id that report usage, and of tools' spans with one name and id of the
    call, the first to start counts; those that overlap it in time and bear another name are its twins. Equal
    names are two calls, whatever a gateway or a stand-in gives as their id.
    """
    by_id: dict[tuple[str, ...], list[SpanRow]] = {}
    for row in rows:
        if row.response_id is not None and reports_usage(row):
            by_id.setdefault((row.response_id,), []).append(row)
        elif row.kind in ("tool", "mcp") and row.tool_calls:
            own_call = row.tool_calls[0]
            if own_call.call_id is not None:
                by_id.setdefault((own_call.name, own_call.call_id), []).append(row)
    for calls in by_id.values():
        if len(calls) > 1:
            first, *later = sorted(calls, key=by_start)
            for row in later:
                is_foreign = row.trace_id != first.trace_id and row.name != first.name
                if is_foreign and row.started_at <= (first.ended_at or first.started_at):
                    row.mark("twin")
