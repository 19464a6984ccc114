"""A project as its readers see it: who it is, how much it holds, what watches it."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Final

import attrs

from svc.store.database import Connection, Database
from svc.store.span_reads import READ_TIMEOUT_S

#: Tables whose rows are counted, by the name of the count. Spans are counted from the cubes instead.
_COUNTED: Final = {
    "traces": "trace",
    "sessions": "session",
    "call_sites": "call_site",
    "cases": "detection_case",
    "findings": "finding",
    "failure_modes": "failure_mode",
    "chains": "chain",
}


@attrs.define(eq=False)
class ProjectReads:
    """Reads one project at a time."""

    database: Database

    async def one(self, project_id: int, now: datetime) -> dict[str, Any] | None:
        """`{id, slug, name, org, counts, packs, traces_last_day}`, or None when it is deleted."""

        async def work(connection: Connection) -> dict[str, Any] | None:
            # Who it is.
            project = await connection.fetchrow(
                "select p.id, p.slug, p.name, o.slug as org from project p"
                " join organization o on o.id = p.org_id"
                " where p.id = $1 and p.deleted_at is null",
                project_id,
            )
            if project is None:
                return None
            # How much it holds; each count walks an index of its own.
            counts: Any = await connection.fetchrow(
                "select "
                + ", ".join(
                    f"(select count(*) from {table} where project_id = $1) as {name}"
                    for name, table in _COUNTED.items()
                )
                + ", (select count(*) from detection_case where project_id = $1 and state = 'open')"
                " as open_cases,"
                " (select count(*) from trace where project_id = $1 and started_at >= $2) as traces_last_day",
                project_id,
                now - timedelta(days=1),
            )
            # What it engages.
            packs = await connection.fetch(
                "select id, name, version from pack where project_id = $1 order by id", project_id
            )
            counted = dict(counts.items())
            return {
                **dict(project.items()),
                "traces_last_day": counted.pop("traces_last_day"),
                "counts": counted,
                "packs": [dict(pack.items()) for pack in packs],
            }

        return await self.database.run(work, readonly=True, snapshot=True, timeout_s=READ_TIMEOUT_S)
