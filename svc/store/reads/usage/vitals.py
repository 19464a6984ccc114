"""How call sites, agents, models and tools have been doing: one window of time against the one before it.

Added up from the hourly cubes and, but for call sites, the slices of the hour under way
(`svc.store.aggregates.vitals`); what these do not cover yet, and what has changed, is counted from traces and
spans under the same snapshot. So an answer is right at every moment, within a bound of time. Quantiles are
those of bins 5 % wide.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final

import attrs

from svc.domain.calendar import hour_of
from svc.domain.detect.engine.axis import UNIT_MS
from svc.domain.detect.engine.histogram import Histogram
from svc.store.aggregates.covered import Covered, covered_since
from svc.store.aggregates.vitals import BIN, SOURCES, VitalSource, What
from svc.store.postgres.database import Connection, Database

#: Subjects told at most, the busiest first.
SHOWN: Final = 200
#: A row is stored no earlier than this before it begins: clocks differ.
SKEW: Final = timedelta(hours=1)
#: To the end of the transaction a plan for these windows: one for any sorts what this one hashes, and adds up
#: a week of tools in 95 ms instead of 30 (measured November 2026).
PLAN_ANEW: Final = "set local plan_cache_mode = force_custom_plan"


@attrs.frozen
class Window:
    """What one subject did in one window: quantiles in milliseconds, cost in USD over `priced` units."""

    n: int
    failed: int
    p50_ms: float | None
    p95_ms: float | None
    cost: float | None
    priced: int

    @property
    def error_rate(self) -> float | None:
        """The share that failed."""
        return self.failed / self.n if self.n else None

    @property
    def cost_each(self) -> float | None:
        """What one cost, of those whose cost is known."""
        return self.cost / self.priced if self.cost is not None and self.priced else None


NOTHING: Final = Window(0, 0, None, None, None, 0)


@attrs.frozen
class Vital:
    """A subject in both windows; an empty subject is not known."""

    subject: str
    now: Window
    before: Window


# Rows of the cube and of slices that began in the windows, and rows that these do not cover, binned alike;
# the busiest of their subjects; and of these the sums and the durations, added up.
_ADDED: Final = """
with told as materialized (
    select subject, began >= $4 as now, n, failed, cost, priced, bins, counts from vital_cube
    where project_id = $1 and what = $2 and began >= $3 and began < $5 and hour < $6 and hour <> all($7)
    union all
    select subject, began >= $4 as now, n, failed, cost, priced, bins, counts from vital_slice
    where project_id = $1 and what = $2 and began >= $3 and began < $5 and slice = any($11)
    union all
    select subject, now, count(*), count(*) filter (where status = 'error'), sum(total_cost),
        count(total_cost), case when bin is null then '{{}}'::smallint[] else array[bin] end,
        case when bin is null then '{{}}'::bigint[] else array[count(*)] end
    from unnest($8::timestamptz[], $9::timestamptz[]) as stretch (low, high)
    cross join lateral (select {subject} as subject, started_at >= $4 as now, status, total_cost,
        {bin} as bin from {table} where project_id = $1 and created_at >= stretch.low
        and created_at < stretch.high and started_at >= $3 and started_at < $5 and {condition}
        offset 0) as raw
    group by subject, now, bin),
busiest as (
    select subject from told group by 1 order by sum(n) filter (where now) desc nulls last, sum(n) desc, 1
    limit $10),
figures as (
    select subject, now, sum(n)::bigint as n, sum(failed)::bigint as failed, sum(cost)::float8 as cost,
        sum(priced)::bigint as priced
    from told join busiest using (subject) group by 1, 2),
binned as (
    select subject, now, bin, sum(count)::bigint as count
    from (select subject, now, unnest(bins) as bin, unnest(counts) as count
        from told join busiest using (subject)) as of_hours
    group by 1, 2, 3),
shapes as (
    select subject, now, array_agg(bin order by bin) as bins, array_agg(count order by bin) as counts
    from binned group by 1, 2)
select * from figures left join shapes using (subject, now)
"""


def _sql(source: VitalSource) -> str:
    return _ADDED.format(
        subject=source.subject, bin=BIN, table=source.dataset.table, condition=source.condition
    )


_OF: Final[dict[What, str]] = {what: _sql(source) for what, source in SOURCES.items()}


@attrs.define(eq=False)
class VitalsReads:
    """Reads one project at a time."""

    database: Database

    async def of(
        self, project_id: int, what: What, start: datetime, middle: datetime, end: datetime, timeout_s: float
    ) -> Sequence[Vital]:
        """Sites, agents, models or tools: from the middle to the end, and from the start to it. Raises
        `Slow`.

        Where start and middle are full hours the cubes are read, else rows alone.
        """
        by_hours = all(
            moment.minute == moment.second == moment.microsecond == 0 for moment in (start, middle)
        )
        first = hour_of(start - SKEW)

        async def work(connection: Connection) -> list[Any]:
            built = Covered(first, [])
            if by_hours:
                built = await covered_since(connection, project_id, SOURCES[what].dataset, first, end)
            await connection.execute(PLAN_ANEW)
            # Each stretch is one scan of the index on created_at.
            return await connection.fetch(
                _OF[what],
                project_id,
                what,
                start,
                middle,
                end,
                built.until,
                built.dirty,
                [low for low, _ in built.raw],
                [high for _, high in built.raw],
                SHOWN,
                built.slices,
            )

        rows = await self.database.run(work, readonly=True, snapshot=True, timeout_s=timeout_s)
        windows: dict[str, dict[bool, Window]] = {}
        for row in rows:
            windows.setdefault(row["subject"], {})[row["now"]] = _window(row)
        vitals = [
            Vital(name, periods.get(True, NOTHING), periods.get(False, NOTHING))
            for name, periods in windows.items()
        ]
        return sorted(vitals, key=lambda vital: (-vital.now.n, -vital.before.n, vital.subject))


def _window(row: Any) -> Window:
    p50 = p95 = None
    if row["bins"]:
        shape = Histogram(tuple(row["bins"]), tuple(row["counts"]))
        p50, p95 = shape.quantile(0.5, UNIT_MS), shape.quantile(0.95, UNIT_MS)
    return Window(row["n"], row["failed"], p50, p95, row["cost"], row["priced"])
