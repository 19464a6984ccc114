"""Retention by attribute: traces with a span that has a value are kept for fewer days than the others.

Owns the table `retention_rule` and what a sweep does for it. Called by `svc.store.retention.sweep` before
the days, by the settings and by `trace-svc retention show`. What an open finding or an unresolved case cites
stays, as ever. Messages that several traces share go with their day, not with a trace.

Ordering: a trace is locked before its session, as writers do, and goes with all of its rows in one
transaction: spans, tool calls, payloads, marks, the trace. A trace that somebody holds, or that is not
settled, is left for the sweeps of the days after, which look at the last `LOOKED_AT_AGAIN` once more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, Literal

import attrs
import trio

from protocol.storage import Freed
from svc.domain.calendar import EPOCH, day_of
from svc.domain.retention.terms import RetentionRule
from svc.store.postgres.database import Connection, Database
from svc.store.postgres.rows import SETTLED
from svc.store.retention.days import BATCH_PAUSE_S, STEP_TIMEOUT_S
from svc.store.retention.traces import EXPIRED, delete_traces

#: Traces looked at in one transaction, each with a look at its spans, and deleted in one.
BATCH_TRACES: Final = 2_000
DELETED_TRACES: Final = 500
#: How far behind the last sweep's end the next one begins.
LOOKED_AT_AGAIN: Final = timedelta(days=2)


# A stretch of traces, and those of it that are over, cited by nothing and have a span with the value.
_BATCH: Final = """
with batch as materialized (
    select t.trace_id, t.{order} as place, t.first_started_at, t.last_started_at, {settled} as settled
    from trace t
    where t.project_id = $1 and t.{order} >= $3 and t.started_at < $2 and (t.{order}, t.trace_id) > ($4, $5)
    order by t.{order}, t.trace_id limit $6
)
select trace_id, place, settled and last_started_at < $2 and not exists (
    select from kept_trace k where k.project_id = $1 and k.trace_id = batch.trace_id
) and exists (
    select from span s where s.project_id = $1 and s.trace_id = batch.trace_id
    and s.started_at between batch.first_started_at and batch.last_started_at and strpos(s.facets, (
        select code from attribute_value where project_id = $1 and field = $7 and value = $8)) > 0 offset 0
) as expired from batch order by 2, 1
"""

#: By what traces are walked: those of a time, and what arrived since, of times looked through before.
_Order = Literal["started_at", "created_at"]


@attrs.frozen
class _Due:
    """A rule whose days have to be looked through, of one project."""

    project_id: int
    rule: RetentionRule
    swept_until: datetime | None
    swept_at: datetime | None


async def read_rules(connection: Connection, project_id: int) -> list[RetentionRule]:
    """The rules of a project, by field and value."""
    rows = await connection.fetch(
        "select field, value, days from retention_rule where project_id = $1 order by field, value",
        project_id,
    )
    return [RetentionRule(row["field"], row["value"], row["days"]) for row in rows]


async def write_rules(connection: Connection, project_id: int, rules: Sequence[RetentionRule]) -> None:
    """Replace the rules of a project. One that stays as it is goes on where its last sweep ended."""
    columns = ([r.field for r in rules], [r.value for r in rules], [r.days for r in rules])
    await connection.execute(
        "delete from retention_rule where project_id = $1 and (field, value, days) not in"
        " (select * from unnest($2::text[], $3::text[], $4::integer[]))",
        project_id,
        *columns,
    )
    await connection.execute(
        "insert into retention_rule (project_id, field, value, days)"
        " select $1, * from unnest($2::text[], $3::text[], $4::integer[]) on conflict do nothing",
        project_id,
        *columns,
    )


async def latest_cutoff(database: Database, now: datetime) -> datetime | None:
    """Nothing that began since is let go by any rule; None without rules."""
    rows = await database.fetch("select min(days) as days from retention_rule")
    return None if rows[0]["days"] is None else _cutoff(rows[0]["days"], now)


async def sweep_rules(database: Database, now: datetime, freed: Callable[[Freed], None]) -> None:
    """Let go of what the rules of all projects say. `kept_trace` is up to date. Raises `Outage`."""
    rows = await database.fetch(
        "select r.* from retention_rule r join project p on p.id = r.project_id where p.deleted_at is null"
        " order by r.project_id, r.field, r.value"
    )
    for row in rows:
        rule = RetentionRule(row["field"], row["value"], row["days"])
        due = _Due(row["project_id"], rule, row["swept_until"], row["swept_at"])
        if due.swept_until is None or due.swept_until < _cutoff(rule.days, now):
            await _sweep(database, due, now, freed)


def _cutoff(days: int, now: datetime) -> datetime:
    return day_of(now) - timedelta(days=days)


async def _sweep(database: Database, due: _Due, now: datetime, freed: Callable[[Freed], None]) -> None:
    cutoff = _cutoff(due.rule.days, now)
    since = EPOCH if due.swept_until is None else due.swept_until - LOOKED_AT_AGAIN
    await _walk(database, due, "started_at", (since, cutoff), now, freed)
    if due.swept_at is not None:
        await _walk(database, due, "created_at", (due.swept_at, cutoff), now, freed)
    await database.fetch(
        "update retention_rule set swept_until = $5, swept_at = $6 where project_id = $1 and field = $2"
        " and value = $3 and days = $4",
        *(due.project_id, due.rule.field, due.rule.value, due.rule.days, cutoff, now),
    )


async def _walk(
    database: Database,
    due: _Due,
    order: _Order,
    stretch: tuple[datetime, datetime],
    now: datetime,
    freed: Callable[[Freed], None],
) -> None:
    """Look at the traces of a stretch in an order, and delete what has expired."""
    statement = _BATCH.format(order=order, settled=SETTLED)
    since, cutoff = stretch
    place: tuple[datetime, bytes] = (EPOCH, b"")
    while True:
        # The next traces in this order.
        rows = await database.fetch(
            statement,
            *(due.project_id, cutoff, since, *place, BATCH_TRACES),
            *(due.rule.field, due.rule.value),
            timeout_s=STEP_TIMEOUT_S,
        )
        expired = [row["trace_id"] for row in rows if row["expired"]]
        for first in range(0, len(expired), DELETED_TRACES):
            await _delete(database, due.project_id, expired[first : first + DELETED_TRACES], now, freed)
        if len(rows) < BATCH_TRACES:
            return
        place = rows[-1]["place"], rows[-1]["trace_id"]
        await trio.sleep(BATCH_PAUSE_S)


async def _delete(
    database: Database,
    project_id: int,
    trace_ids: Sequence[bytes],
    now: datetime,
    freed: Callable[[Freed], None],
) -> None:
    async def work(connection: Connection) -> Any:
        return await delete_traces(connection, project_id, trace_ids, now, EXPIRED)

    row = await database.run(work, timeout_s=STEP_TIMEOUT_S)
    for table, count in (("span", row["spans"]), ("tool_call", row["calls"]), ("trace", row["traces"])):
        if count:
            freed(Freed(table, rows=count))
