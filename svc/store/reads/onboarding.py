"""How far a project is on the way to its first trace: key, request, span, settled trace."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

import attrs

from svc.store.postgres.database import Connection, Database
from svc.store.postgres.rows import SETTLED

#: Newest traces looked at for one that is settled.
_LOOKED_AT: Final = 50
#: Spans of the first trace that are drawn.
SPANS_DRAWN: Final = 12


@attrs.frozen
class DrawnSpan:
    """One span of the small drawing: where it begins and how long it takes, as parts of the whole trace."""

    name: str
    kind: str
    failed: bool
    start: float
    length: float


@attrs.frozen
class NewestTrace:
    """The newest trace that is settled, else the newest one."""

    trace_id: str
    name: str
    started_at: datetime
    settled: bool
    spans: int
    latency_ms: float | None
    tagged: bool
    drawn: Sequence[DrawnSpan]


@attrs.frozen
class Steps:
    """What of the way is behind. `used_at`: when a key of the project was used last, as far as is written."""

    keys: int
    used_at: datetime | None
    trace: NewestTrace | None

    @property
    def done(self) -> bool:
        """Whether a settled trace is there."""
        return self.trace is not None and self.trace.settled


@attrs.define(eq=False)
class OnboardingReads:
    """Reads one project at a time."""

    database: Database

    async def steps(self, project_id: int) -> Steps:
        """How far it is."""

        async def work(connection: Connection) -> Steps:
            # Keys that can send: few rows by the project.
            keys = await connection.fetchrow(
                "select count(*) filter (where revoked_at is null) as n, max(last_used_at) as used_at"
                " from api_key where project_id = $1 and scope in ('write', 'admin')",
                project_id,
            )
            assert keys is not None, "an aggregate has one row"
            # The newest traces by the index on started_at; of those a settled one first.
            newest = await connection.fetchrow(
                "select * from (select trace_id, name, started_at, ended_at, first_started_at,"
                f" last_started_at, span_count, {SETTLED} as settled from trace where project_id = $1"
                f" order by started_at desc limit {_LOOKED_AT}) t order by settled desc, started_at desc"
                " limit 1",
                project_id,
            )
            drawn = [] if newest is None else await _spans(connection, project_id, newest)
            trace = None if newest is None else _trace(newest, drawn)
            return Steps(keys["n"], keys["used_at"], trace)

        return await self.database.run(work, readonly=True, snapshot=True)


async def _spans(connection: Connection, project_id: int, trace: Any) -> list[Any]:
    # The first spans of the trace, within its own days.
    return await connection.fetch(
        "select name, kind, status, tagged, started_at, coalesce(ended_at, started_at) as ended_at from span"
        " where project_id = $1 and trace_id = $2 and started_at between $3 and $4"
        f" order by started_at, span_id limit {SPANS_DRAWN}",
        project_id,
        trace["trace_id"],
        trace["first_started_at"],
        trace["last_started_at"],
    )


def _trace(row: Any, spans: list[Any]) -> NewestTrace:
    begin = min([row["started_at"], *(span["started_at"] for span in spans)])
    end = max([row["ended_at"] or row["started_at"], *(span["ended_at"] for span in spans)])
    whole_s = max((end - begin).total_seconds(), 1e-6)
    drawn = [
        DrawnSpan(
            span["name"],
            span["kind"],
            span["status"] == "error",
            (span["started_at"] - begin).total_seconds() / whole_s,
            max(0.0, (span["ended_at"] - span["started_at"]).total_seconds() / whole_s),
        )
        for span in spans
    ]
    took = None if row["ended_at"] is None else (row["ended_at"] - row["started_at"]).total_seconds() * 1000
    return NewestTrace(
        row["trace_id"].hex(),
        row["name"],
        row["started_at"],
        row["settled"],
        row["span_count"] or len(spans),
        took,
        all(span["tagged"] for span in spans),
        drawn,
    )
