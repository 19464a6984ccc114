"""What every page of a project shows around it: the projects beside it, and how many cases are open."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from protocol.rest.query import timestamp_or_none
from svc.store.postgres.database import Database


@attrs.frozen
class Around:
    """The living projects of the organization as slug and name, the oldest first; open cases of the one."""

    projects: Sequence[tuple[str, str]]
    open_cases: int


@attrs.frozen
class Beat:
    """Open cases of a project, and when its newest trace began, as we print it; null without traces."""

    open_cases: int
    newest: str | None


@attrs.define(eq=False)
class FrameReads:
    """Reads for one page at a time."""

    database: Database

    async def of(self, org_id: int, project_id: int, visible_ids: frozenset[int] | None) -> Around:
        """What stands around a page of this project, with the projects that are seen (None: all)."""
        rows = await self.database.fetch(
            # The projects, few of them, each with the count that only the one asked for needs.
            "select slug, name, (select count(*) from detection_case"
            " where project_id = $2 and state = 'open') as open_cases"
            " from project where org_id = $1 and deleted_at is null"
            " and ($3::bigint[] is null or id = any($3)) order by id limit 200",
            org_id,
            project_id,
            None if visible_ids is None else list(visible_ids),
        )
        return Around([(row["slug"], row["name"]) for row in rows], rows[0]["open_cases"] if rows else 0)

    async def pulse(self, project_id: int) -> Beat:
        """What a page that stays open asks again and again."""
        rows = await self.database.fetch(
            # One row by the index on started_at, and the few open cases.
            "select (select count(*) from detection_case where project_id = $1 and state = 'open')"
            " as open_cases, (select started_at from trace where project_id = $1"
            " order by started_at desc limit 1) as newest",
            project_id,
        )
        newest = rows[0]["newest"]
        return Beat(rows[0]["open_cases"], timestamp_or_none(newest))
