"""The spans of one trace as its agent graph needs them. Called by the page of a trace; bounded in spans."""

from __future__ import annotations

from typing import Any, Final

import attrs

from svc.domain.traces.agent_graph import GraphSpan
from svc.store.aggregates.models import TOKENS
from svc.store.postgres.database import Database
from svc.store.reads.skeleton import TIMEOUT_S, TraceHead

#: Spans that a graph is made of, the first ones.
MOST_SPANS: Final = 20_000


@attrs.define(eq=False)
class TraceGraphReads:
    """Reads for one trace at a time. Raises `Outage`."""

    database: Database

    async def spans(self, project_id: int, trace_id: bytes, head: TraceHead) -> tuple[list[GraphSpan], bool]:
        """Its first spans, and whether there are more."""
        rows: list[Any] = await self.database.fetch(
            # Rows of one trace, by its days.
            "select span_id, parent_span_id, kind, name,"
            " (extract(epoch from started_at - $3) * 1000000)::bigint,"
            " (extract(epoch from ended_at - $3) * 1000000)::bigint, status = 'error',"
            f" case when usage_repeats is null then {TOKENS} else 0 end,"
            " case when usage_repeats is null then total_cost end from span"
            " where project_id = $1 and trace_id = $2 and started_at between $3 and $4"
            " order by started_at, span_id limit $5",
            project_id,
            trace_id,
            head.first_started_at,
            head.last_started_at,
            MOST_SPANS + 1,
            timeout_s=TIMEOUT_S,
        )
        return [GraphSpan(*row) for row in rows[:MOST_SPANS]], len(rows) > MOST_SPANS
