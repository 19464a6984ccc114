"""Sessions: their first and last activity, kept up with every write.

Totals of a session are summed from its traces when somebody asks; nothing here adds anything up.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from svc.domain.traces.rollup import TraceRollup
from svc.store.postgres.database import Connection


async def touch_sessions(connection: Connection, rollups: Mapping[tuple[int, bytes], TraceRollup]) -> None:
    """Widen the span of each session that these roll-ups belong to, making it when it is new.

    Ordering: sessions are locked in one order, after the traces, so that writers cannot deadlock.
    """
    sessions: dict[tuple[int, str], tuple[str | None, datetime, datetime]] = {}
    for (project_id, _trace_id), rollup in rollups.items():
        if rollup.session_id is None:
            continue
        key = (project_id, rollup.session_id)
        first_at, last_at = rollup.started_at, rollup.ended_at or rollup.started_at
        user_id, earlier, later = sessions.get(key, (rollup.user_id, first_at, last_at))
        sessions[key] = (user_id or rollup.user_id, min(first_at, earlier), max(last_at, later))
    if not sessions:
        return
    keys = sorted(sessions)
    # Insert or widen; a row that would not change is left alone, so that a busy session costs no dead rows.
    await connection.execute(
        "insert into session (project_id, id, user_id, started_at, last_activity_at)"
        " select * from unnest($1::bigint[], $2::text[], $3::text[], $4::timestamptz[], $5::timestamptz[])"
        " on conflict (project_id, id) do update set"
        " user_id = coalesce(session.user_id, excluded.user_id),"
        " started_at = least(session.started_at, excluded.started_at),"
        " last_activity_at = greatest(session.last_activity_at, excluded.last_activity_at)"
        " where excluded.started_at < session.started_at"
        " or excluded.last_activity_at > session.last_activity_at"
        " or (session.user_id is null and excluded.user_id is not null)",
        [project_id for project_id, _ in keys],
        [session_id for _, session_id in keys],
        [sessions[key][0] for key in keys],
        [sessions[key][1] for key in keys],
        [sessions[key][2] for key in keys],
    )


async def drop_empty_sessions(connection: Connection, project_id: int, session_ids: list[str]) -> None:
    """Delete those of these sessions that no trace belongs to any more.

    Ordering: the lock waits for whoever is adding a trace to one; the second statement then sees that trace.
    """
    if not session_ids:
        return
    # Locked in one order, as `touch_sessions` does.
    await connection.execute(
        "select from session where project_id = $1 and id = any($2::text[]) order by id for update",
        project_id,
        session_ids,
    )
    # The ones without any trace, by the index on a trace's session.
    await connection.execute(
        "delete from session s where s.project_id = $1 and s.id = any($2::text[]) and not exists"
        " (select from trace t where t.project_id = s.project_id and t.session_id = s.id)",
        project_id,
        session_ids,
    )
