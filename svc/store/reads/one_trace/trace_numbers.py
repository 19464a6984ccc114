"""What stands behind the numbers of a trace's page: which spans a sum was made of, and which it left out.

Called when a reader presses a number. Each statement reads the spans of one trace once and answers few rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import attrs

from svc.domain.spans.span import TOKEN_BUCKETS
from svc.store.postgres.database import Database
from svc.store.reads.one_trace.skeleton import TIMEOUT_S, TraceHead

#: Groups of spans that an explanation names.
MOST_GROUPS: Final = 40

#: Spans that are looked at for the names of models, of a larger trace those with the lowest ids, which are
#: random: all of a million took a second (November 2026).
COUNTED_SPANS: Final = 10_000

COST_BUCKETS: Final = ("input_cost", "output_cost", "cache_read_cost", "cache_write_cost")

_OF_TRACE: Final = "project_id = $1 and trace_id = $2 and started_at between $3 and $4"
_SUMS: Final = ", ".join(
    [f"sum({name})::bigint as {name}" for name in TOKEN_BUCKETS]
    + [f"sum({name}) as {name}" for name in (*COST_BUCKETS, "total_cost")]
)


@attrs.frozen
class PricedGroup:
    """Spans of a trace that report usage and share model, price book and why they count or do not."""

    model: str | None
    model_id: str | None
    provider: str | None
    price_book: str | None
    cost_source: str | None
    service_tier: str | None
    #: Why they are left out of the sums; None counts.
    usage_repeats: str | None
    spans: int
    sums: dict[str, Any]


@attrs.frozen
class FailedGroup:
    """Failed spans of a trace that share a name and what went wrong, with the first of them."""

    name: str
    error: str
    spans: int
    first: bytes


@attrs.frozen
class KindGroup:
    """Spans of one kind, how many failed, and how long they took together."""

    kind: str
    spans: int
    failed: int
    unended: int
    total_ms: float


@attrs.define(eq=False)
class TraceNumbers:
    """Reads for one number at a time."""

    database: Database

    async def usage(self, project_id: int, trace_id: bytes, head: TraceHead) -> Sequence[PricedGroup]:
        """Who reported tokens and money, the dearest first."""
        names = (
            "provided_model_name, model_id, provider, price_book, cost_source, service_tier, usage_repeats"
        )
        rows = await self._of(
            # The spans that report usage or cost, grouped by what their price hangs on.
            f"select {names}, count(*) as spans, {_SUMS} from span where {_OF_TRACE}"
            f" and (num_nonnulls({', '.join(TOKEN_BUCKETS)}, total_cost) > 0 or cost_source is not null)"
            f" group by {names} order by usage_repeats nulls first, sum(total_cost) desc nulls last limit $5",
            project_id,
            trace_id,
            head,
        )
        sums = (*TOKEN_BUCKETS, *COST_BUCKETS, "total_cost")
        return [
            PricedGroup(
                row["provided_model_name"],
                row["model_id"],
                row["provider"],
                row["price_book"],
                row["cost_source"],
                row["service_tier"],
                row["usage_repeats"],
                row["spans"],
                {name: row[name] for name in sums},
            )
            for row in rows
        ]

    async def failures(self, project_id: int, trace_id: bytes, head: TraceHead) -> Sequence[FailedGroup]:
        """What failed, the most frequent first."""
        rows = await self._of(
            # Failed spans by name and error.
            "select left(name, 200) as name,"
            " left(coalesce(nullif(error_type, ''), error_message, ''), 200) as error, count(*) as spans,"
            f" (array_agg(span_id order by started_at, span_id))[1] as first from span where {_OF_TRACE}"
            " and status = 'error' group by 1, 2 order by count(*) desc, 1 limit $5",
            project_id,
            trace_id,
            head,
        )
        return [FailedGroup(row["name"], row["error"], row["spans"], row["first"]) for row in rows]

    async def kinds(self, project_id: int, trace_id: bytes, head: TraceHead) -> Sequence[KindGroup]:
        """How many spans of which kind, and how long they took; those inside others are counted twice."""
        rows = await self._of(
            # All spans of the trace by kind.
            "select kind, count(*) as spans, count(*) filter (where status = 'error') as failed,"
            " count(*) filter (where ended_at is null) as unended,"
            " coalesce(extract(epoch from sum(ended_at - started_at)) * 1000, 0)::float8 as total_ms"
            f" from span where {_OF_TRACE} group by kind order by count(*) desc limit $5",
            project_id,
            trace_id,
            head,
        )
        return [KindGroup(*row) for row in rows]

    async def models(self, project_id: int, trace_id: bytes, head: TraceHead) -> Sequence[str]:
        """The models that it called, the most frequent first; at most five, among `COUNTED_SPANS` spans."""
        rows = await self._of(
            # Names of models and how often.
            f"select model from (select provided_model_name as model from span where {_OF_TRACE}"
            f" order by span_id limit {COUNTED_SPANS}) s where model is not null"
            " group by 1 order by count(*) desc, 1 limit $5",
            project_id,
            trace_id,
            head,
            most=5,
        )
        return [row["model"] for row in rows]

    async def _of(
        self, sql: str, project_id: int, trace_id: bytes, head: TraceHead, most: int = MOST_GROUPS
    ) -> list[Any]:
        bounds = head.first_started_at, head.last_started_at
        return await self.database.fetch(sql, project_id, trace_id, *bounds, most, timeout_s=TIMEOUT_S)
