"""Call sites read back: what they are for, how much they do, and how they have been doing lately."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final

import attrs
import msgspec

from svc.store.postgres.database import READ_TIMEOUT_S, Database
from svc.store.postgres.rows import plain

#: What an answer shows, whichever is reached first: a program that makes up names has thousands of call
#: sites, and an agent reads them all.
SITES_SHOWN: Final = 200
SITES_BYTES: Final = 64 * 1024
#: What `observed` is measured over: at most this many of the newest spans, none older than the window.
OBSERVED_SPANS: Final = 100
OBSERVED_WINDOW: Final = timedelta(days=7)

# The busiest call sites, then others, with their intents, and their newest spans measured: what those name is
# the model of by now, and where they are too old or name none, that of the first span. The inner look is
# one walk down the index on (project_id, call_site_id, created_at); the bound on started_at leaves out the
# days before the window.
_SITES: Final = f"""
select (select count(*) from call_site where project_id = $1) as total,
       c.id, c.tagged, coalesce(o.called[1], c.model) as model,
       case when o.called is null then c.provider else o.called[2] end as provider,
       i.intent, coalesce(i.shape, o.kind) as shape,
       i.output_schema::text, o.error_rate,
       o.p50_latency_ms, o.p95_latency_ms, o.cost_per_call
from (select s.*, busy.place from call_site s
      left join unnest($4::text[]) with ordinality as busy (id, place) using (id)
      where s.project_id = $1 order by busy.place, s.id limit {SITES_SHOWN}) c
left join call_site_intent i on i.project_id = $1 and i.call_site_id = c.id
cross join lateral (
    select mode() within group (order by kind) as kind,
           mode() within group (order by array[provided_model_name, provider])
               filter (where provided_model_name is not null) as called,
           avg((status = 'error')::int)::float8 as error_rate,
           percentile_cont(0.5) within group (order by ms) as p50_latency_ms,
           percentile_cont(0.95) within group (order by ms) as p95_latency_ms,
           avg(total_cost) filter (where usage_repeats is null)::float8 as cost_per_call
    from (select kind, status, total_cost, usage_repeats, provided_model_name, provider,
                 extract(epoch from ended_at - started_at)::float8 * 1000 as ms
          from span s
          where s.project_id = $1 and s.call_site_id = c.id and s.created_at >= $2 and s.started_at >= $3
          order by s.created_at desc limit {OBSERVED_SPANS}) newest) o
order by c.place, c.id
"""

_OBSERVED: Final = ("error_rate", "p50_latency_ms", "p95_latency_ms", "cost_per_call")


@attrs.define(eq=False)
class CallSiteReads:
    """Reads call sites of one project at a time."""

    database: Database

    async def page(
        self, project_id: int, now: datetime, busiest: Sequence[str]
    ) -> tuple[list[dict[str, Any]], int]:
        """Some call sites, the busiest first and the others by id, and how many are left out.

        At most `SITES_SHOWN`, and `SITES_BYTES` of JSON unless a single one is longer. Nulls where nothing
        was observed; `output_schema` only where one was imported.
        """
        since = now - OBSERVED_WINDOW
        rows = await self.database.fetch(
            _SITES, project_id, since, since - timedelta(days=1), list(busiest), timeout_s=READ_TIMEOUT_S
        )
        sites: list[dict[str, Any]] = []
        left_bytes = SITES_BYTES
        for row in rows:
            site = _site(row)
            left_bytes -= len(msgspec.json.encode(site))
            if sites and left_bytes < 0:
                break
            sites.append(site)
        return sites, rows[0]["total"] - len(sites) if rows else 0


def _site(row: Any) -> dict[str, Any]:
    schema = row["output_schema"]
    return {
        **{name: row[name] for name in ("id", "intent", "shape", "model", "provider", "tagged")},
        **({} if schema is None else {"output_schema": msgspec.json.decode(schema)}),
        "observed": {name: plain(row[name]) for name in _OBSERVED},
    }
