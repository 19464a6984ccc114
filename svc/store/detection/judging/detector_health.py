"""How detectors are doing: what waits to be counted, how far each judged, what it said lately.

Reads what tallying, judging and firing left behind; the front shows it. Never writes, and never says whether
a detector can run at all: that is the install's.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final

import attrs

from svc.store.postgres.database import READ_TIMEOUT_S, Connection, Database

#: Waiting traces that are counted; beyond it does not matter how many they are.
WAITING_COUNTED: Final = 100_000
_LATELY: Final = timedelta(days=1)

# How far each got, and how many subjects it judges.
_JUDGED: Final = """
select coalesce(j.detector, b.detector) as detector, j.judged_at, j.until_slot,
    j.failed_at is not null and (j.judged_at is null or j.failed_at > j.judged_at) as failing,
    coalesce(b.n, 0) as buckets
from (select * from judge_state where project_id = $1) j
full join (select detector, count(*) as n from bucket_state where project_id = $1 group by 1) b
    using (detector)
"""


@attrs.frozen
class DetectorHealth:
    """What is known of one detector. `until_slot` is the end of what it has judged."""

    buckets: int = 0
    live_findings: int = 0
    events: int = 0
    last_event_at: datetime | None = None
    judged_at: datetime | None = None
    until_slot: int | None = None
    failing: bool = False


@attrs.frozen
class DetectionHealth:
    """Of a project: traces that wait, at most `WAITING_COUNTED`; the newest slot counted; each detector."""

    waiting: int
    newest_slot: int | None
    detectors: Mapping[str, DetectorHealth]


@attrs.define(eq=False)
class DetectorHealthStore:
    """Raises `Outage`."""

    database: Database

    async def of(self, project_id: int, now: datetime) -> DetectionHealth:
        """How detection of a project is doing; detectors that left nothing behind are missing."""

        async def work(connection: Connection) -> DetectionHealth:
            # Down the key, not further than anybody wants to know. A trace that grew while it waited stands
            # in the queue twice.
            waiting = await connection.fetchval(
                "select count(distinct trace_id) from (select trace_id from fold_due where project_id = $1"
                f" order by place limit {WAITING_COUNTED}) w",
                project_id,
            )
            newest = await connection.fetchval(
                "select newest_slot from fold_state where project_id = $1", project_id
            )
            by_detector: dict[str, dict[str, Any]] = {}
            for row in await connection.fetch(_JUDGED, project_id):
                by_detector[row["detector"]] = {
                    name: row[name] for name in ("judged_at", "until_slot", "failing", "buckets")
                }
            # What each said within a day, along the index of time.
            for row in await connection.fetch(
                "select classifier_id, count(*) as n, max(created_at) as last from classifier_event"
                " where project_id = $1 and created_at >= $2 group by 1",
                project_id,
                now - _LATELY,
            ):
                fields = by_detector.setdefault(row["classifier_id"], {})
                fields |= {"events": row["n"], "last_event_at": row["last"]}
            # What lives, along the index of live causes.
            for row in await connection.fetch(
                "select detector, count(*) as n from finding where project_id = $1 and closed_at is null"
                " group by 1",
                project_id,
            ):
                by_detector.setdefault(row["detector"], {})["live_findings"] = row["n"]
            return DetectionHealth(
                waiting, newest, {name: DetectorHealth(**fields) for name, fields in by_detector.items()}
            )

        return await self.database.run(work, readonly=True, snapshot=True, timeout_s=READ_TIMEOUT_S)

    async def newest_slot(self, project_id: int) -> int | None:
        """The newest slot that was counted, None before anything was."""
        rows = await self.database.fetch(
            "select newest_slot from fold_state where project_id = $1", project_id
        )
        return rows[0]["newest_slot"] if rows else None

    async def muted(self, project_id: int, detector: str, now: datetime) -> set[str]:
        """The references of a detector whose live findings stand in muted cases."""
        # Along the index of live causes.
        rows = await self.database.fetch(
            "select distinct f.reference from finding f"
            " join case_finding l on l.project_id = f.project_id and l.finding_id = f.id"
            " join detection_case c on c.project_id = l.project_id and c.id = l.case_id"
            " where f.project_id = $1 and f.detector = $2 and f.closed_at is null"
            " and f.reference is not null and c.state = 'muted'"
            " and (c.muted_until is null or c.muted_until > $3)",
            project_id,
            detector,
            now,
            timeout_s=READ_TIMEOUT_S,
        )
        return {row["reference"] for row in rows}
