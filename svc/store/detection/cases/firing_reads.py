"""Firings of detectors as they are read: pages of them, newest first, and how many there were by day.

Reads the table `classifier_event` and the counts of what was looked at. In mode `tracking` firings of low
confidence are left out; the mode is applied here, to rows that are all kept, so that changing it changes the
past as well. Whoever asks names the detectors in that mode. Never writes.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Any, Final

import attrs

from svc.store.detection.cases.firings import FIRING_COLUMNS
from svc.store.postgres.clauses import Where
from svc.store.postgres.database import READ_TIMEOUT_S, Connection, Database
from svc.store.postgres.keyset import Keyset
from svc.store.postgres.rows import plain, shown

EVENT_ORDER: Final = Keyset("classifier events", (("created_at", "moment"), ("id", "uuid")))

_COLUMNS: Final = ("id", *FIRING_COLUMNS[1:])
#: What mode `tracking` leaves out.
UNSURE: Final = "low"


@attrs.frozen
class FiringFilter:
    """What a page of firings is narrowed to; None asks for nothing."""

    detector: str | None = None
    severity: str | None = None
    call_site_id: str | None = None
    session_id: str | None = None
    tracking: Collection[str] = ()


@attrs.define(eq=False)
class FiringReads:
    """Raises `Outage`."""

    database: Database

    async def page(
        self, project_id: int, asked: FiringFilter, *, limit: int, cursor: str | None
    ) -> dict[str, Any]:
        """`{events, next_cursor}`, newest first."""
        where = Where.of(project_id)
        where.equal("classifier_id", asked.detector)
        where.equal("severity", asked.severity)
        where.equal("call_site_id", asked.call_site_id)
        where.equal("subject_session_id", asked.session_id)
        _sure(where, asked.tracking)
        where.after(["created_at", "id"], EVENT_ORDER.place(cursor))
        # One page and one row more, down the index of time, or that of the detector.
        rows = await self.database.fetch(
            f"select {', '.join(_COLUMNS)} from classifier_event where {where.sql()}"
            f" order by created_at desc, id desc limit {where.value(limit + 1)}",
            *where.values,
            timeout_s=READ_TIMEOUT_S,
        )
        page, next_cursor = EVENT_ORDER.page(rows, limit)
        return {"events": [shown(row, _COLUMNS) for row in page], "next_cursor": next_cursor}

    async def daily(
        self, project_id: int, first: datetime, days: int, tracking: Collection[str]
    ) -> list[dict[str, Any]]:
        """So many days from `first`, a midnight in UTC: what was looked at, firings by detector, severity."""
        where = Where.of(project_id)
        where.add(f"created_at >= {where.value(first)}")
        _sure(where, tracking)

        async def work(connection: Connection) -> tuple[list[Any], list[Any]]:
            # Along the index of time.
            fired = await connection.fetch(
                "select date_trunc('day', created_at, 'UTC') as day, classifier_id, severity, count(*) as n"
                f" from classifier_event where {where.sql()} group by 1, 2, 3",
                *where.values,
            )
            # By hours, so that today has what is closed of it.
            looked_at = await connection.fetch(
                "select date_trunc('day', bucket_start, 'UTC') as day, sum(value)::bigint as n"
                " from metric_rollup where project_id = $1 and metric = 'l1_evals' and granularity = 'hour'"
                " and bucket_start >= $2 group by 1",
                project_id,
                first,
            )
            return fired, looked_at

        fired, looked_at = await self.database.run(
            work, readonly=True, snapshot=True, timeout_s=READ_TIMEOUT_S
        )
        day_rows = [_day(first + timedelta(days=n)) for n in range(days)]
        by_day = {day["day"]: day for day in day_rows}
        for row in looked_at:
            if (day := by_day.get(plain(row["day"]))) is not None:
                day["evaluated"] = row["n"]
        for row in fired:
            if (day := by_day.get(plain(row["day"]))) is not None:
                day["events"] += row["n"]
                for name in ("classifier", "severity"):
                    key = row["classifier_id" if name == "classifier" else name]
                    counts = day[f"by_{name}"]
                    counts[key] = counts.get(key, 0) + row["n"]
        return day_rows


def _day(start: datetime) -> dict[str, Any]:
    return {"day": plain(start), "evaluated": 0, "events": 0, "by_classifier": {}, "by_severity": {}}


def _sure(where: Where, tracking: Collection[str]) -> None:
    if tracking:
        which = where.value(list(tracking))
        where.add(f"not (classifier_id = any({which}::text[]) and coalesce(confidence, '') = '{UNSURE}')")
