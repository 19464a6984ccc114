"""What calls of models cost here, by day, model and call site, for comparing with a provider's bill.

Counted from spans, by when they started, in UTC as bills are. Usage that another span tells as well counts
once, as everywhere. Called for `trace-svc reconcile`, its REST route and its page; keeps nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Final

import attrs

from protocol.rest.bills import BilledDay, BilledSite, BilledTrace, BillReconciled
from svc.domain.billing.exports import Bill
from svc.domain.billing.reconciliation import ReconciledDay, TracedUse, TraceShare, reconcile
from svc.store.postgres.database import Connection, Database
from svc.store.reads.usage.vitals import SKEW

TIMEOUT_S: Final = 30.0
#: Rows that differ for which traces are looked up, the largest difference first, and traces of each.
EXPLAINED_ROWS: Final = 10
TRACES_SHOWN: Final = 5
#: Rows of an answer; sums are over all.
ROWS_SHOWN: Final = 500
#: Days, models and call sites that are held at once.
MOST_GROUPS: Final = 50_000

_TOKENS: Final = (
    "coalesce(input_tokens, 0) + coalesce(output_tokens, 0) + coalesce(cache_read_tokens, 0)"
    " + coalesce(cache_write_tokens, 0) + coalesce(reasoning_tokens, 0)"
)
# Spans that used something, whether or not another one tells it as well.
_CALLS: Final = (
    "project_id = $1 and created_at >= $2 and started_at >= $3 and started_at < $4"
    " and provided_model_name is not null"
)

_USES: Final = f"""
select (started_at at time zone 'UTC')::date as day, provided_model_name as model, provider, call_site_id,
    count(*) filter (where usage_repeats is null) as calls,
    coalesce(sum(total_cost) filter (where usage_repeats is null), 0) as cost,
    coalesce(sum({_TOKENS}) filter (where usage_repeats is null), 0)::bigint as tokens,
    count(*) filter (where cost_source = 'unpriced') as unpriced,
    count(*) filter (where cost_source = 'provided') as given,
    coalesce(sum(total_cost) filter (where usage_repeats is not null), 0) as repeated
from span
where {_CALLS} and (total_cost is not null or {_TOKENS} > 0)
group by 1, 2, 3, 4
limit {MOST_GROUPS + 1}
"""

_TRACES: Final = f"""
select trace_id, count(*) as calls, sum(total_cost) as cost
from span
where {_CALLS} and provided_model_name = any($5) and usage_repeats is null
    and ($6 or cost_source = 'unpriced') and (total_cost is not null or {_TOKENS} > 0)
group by 1 order by 3 desc nulls last, 2 desc, 1 limit {TRACES_SHOWN}
"""


class TooManyGroups(Exception):
    """More models and call sites than are held at once: compare fewer days."""


@attrs.define(eq=False)
class BillReads:
    """Reads one project at a time. All verbs raise `Outage`, and `Slow` for what takes too long."""

    database: Database

    async def reconciled(self, project_id: int, bill: Bill) -> BillReconciled:
        """A bill beside what was traced. Raises `TooManyGroups`."""
        rows = reconcile(bill, await self._uses(project_id, bill.first, bill.last))
        billed = [row.billed_cost for row in rows if row.billed_cost is not None]
        billed_cost = sum(billed, Decimal(0)) if billed else None
        our_cost = sum((row.our_cost or Decimal(0) for row in rows), Decimal(0))
        # What differs most first, so that a cut takes what agrees.
        ranked = sorted(rows, key=lambda row: (row.agrees, -row.weight, row.day, row.model))[:ROWS_SHOWN]
        return BillReconciled(
            bill.provider,
            bill.title,
            bill.first.isoformat(),
            bill.last.isoformat(),
            len(bill.lines),
            dict(bill.skipped),
            _money_or_none(billed_cost),
            _money(our_cost),
            None if billed_cost is None else _money(billed_cost - our_cost),
            sum(row.agrees for row in rows),
            len(rows),
            [_shown(row) for row in await self._explained(project_id, ranked)],
        )

    async def _explained(self, project_id: int, rows: Sequence[ReconciledDay]) -> list[ReconciledDay]:
        """The rows, those that differ most with the traces that explain it."""
        heaviest = sorted((row for row in rows if row.weight and row.names), key=lambda row: -row.weight)
        traces: dict[int, tuple[TraceShare, ...]] = {}

        async def work(connection: Connection) -> None:
            for row in heaviest[:EXPLAINED_ROWS]:
                # Without a price if there are any: they are what is missing.
                priced = not row.unpriced
                trace_rows = await connection.fetch(
                    _TRACES, project_id, *_span_of(row.day, row.day), list(row.names), priced
                )
                traces[id(row)] = tuple(
                    TraceShare(trace["trace_id"].hex(), trace["calls"], trace["cost"]) for trace in trace_rows
                )

        if heaviest:
            await self.database.run(work, readonly=True, timeout_s=TIMEOUT_S)
        return [attrs.evolve(row, traces=traces.get(id(row), ())) for row in rows]

    async def _uses(self, project_id: int, first: date, last: date) -> list[TracedUse]:
        rows = await self.database.fetch(_USES, project_id, *_span_of(first, last), timeout_s=TIMEOUT_S)
        if len(rows) > MOST_GROUPS:
            raise TooManyGroups
        return [
            TracedUse(
                row["day"], row["model"], row["provider"], row["call_site_id"], row["calls"],
                row["cost"], row["tokens"], row["unpriced"], row["given"], row["repeated"],
            )
            for row in rows
        ]  # fmt: skip


def _span_of(first: date, last: date) -> tuple[datetime, datetime, datetime]:
    """When spans of these days came at the earliest, and when they began."""
    low = datetime.combine(first, time(), UTC)
    return low - SKEW, low, datetime.combine(last, time(), UTC) + timedelta(days=1)


def _money(amount: Decimal) -> str:
    """Decimal text without zeros that say nothing: a sum carries as many as its parts."""
    text = f"{amount:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _money_or_none(amount: Decimal | None) -> str | None:
    return None if amount is None else _money(amount)


def _shown(row: ReconciledDay) -> BilledDay:
    return BilledDay(
        row.day.isoformat(),
        row.model,
        list(row.names),
        _money_or_none(row.billed_cost),
        _money_or_none(row.our_cost),
        _money_or_none(row.difference),
        row.billed_tokens,
        row.our_tokens,
        row.billed_calls,
        row.our_calls,
        row.unpriced,
        row.agrees,
        list(row.reasons),
        [
            BilledSite(site.call_site, site.calls, _money(site.cost), site.unpriced, site.given)
            for site in row.sites
        ],
        [BilledTrace(trace.trace_id, trace.calls, _money_or_none(trace.cost)) for trace in row.traces],
    )
