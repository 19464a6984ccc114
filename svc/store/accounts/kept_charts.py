"""Kept charts: questions of Explore that a project has on its Overview, in an order of its own.

Owns the table `kept_chart`. Pages and the REST API keep, list, rename, move and remove; what a question means
is theirs to read. Bounded: a project has at most `MOST_CHARTS`. Keeping, renaming and removing are audited in
their own transaction, without title and question: both may name a user who is erased later.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final, Literal
from uuid import UUID

import attrs

from svc.store.accounts.audit import Action, record
from svc.store.accounts.projects import lock_project
from svc.store.postgres.database import READ_TIMEOUT_S, Connection, Database

MOST_CHARTS: Final = 12
TITLE_CHARS: Final = 80
QUESTION_CHARS: Final = 1_000
#: A chart of a range of its own covers so many days at most.
RANGE_DAYS: Final = 366

Unkept = Literal["too many", "kept already"]
Direction = Literal["up", "down"]

# A chart changes places with its neighbour; at the end of the order nothing moves.
_MOVE: Final = """
with placed as (
    select id, row_number() over (order by position, id) as place from kept_chart where project_id = $1
), pair as (
    select a.place as place, b.place as other from placed a join placed b on b.place = a.place + $3
    where a.id = $2
)
update kept_chart c
set position = case placed.place when pair.place then pair.other when pair.other then pair.place
    else placed.place end
from placed, pair where c.project_id = $1 and c.id = placed.id
"""


@attrs.frozen
class KeptChart:
    """A title, and what stands behind the question mark. `kept_by` is how the audit names people."""

    id: UUID
    title: str
    question: str
    kept_by: str
    kept_at: datetime


@attrs.define(eq=False)
class KeptChartStore:
    """All verbs raise `Outage`."""

    database: Database

    async def list(self, project_id: int) -> Sequence[KeptChart]:
        """All of a project, in their order."""
        rows = await self.database.fetch(
            "select id, title, question, kept_by, kept_at from kept_chart where project_id = $1"
            " order by position, id",
            project_id,
            timeout_s=READ_TIMEOUT_S,
        )
        return [KeptChart(**dict(row.items())) for row in rows]

    async def keep(self, project_id: int, title: str, question: str, kept_by: str) -> KeptChart | Unkept:
        """Keep a chart behind the others, or say why not."""

        async def work(connection: Connection) -> KeptChart | Unkept:
            await lock_project(connection, project_id)
            # At most twelve rows.
            rows = await connection.fetch(
                "select question, position from kept_chart where project_id = $1", project_id
            )
            if question in [row["question"] for row in rows]:
                return "kept already"
            if len(rows) >= MOST_CHARTS:
                return "too many"
            # Behind all others.
            row: Any = await connection.fetchrow(
                "insert into kept_chart (project_id, title, question, position, kept_by)"
                " values ($1, $2, $3, $4, $5) returning id, kept_at",
                project_id,
                title,
                question,
                max((row["position"] for row in rows), default=0) + 1,
                kept_by,
            )
            await _note(connection, "chart.keep", project_id, row["id"], kept_by)
            return KeptChart(row["id"], title, question, kept_by, row["kept_at"])

        return await self.database.run(work)

    async def rename(self, project_id: int, chart_id: UUID, title: str, actor: str) -> bool:
        """Give a chart another title. Whether it is there."""
        return await self._change(
            "chart.rename",
            project_id,
            chart_id,
            actor,
            "update kept_chart set title = $3 where project_id = $1 and id = $2 returning id",
            title,
        )

    async def remove(self, project_id: int, chart_id: UUID, actor: str) -> bool:
        """Take a chart off the board. Whether it was there."""
        return await self._change(
            "chart.remove",
            project_id,
            chart_id,
            actor,
            "delete from kept_chart where project_id = $1 and id = $2 returning id",
        )

    async def move(self, project_id: int, chart_id: UUID, direction: Direction) -> None:
        """Have a chart and its neighbour change places; the first cannot go up, nor the last down."""

        async def work(connection: Connection) -> None:
            await lock_project(connection, project_id)
            await connection.execute(_MOVE, project_id, chart_id, -1 if direction == "up" else 1)

        await self.database.run(work)

    async def _change(
        self, action: Action, project_id: int, chart_id: UUID, actor: str, sql: str, *values: str
    ) -> bool:
        async def work(connection: Connection) -> bool:
            # One row, by its key.
            if await connection.fetchval(sql, project_id, chart_id, *values) is None:
                return False
            await _note(connection, action, project_id, chart_id, actor)
            return True

        return await self.database.run(work)


async def _note(connection: Connection, action: Action, project_id: int, chart_id: UUID, actor: str) -> None:
    await record(
        connection, action, actor=actor, project_id=project_id, subject=("kept_chart", str(chart_id))
    )
