"""The traces around one: the newer and the older one in a list, and a healthy one of the same work.

Called by the page of a trace. Each answer is an id or None; each statement is bounded in rows.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

import attrs

from svc.domain.traces.comparison import Outlined
from svc.store.aggregates.models import TOKENS
from svc.store.postgres.database import Database
from svc.store.postgres.rows import SETTLED
from svc.store.reads.one_trace.skeleton import TIMEOUT_S, TraceHead, first_rows
from svc.store.reads.traces.spans import SpanReads
from svc.store.reads.traces.trace_filter import NEWEST_TRACES, TraceFilter
from svc.store.reads.traces.traces import TraceReads
from svc.store.spans.availability import SPAN_AVAILABLE

#: A healthy trace is looked for this long before and after.
TWIN_WINDOW: Final = timedelta(days=3, hours=12)
#: Spans of the call site that are looked through, the newest first.
_TWIN_SPANS: Final = 20_000
#: Rows of a list that are read back to find the newer neighbour.
_NEWER_ROWS: Final = 200


@attrs.frozen
class TraceNeighbours:
    """The newer and the older trace of a list, where they were found."""

    newer: str | None
    older: str | None


@attrs.frozen
class Twin:
    """A healthy trace whose duration is nearest the median of `of` healthy ones."""

    trace_id: bytes
    of: int
    median_ms: float


#: Spans of each side of a comparison.
MOST_OUTLINED: Final = 2_000


@attrs.define(eq=False)
class TraceKin:
    """Reads for one trace at a time."""

    database: Database

    async def neighbours(self, project_id: int, head: TraceHead, asked: TraceFilter) -> TraceNeighbours:
        """What stands beside a trace in the list of a filter, newest first.

        The newer one is looked for among the rows of the list that began since, as far as a page reaches.
        """
        reads = TraceReads(self.database, SpanReads(self.database))
        trace_id, started_at = head.fields["trace_id"], head.first_started_at
        cursor_row = {"started_at": started_at, "trace_id": bytes.fromhex(trace_id)}
        older = await reads.page(
            project_id, asked, limit=1, cursor=NEWEST_TRACES.cursor(cursor_row), timeout_s=TIMEOUT_S
        )
        low = started_at if asked.low is None else max(asked.low, started_at)
        since = attrs.evolve(asked, low=low)
        newer = await reads.page(project_id, since, limit=_NEWER_ROWS, cursor=None, timeout_s=TIMEOUT_S)
        ids = [row["trace_id"] for row in newer["traces"]]
        index = ids.index(trace_id) if trace_id in ids else 0
        return TraceNeighbours(
            ids[index - 1] if index else None,
            older["traces"][0]["trace_id"] if older["traces"] else None,
        )

    async def twin(self, project_id: int, trace_id: bytes, head: TraceHead) -> Twin | None:
        """A settled trace of the call site and name without a failed span, begun around the same days."""
        rows: list[Any] = await self.database.fetch(
            # Roots of the call site down the index of its days, their traces by key, and the one nearest the
            # median. By when spans began: a history may have arrived in one night.
            "with roots as materialized (select trace_id from (select trace_id, parent_span_id, name"
            " from span"
            " where project_id = $1 and call_site_id = $3 and started_at between $5 and $6"
            " order by created_at desc limit $7) s where parent_span_id is null and name = $4),"
            " healthy as materialized (select t.trace_id, t.ended_at - t.started_at as took"
            " from (select distinct trace_id from roots) r cross join lateral (select * from trace"
            " where project_id = $1 and trace_id = r.trace_id offset 0) t"
            f" where t.trace_id <> $2 and t.status = 'ok' and t.error_count = 0 and {SETTLED}"
            " and t.ended_at is not null and t.call_site_id = $3 and t.name = $4),"
            " middle as (select percentile_cont(0.5) within group (order by took) as took, count(*) as n"
            " from healthy)"
            " select h.trace_id, m.n, extract(epoch from m.took)::float8 * 1000 as median_ms"
            " from healthy h cross join middle m order by greatest(h.took - m.took, m.took - h.took),"
            " h.trace_id limit 1",
            project_id,
            trace_id,
            head.fields["call_site_id"],
            head.fields["name"],
            head.first_started_at - TWIN_WINDOW,
            head.first_started_at + TWIN_WINDOW,
            _TWIN_SPANS,
            timeout_s=TIMEOUT_S,
        )
        return Twin(rows[0]["trace_id"], rows[0]["n"], rows[0]["median_ms"]) if rows else None

    async def outline(self, project_id: int, trace_id: bytes, head: TraceHead) -> tuple[list[Outlined], bool]:
        """The first spans of a trace in short, and whether there are more."""
        # Rows of one trace, by its days.
        sql = (
            "select span_id, parent_span_id, kind, name, status, error_type,"
            " (extract(epoch from ended_at - started_at) * 1000)::float8 as took_ms,"
            f" case when usage_repeats is null then {TOKENS} else 0 end as tokens,"
            " case when usage_repeats is null then total_cost end as cost,"
            " case when payload_available then input_preview end as input_preview,"
            " case when payload_available then output_preview end as output_preview"
            f" from (select s.*, {SPAN_AVAILABLE} from (select * from span"
            " where project_id = $1 and trace_id = $2 and started_at between $3 and $4"
            " order by started_at, span_id limit $5) s) s order by started_at, span_id"
        )
        rows, has_more = await first_rows(self.database, sql, project_id, trace_id, head, MOST_OUTLINED)
        return [Outlined(*row) for row in rows], has_more
