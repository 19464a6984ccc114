"""The spans of one trace, or of the last traces of a call site, as an agent graph needs them.

Called by the pages of a trace and of a call site's graph; bounded in traces and in spans.
"""

from __future__ import annotations

from datetime import datetime
from itertools import groupby
from typing import Any, Final

import attrs

from svc.domain.traces.agent_graph import GraphSpan
from svc.store.aggregates.models import TOKENS
from svc.store.postgres.database import Database
from svc.store.reads.one_trace.skeleton import TIMEOUT_S, TraceHead, first_rows

#: Spans that a graph is made of, the first ones.
MOST_SPANS: Final = 20_000
#: Traces that the graph of a call site is made of, the newest, and spans of each, the first.
MOST_TRACES: Final = 1_000
MOST_SPANS_EACH: Final = 200

#: What a graph needs of a span; its times count from `{since}`.
_COLUMNS: Final = (
    "span_id, parent_span_id, kind, name, (extract(epoch from started_at - {since}) * 1000000)::bigint,"
    " (extract(epoch from ended_at - {since}) * 1000000)::bigint, status = 'error',"
    f" case when usage_repeats is null then {TOKENS} else 0 end,"
    " case when usage_repeats is null then total_cost end"
)
# The newest traces of a call site since a moment, each with its first spans.
_OF_SITE: Final = f"""
with newest as materialized (
    select trace_id, first_started_at, last_started_at, started_at from trace
    where project_id = $1 and call_site_id = $2 and started_at >= $3
    order by started_at desc, trace_id desc limit {MOST_TRACES}
)
select n.trace_id, s.* from newest n cross join lateral (
    select {_COLUMNS.format(since="n.first_started_at")} from span where project_id = $1
    and trace_id = n.trace_id and started_at between n.first_started_at and n.last_started_at
    order by started_at, span_id limit {MOST_SPANS_EACH + 1}
) s order by n.started_at desc, n.trace_id desc limit {MOST_SPANS}
"""


@attrs.frozen(eq=False)
class SiteSpans:
    """The spans of the newest traces of a call site, trace by trace, the oldest first; `cut` where some of
    them have more.
    """

    traces: list[list[GraphSpan]]
    cut: bool


@attrs.define(eq=False)
class TraceGraphReads:
    """Reads for one trace at a time. Raises `Outage`."""

    database: Database

    async def spans(self, project_id: int, trace_id: bytes, head: TraceHead) -> tuple[list[GraphSpan], bool]:
        """Its first spans, and whether there are more."""
        # Rows of one trace, by its days.
        sql = (
            f"select {_COLUMNS.format(since='$3')} from span"
            " where project_id = $1 and trace_id = $2 and started_at between $3 and $4"
            " order by started_at, span_id limit $5"
        )
        rows, has_more = await first_rows(self.database, sql, project_id, trace_id, head, MOST_SPANS)
        return [GraphSpan(*row) for row in rows], has_more

    async def of_site(
        self, project_id: int, call_site_id: str, since: datetime, timeout_s: float = TIMEOUT_S
    ) -> SiteSpans:
        """Those of the newest traces that began at a call site since then. Raises `Slow` beyond its time."""
        rows: list[Any] = await self.database.fetch(
            _OF_SITE, project_id, call_site_id, since, timeout_s=timeout_s
        )
        traces = [
            [GraphSpan(*tuple(row)[1:]) for row in group]
            for _, group in groupby(rows, key=lambda row: row["trace_id"])
        ]
        if len(rows) == MOST_SPANS and len(traces) > 1:
            # The oldest may be there in part.
            traces.pop()
        cut = any(len(spans) > MOST_SPANS_EACH for spans in traces)
        return SiteSpans([spans[:MOST_SPANS_EACH] for spans in reversed(traces)], cut)
