"""A group of batches before it is written: each span once, and calls with the agents they are told with.

Called by the writer of spans. Reads no database and changes rows in hand alone.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from datetime import datetime

from svc.domain.intake.batches import StoredSpan
from svc.domain.spans.span import SpanRow
from svc.domain.traces.agent_path import say_paths

TraceKey = tuple[int, bytes]
#: A span by its project, its trace and its own id.
Identity = tuple[int, bytes, bytes]


def newest_of_each(rows: Sequence[StoredSpan]) -> list[StoredSpan]:
    """The rows with each identity once: the newest, and of equally new ones the later in the group."""
    newest: dict[Identity, StoredSpan] = {}
    for span in rows:
        identity = (span.project_id, span.row.trace_id, span.row.span_id)
        earlier = newest.get(identity)
        if earlier is None or age(span.row) >= age(earlier.row):
            newest[identity] = span
    return list(newest.values())


def say_agents(spans: Sequence[StoredSpan], silent: Container[int]) -> None:
    """Give calls the path of their agent where both are in the group, but for these projects."""
    by_trace: dict[TraceKey, list[SpanRow]] = {
        (span.project_id, span.row.trace_id): []
        for span in spans
        if span.row.kind == "agent" and span.project_id not in silent
    }
    if by_trace:
        for span in spans:
            if (rows := by_trace.get((span.project_id, span.row.trace_id))) is not None:
                rows.append(span.row)
    for rows in by_trace.values():
        say_paths(rows)


def age(row: SpanRow) -> datetime:
    """What says which of two spans of one identity is newer."""
    return row.ended_at or row.started_at
