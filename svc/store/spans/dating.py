"""Spans that are dated back: the hours in which they came are over, and counted.

Called by the writer of spans for history that somebody moves in, within its transaction: whatever is counted
by the hour is to be counted anew, or gets what was added. Never decides when a span came.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from svc.domain.traces.rollup import TraceRollup
from svc.store.aggregates.closed_hours import CUBED, mark_dirty
from svc.store.aggregates.rollups import count_late
from svc.store.aggregates.vitals import TRACES
from svc.store.postgres.database import Connection
from svc.store.spans.traces import came_at


async def count_past(
    connection: Connection,
    spans: Sequence[tuple[int, datetime]],
    traces: Mapping[tuple[int, bytes], TraceRollup],
    now: datetime,
) -> None:
    """See to the counts of new spans, by project and when they came, and of new traces.

    Ordering: after `hold_rollups`, in the transaction that writes the rows.
    """
    for dataset in CUBED:
        await mark_dirty(connection, spans, dataset, now)
    arrivals = [(project_id, came_at(rollup, now)) for (project_id, _), rollup in traces.items()]
    await mark_dirty(connection, arrivals, TRACES, now)
    await count_late(connection, "ingested_spans", spans)
    await count_late(connection, "ingested_traces", arrivals)
