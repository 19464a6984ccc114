"""One call told by two instrumentations, each in a trace of its own.

Owns `mark_twins`. The store calls it for what it writes together; the roll-up leaves out what is marked.
Within one trace the roll-up finds such calls itself.
"""

from __future__ import annotations

from collections.abc import Iterable

from svc.domain.rollup import RollupSpan, by_start, reports_usage


def mark_twins(rows: Iterable[RollupSpan]) -> None:
    """Mark the usage of calls that a second instrumentation tells in a trace of its own.

    The rows are those of one project that are written together, as an exporter sends them. Of spans of
    several traces with one response id, the first to start counts; those that overlap it in time and bear
    another name are its twins. Equal names are two calls, whatever a gateway or a stand-in gives as their id.
    """
    by_response: dict[str, list[RollupSpan]] = {}
    for row in rows:
        if row.response_id is not None and reports_usage(row):
            by_response.setdefault(row.response_id, []).append(row)
    for told in by_response.values():
        if len(told) > 1:
            first, *others = sorted(told, key=by_start)
            for row in others:
                apart = row.trace_id != first.trace_id and row.name != first.name
                if apart and row.started_at <= (first.ended_at or first.started_at):
                    row.usage_repeats = "twin"
