"""A project as its readers see it: who it is, how much it holds, what watches it."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Final

import attrs

from svc.domain.detect.detectors.base import AGENT, SITE
from svc.domain.traces.agent_path import BETWEEN
from svc.store.postgres.database import READ_TIMEOUT_S, Database

#: Tables that stay small, whose rows are counted, by the name of the count.
_COUNTED: Final = {
    "call_sites": "call_site",
    "cases": "detection_case",
    "findings": "finding",
    "failure_modes": "failure_mode",
    "chains": "chain",
}
#: Tables that grow with traffic: their counts are kept (`svc.store.aggregates.counts`). Spans are counted by
#: the cubes.
_KEPT: Final = {"traces": "trace", "sessions": "session"}
_WATCHED: Final = ("traces_last_day", "call_sites_swept")

# Who it is, how much it holds and what it engages. One statement, so that all of it is of one moment.
_PROJECT: Final = (
    "select p.id, p.slug, p.name, o.slug as org, "
    + ", ".join(
        f"(select coalesce(sum(n), 0)::bigint from project_count c where c.project_id = $1"
        f" and c.counted = '{table}') as {name}"
        for name, table in _KEPT.items()
    )
    + ", "
    + ", ".join(
        f"(select count(*) from {table} t where t.project_id = $1) as {name}"
        for name, table in _COUNTED.items()
    )
    + ", (select count(*) from detection_case d where d.project_id = $1 and d.state = 'open')"
    " as open_cases,"
    " (select count(*) from trace t where t.project_id = $1 and t.started_at >= $2) as traces_last_day,"
    f" (select count(distinct regexp_replace(b.subject, '^{AGENT}(.*){BETWEEN}.*$', '{SITE}\\1'))"
    " from tally_bucket b where b.project_id = $1"
    f" and b.subject like any (array['{SITE}%', '{AGENT}%'])) as call_sites_swept,"
    " array(select array[k.id, k.name, k.version] from pack k where k.project_id = $1 order by k.id)"
    " as packs"
    " from project p join organization o on o.id = p.org_id where p.id = $1 and p.deleted_at is null"
)


@attrs.define(eq=False)
class ProjectReads:
    """Reads one project at a time."""

    database: Database

    async def slugs(self, project_id: int) -> tuple[str, str] | None:
        """The slugs of its organization and its own, as they stand in paths; None when it is deleted."""
        rows = await self.database.fetch(
            # By key.
            "select o.slug as org_slug, p.slug from project p join organization o on o.id = p.org_id"
            " where p.id = $1 and p.deleted_at is null",
            project_id,
            timeout_s=READ_TIMEOUT_S,
        )
        return (rows[0]["org_slug"], rows[0]["slug"]) if rows else None

    async def one(self, project_id: int, now: datetime) -> dict[str, Any] | None:
        """Who it is, what it holds, what it engages, what detectors looked at; None when it is deleted."""
        rows = await self.database.fetch(
            _PROJECT, project_id, now - timedelta(days=1), timeout_s=READ_TIMEOUT_S
        )
        if not rows:
            return None
        (row,) = rows
        return {
            **{name: row[name] for name in ("id", "slug", "name", "org", *_WATCHED)},
            "counts": {name: row[name] for name in (*_KEPT, *_COUNTED, "open_cases")},
            "packs": [
                {"id": pack_id, "name": name, "version": version} for pack_id, name, version in row["packs"]
            ],
        }
