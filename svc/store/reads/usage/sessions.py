"""Sessions read back: a page of identities, and one with its totals and traces."""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import Any, Final

import attrs

from svc.store.postgres.clauses import Where
from svc.store.postgres.database import READ_TIMEOUT_S, Connection, Database
from svc.store.postgres.keyset import Keyset
from svc.store.postgres.rows import SESSION_COLUMNS, SETTLED, plain, session_row, trace_row
from svc.store.spans.availability import STORED_TRACE, TRACE_BOUNDS, bounds, traces_with_payloads

LATEST_SESSIONS: Final = Keyset("sessions", (("last_activity_at", "moment"), ("id", "text")))
TRACES_SHOWN: Final = 1_000

_COLUMNS: Final = ", ".join(SESSION_COLUMNS)
#: What is wanted of the first trace of a session that shows what was asked.
_FIRST: Final = ("input_preview", "trace_id", *TRACE_BOUNDS)
_TRACE_COLUMNS: Final = ", ".join(STORED_TRACE)


@attrs.define(eq=False)
class SessionReads:
    """Reads sessions of one project at a time."""

    database: Database

    async def page(self, project_id: int, *, limit: int, cursor: str | None) -> dict[str, Any]:
        """`{sessions, next_cursor}`, most recently active first."""
        where = Where.of(project_id)
        names = [name for name, _ in LATEST_SESSIONS.columns]
        where.after(names, LATEST_SESSIONS.place(cursor))
        # One page and one row more, down the index on the last activity.
        sql = (
            f"select {_COLUMNS} from session where {where.sql()}"
            f" order by {', '.join(f'{name} desc' for name in names)} limit {where.value(limit + 1)}"
        )
        rows = await self.database.fetch(sql, *where.values, timeout_s=READ_TIMEOUT_S)
        page, next_cursor = LATEST_SESSIONS.page(rows, limit)
        return {"sessions": [session_row(row) for row in page], "next_cursor": next_cursor}

    async def one(self, project_id: int, session_id: str) -> dict[str, Any] | None:
        """A session with totals over all its traces and the oldest 1,000 of them, or None.

        A non-zero `unsettled_traces` makes every total a lower bound.
        """

        async def work(connection: Connection) -> Any:
            # Who it is.
            session = await connection.fetchrow(
                f"select {_COLUMNS} from session where project_id = $1 and id = $2", project_id, session_id
            )
            if session is None:
                return None
            # Sums over its traces; null where no trace knows.
            totals = await connection.fetchrow(
                "select count(*) as trace_count,"
                f" count(*) filter (where not ({SETTLED})) as unsettled_traces,"
                " coalesce(sum(span_count), 0)::bigint as span_count,"
                " coalesce(sum(error_count), 0)::bigint as error_count,"
                " sum(total_tokens)::bigint as total_tokens, sum(total_cost) as total_cost,"
                " coalesce(sum(unpriced_spans), 0)::bigint as unpriced_spans"
                " from trace where project_id = $1 and session_id = $2",
                project_id,
                session_id,
            )
            # Its traces, oldest first.
            traces = await connection.fetch(
                f"select {_TRACE_COLUMNS} from trace where project_id = $1 and session_id = $2"
                " order by started_at, trace_id limit $3",
                project_id,
                session_id,
                TRACES_SHOWN + 1,
            )
            available = await traces_with_payloads(connection, project_id, [bounds(row) for row in traces])
            return session, totals, traces, available

        session_parts = await self.database.run(work, readonly=True, snapshot=True, timeout_s=READ_TIMEOUT_S)
        if session_parts is None:
            return None
        session, totals, traces, available = session_parts
        return {
            **session_row(session),
            **{name: plain(value) for name, value in totals.items()},
            "traces": [
                trace_row(row, payload_available=row["trace_id"] in available)
                for row in traces[:TRACES_SHOWN]
            ],
            "traces_truncated": len(traces) > TRACES_SHOWN,
        }

    async def named(self, project_id: int, ids: Sequence[str]) -> list[dict[str, Any]]:
        """Those of these sessions that there are, most recently active first."""
        rows = await self.database.fetch(
            # By the key.
            f"select {_COLUMNS} from session where project_id = $1 and id = any($2::text[])"
            " order by last_activity_at desc, id desc",
            project_id,
            list(ids),
            timeout_s=READ_TIMEOUT_S,
        )
        return [session_row(row) for row in rows]

    async def known(self, project_id: int, session_id: str) -> bool:
        """Whether there is such a session."""
        rows = await self.database.fetch(
            # By the key.
            "select 1 from session where project_id = $1 and id = $2",
            project_id,
            session_id,
            timeout_s=READ_TIMEOUT_S,
        )
        return bool(rows)

    async def summaries(self, project_id: int, ids: Sequence[str]) -> dict[str, dict[str, Any]]:
        """What the traces of these sessions add up to, and the first text that was asked in each.

        `asked` is null, and `asked_available` false, where that text has aged out.
        """

        async def work(connection: Connection) -> tuple[list[Any], Set[bytes]]:
            # Sums by the index on session; the trace with the first text by the same.
            rows = await connection.fetch(
                "select session_id, count(*) as traces,"
                f" count(*) filter (where not ({SETTLED})) as unsettled,"
                " count(*) filter (where status = 'error') as failed,"
                " sum(total_tokens)::bigint as total_tokens, sum(total_cost) as total_cost,"
                " coalesce(sum(unpriced_spans), 0)::bigint as unpriced_spans,"
                f" (array_agg(row({', '.join(_FIRST)}) order by started_at)"
                " filter (where input_preview is not null))[1] as first"
                " from trace where project_id = $1 and session_id = any($2::text[]) group by 1",
                project_id,
                list(ids),
            )
            firsts = [tuple(row["first"])[1:] for row in rows if row["first"] is not None]
            return rows, await traces_with_payloads(connection, project_id, firsts)

        rows, available = await self.database.run(
            work, transaction=False, readonly=True, snapshot=True, timeout_s=READ_TIMEOUT_S
        )
        return {row["session_id"]: _summary(row, available) for row in rows}


def _summary(row: Any, available: Set[bytes]) -> dict[str, Any]:
    input_, trace_id = (None, None) if row["first"] is None else tuple(row["first"])[:2]
    has_payload = trace_id is None or trace_id in available
    fields = {name: plain(value) for name, value in row.items() if name != "first"}
    return {**fields, "asked": input_ if has_payload else None, "asked_available": has_payload}
