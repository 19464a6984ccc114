"""What people set of marks: which are stated in a project, and of which a rise is reported.

Owns the table `mark_setting`. The fronts set it; tallying reads which marks are off, judges which are muted.
Each change is audited in its transaction. What is read is always whole: every mark of the table is there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import attrs

from svc.domain.marks.table import MARK_NAMES, MarkName
from svc.store.accounts.audit import record
from svc.store.postgres.database import READ_TIMEOUT_S, Connection, Database

# By key; what is not said stays as it is.
_SET: Final = """
insert into mark_setting as s (project_id, mark, enabled, muted)
values ($1, $2, coalesce($3, true), coalesce($4, false))
on conflict (project_id, mark) do update
set enabled = coalesce($3, s.enabled), muted = coalesce($4, s.muted)
returning enabled, muted
"""


@attrs.frozen
class MarkSetting:
    """One mark in one project: one that is not `enabled` is not stated, a `muted` one is never reported."""

    enabled: bool = True
    muted: bool = False


@attrs.define(eq=False)
class MarkSettingStore:
    """All verbs raise `Outage`."""

    database: Database

    async def of(self, project_id: int) -> Mapping[MarkName, MarkSetting]:
        """The settings of every mark."""
        rows = await self.database.fetch(
            "select mark, enabled, muted from mark_setting where project_id = $1",
            project_id,
            timeout_s=READ_TIMEOUT_S,
        )
        settings = {row["mark"]: MarkSetting(row["enabled"], row["muted"]) for row in rows}
        return {name: settings.get(name, MarkSetting()) for name in MARK_NAMES}

    async def set(
        self, project_id: int, mark: MarkName, *, enabled: bool | None, muted: bool | None, actor: str
    ) -> MarkSetting:
        """Set either of a mark, or both; None leaves it."""

        async def work(connection: Connection) -> MarkSetting:
            row: Any = await connection.fetchrow(_SET, project_id, mark, enabled, muted)
            changes = {"enabled": enabled, "muted": muted}
            await record(
                connection,
                "mark.update",
                actor=actor,
                project_id=project_id,
                subject=("mark", mark),
                details={name: value for name, value in changes.items() if value is not None},
            )
            return MarkSetting(row["enabled"], row["muted"])

        return await self.database.run(work)
