"""Metric roll-ups: what was ingested and evaluated in each closed hour and day.

Owns `metric_rollup`, `metric_rollup_progress` and `l1_eval`. An hour is counted wholesale and upserted
together with the progress, so that a crash repeats at most one and changes nothing. Hours without anything
get no row. A day is the sum of its hours, written when its last hour is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

import attrs

from protocol.storage import Built
from svc.domain.calendar import EPOCH, day_of, hour_of
from svc.store.aggregates.closed_hours import BUILD_TIMEOUT_S, GRACE, HOUR
from svc.store.aggregates.projects import every_project
from svc.store.postgres.database import Connection, Database

DAY: Final = timedelta(days=1)

# Rows of one hour. Spans come from the cube when it holds the hour and nobody has marked it since.
_COUNT: Final = """
select 'ingested_spans' as metric, case
    when exists (select from cube_progress p
                 where p.project_id = $1 and p.dataset = 'spans' and p.built_until >= $3)
     and not exists (select from cube_dirty d
                     where d.project_id = $1 and d.dataset = 'spans' and d.hour = $2)
    then coalesce((select c.n from cube c where c.project_id = $1 and c.dataset = 'spans' and c.field = ''
                   and c.hour = $2), 0)
    else (select count(*) from span s where s.project_id = $1 and s.created_at >= $2 and s.created_at < $3)
    end as value
union all
select 'ingested_traces', count(*) from trace t
where t.project_id = $1 and t.created_at >= $2 and t.created_at < $3
union all
select 'l1_evals', coalesce(sum(e.n), 0)::bigint from l1_eval e where e.project_id = $1 and e.hour = $2
"""

# The next moment at or behind $2 in which anything happened.
_NEXT: Final = """
select least(
    (select min(created_at) from span where project_id = $1 and created_at >= $2),
    (select min(created_at) from trace where project_id = $1 and created_at >= $2),
    (select min(hour) from l1_eval where project_id = $1 and hour >= $2))
