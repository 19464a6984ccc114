"""Call sites read back: what they are for, how much they do, and how they have been doing lately."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Final

import attrs

from svc.store.database import Database
from svc.store.rows import plain
from svc.store.span_reads import READ_TIMEOUT_S

SITES_SHOWN: Final = 1_000
#: What `observed` is measured over: at most this many of the newest spans, none older than the window.
OBSERVED_SPANS: Final = 100
OBSERVED_WINDOW: Final = timedelta(days=7)

# Each call site with its intent, and its newest spans measured. The inner look is one walk down the index on
# (project_id, call_site_id, created_at); the bound on started_at leaves out the days before the window.
_SITES: Final = f"""
select c.id, c.tagged, c.model, c.provider, i.intent, coalesce(i.shape, o.kind) as shape, o.error_rate,
       o.p50_latency_ms, o.p95_latency_ms, o.cost_per_call
from (select * from call_site where project_id = $1 order by id limit {SITES_SHOWN}) c
left join call_site_intent i on i.project_id = $1 and i.call_site_id = c.id
cross join lateral (
    select mode() within group (order by kind) as kind,
           avg((status = 'error')::int)::float8 as error_rate,
           percentile_cont(0.5) within group (order by ms) as p50_latency_ms,
           percentile_cont(0.95) within group (order by ms) as p95_latency_ms,
           avg(total_cost) filter (where usage_repeats is null)::float8 as cost_per_call
    from (select kind, status, total_cost, usage_repeats,
                 extract(epoch from ended_at - started_at)::float8 * 1000 as ms
          from span s
          where s.project_id = $1 and s.call_site_id = c.id and s.created_at >= $2 and s.started_at >= $3
          order by s.created_at desc limit {OBSERVED_SPANS}) newest) o
order by c.id
"""

_OBSERVED: Final = ("error_rate", "p50_latency_ms", "p95_latency_ms", "cost_per_call")


@attrs.define(eq=False)
class CallSiteReads:
    """Reads call sites of one project at a time."""

    database: Database

    async def all(self, project_id: int, now: datetime) -> list[dict[str, Any]]:
        """Every call site (at most 1,000), by id, without its count; nulls where nothing was observed."""
        since = now - OBSERVED_WINDOW
        rows = await self.database.fetch(
            _SITES, project_id, since, since - timedelta(days=1), timeout_s=READ_TIMEOUT_S
        )
        return [
            {
                **{name: row[name] for name in ("id", "intent", "shape", "model", "provider", "tagged")},
                "observed": {name: plain(row[name]) for name in _OBSERVED},
            }
            for row in rows
        ]