"""


@attrs.define(eq=False)
class RollupStore:
    """Implements the `Hours` port."""

    database: Database

    async def build(self, now: datetime, limit: int) -> Built:
        """Roll up what is closed and not rolled up, at most `limit` hours."""
        closed_until = hour_of(now - GRACE)
        hours = 0
        for project_id in await every_project(self.database):
            while hours < limit and await self._next_hour(project_id, closed_until):
                hours += 1
            if hours >= limit:
                return Built(hours, more=True)
        return Built(hours, more=False)

    async def _next_hour(self, project_id: int, closed_until: datetime) -> bool:
        """Roll up the next closed hour with anything in it, and the days that end before it."""

        async def work(connection: Connection) -> bool:
            until = await _lock_progress(connection, project_id)
            if until >= closed_until:
                return False
            moment = await connection.fetchval(_NEXT, project_id, until)
            hour = closed_until if moment is None else min(hour_of(moment), closed_until)
            if hour < closed_until:
                await _upsert(connection, project_id, "hour", hour, await _hour(connection, project_id, hour))
            reached = min(hour + HOUR, closed_until)
            await _close_days(connection, project_id, until, reached)
            # The progress goes with the rows.
            await connection.execute(
                "update metric_rollup_progress set built_until = $2 where project_id = $1",
                project_id,
                reached,
            )
            return hour < closed_until

        return await self.database.run(work, timeout_s=BUILD_TIMEOUT_S)


async def _lock_progress(connection: Connection, project_id: int) -> datetime:
    """How far the roll-up of a project is; nobody takes it further until the end of this transaction."""
    # Locked, so that replicas take turns.
    until: datetime = await connection.fetchval(
        "insert into metric_rollup_progress (project_id, built_until) values ($1, $2)"
        " on conflict (project_id) do update set built_until = metric_rollup_progress.built_until"
        " returning built_until",
        project_id,
        EPOCH,
    )
    return until


async def hold_rollups(connection: Connection, project_ids: Iterable[int]) -> None:
    """Keep these projects from being rolled up meanwhile: rows are coming whose hours may be closed.

    Ordering: before any other lock of a write, in the order of the ids.
    """
    for project_id in sorted(project_ids):
        await _lock_progress(connection, project_id)


async def count_late(connection: Connection, metric: str, moments: Iterable[tuple[int, datetime]]) -> None:
    """Add rows that are dated back, by project, to the hours and days that are counted already.

    Those behind are counted with their hours. Ordering: after `hold_rollups`, in the same transaction.
    """
    hours = Counter((project_id, hour_of(moment)) for project_id, moment in moments)
    for granularity, add in (("hour", hours), ("day", _by_day(hours))):
        # Whatever ends before the place that the roll-up has reached stands already, or had nothing.
        await connection.execute(
            "insert into metric_rollup (project_id, metric, granularity, bucket_start, value)"
            " select l.project_id, $1::text, $2::text, l.start, l.n"
            " from unnest($3::bigint[], $4::timestamptz[], $5::bigint[]) as l (project_id, start, n)"
            " join metric_rollup_progress p using (project_id)"
            " where l.start + ('1 ' || $2::text)::interval <= p.built_until"
            " on conflict (project_id, metric, granularity, bucket_start)"
            " do update set value = metric_rollup.value + excluded.value",
            metric,
            granularity,
            [project_id for project_id, _ in add],
            [start for _, start in add],
            list(add.values()),
        )


def _by_day(hours: Mapping[tuple[int, datetime], int]) -> Counter[tuple[int, datetime]]:
    days: Counter[tuple[int, datetime]] = Counter()
    for (project_id, hour), n in hours.items():
        days[project_id, day_of(hour)] += n
    return days


async def note_evals(
    connection: Connection, project_id: int, subjects: Mapping[str, int], at: datetime | None = None
) -> None:
    """How many subjects each classifier looked at, by default now, in the caller's transaction."""
    # One row an hour and classifier, in the order of their names: nobody waits for each other.
    await connection.execute(
        "insert into l1_eval (project_id, hour, classifier_id, n)"
        " select $1, date_trunc('hour', coalesce($2, clock_timestamp()), 'UTC'), e.name, e.n"
        " from unnest($3::text[], $4::bigint[]) as e (name, n) order by e.name"
        " on conflict (project_id, hour, classifier_id) do update set n = l1_eval.n + excluded.n",
        project_id,
        at,
        list(subjects),
        list(subjects.values()),
    )


async def _hour(connection: Connection, project_id: int, hour: datetime) -> list[Any]:
    rows: list[Any] = await connection.fetch(_COUNT, project_id, hour, hour + HOUR)
    return rows


async def _close_days(connection: Connection, project_id: int, low: datetime, high: datetime) -> None:
    """Sum the hours of the days that ended in (low, high]."""
    # Only days that have an hour; the key's order finds them.
    days = await connection.fetch(
        "select distinct date_trunc('day', bucket_start, 'UTC') as day from metric_rollup"
        " where project_id = $1 and granularity = 'hour'"
        " and metric in ('ingested_spans', 'ingested_traces', 'l1_evals')"
        " and bucket_start >= date_trunc('day', $2::timestamptz, 'UTC') and bucket_start < $3 order by 1",
        project_id,
        low,
        high,
    )
    for (day,) in days:
        if day + DAY > high:
            continue
        rows = await connection.fetch(
            "select metric, sum(value) as value from metric_rollup"
            " where project_id = $1 and granularity = 'hour'"
            " and metric in ('ingested_spans', 'ingested_traces', 'l1_evals')"
            " and bucket_start >= $2 and bucket_start < $3 group by metric",
            project_id,
            day,
            day + DAY,
        )
        await _upsert(connection, project_id, "day", day, rows)


async def _upsert(
    connection: Connection, project_id: int, granularity: str, start: datetime, rows: list[Any]
) -> None:
    # Wholesale: what stands there already was counted from the same rows.
    await connection.execute(
        "insert into metric_rollup (project_id, metric, granularity, bucket_start, value)"
        " select $1, metric, $2, $3, value from unnest($4::text[], $5::numeric[]) as counted (metric, value)"
        " on conflict (project_id, metric, granularity, bucket_start) do update set value = excluded.value",
        project_id,
        granularity,
        start,
        [row["metric"] for row in rows],
        [row["value"] for row in rows],
    )
