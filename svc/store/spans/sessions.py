"""Sessions: their first and last activity, kept up with every write and every roll-up of their traces.

Writers, the trace roller and the rework call it. Totals of a session are summed from its traces when somebody
asks; nothing here adds anything up.

Ordering: sessions are locked in one order, after the traces, so that none of them can deadlock.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import Final

import attrs

from svc.domain.traces.rollup import TraceRollup
from svc.store.postgres.database import Connection

#: A session by its project and its id.
SessionKey = tuple[int, str]

# Of traces that were rolled up, with the session that each had before: those that widen theirs, and those
# that left one. Batches that came apart may each say less than the whole: the one with the session may end
# early, and which span names the session is known once the root is there.
_MOVED: Final = """
select t.project_id, t.session_id, t.user_id, t.started_at, coalesce(t.ended_at, t.started_at) as last_at,
    was.session_id as previous_id
from unnest($1::bigint[], $2::bytea[], $3::text[]) as was (project_id, trace_id, session_id)
join trace t on t.project_id = was.project_id and t.trace_id = was.trace_id
left join session s on s.project_id = t.project_id and s.id = t.session_id
where was.session_id is distinct from t.session_id
    or t.started_at < s.started_at or coalesce(t.ended_at, t.started_at) > s.last_activity_at
    or s.user_id is null and t.user_id is not null and t.session_id is not null
"""


@attrs.frozen
class Activity:
    """What is known of a session from some of its traces."""

    user_id: str | None
    first_at: datetime
    last_at: datetime

    def beside(self, other: Activity) -> Activity:
        """Both together, of which this was known first."""
        return Activity(
            self.user_id or other.user_id,
            min(self.first_at, other.first_at),
            max(self.last_at, other.last_at),
        )


def activities(rollups: Mapping[tuple[int, bytes], TraceRollup]) -> dict[SessionKey, Activity]:
    """The activity of each session that these roll-ups belong to."""
    return _together(
        (
            (project_id, rollup.session_id),
            Activity(rollup.user_id, rollup.started_at, rollup.ended_at or rollup.started_at),
        )
        for (project_id, _trace_id), rollup in rollups.items()
        if rollup.session_id is not None
    )


def _together(pairs: Iterable[tuple[SessionKey, Activity]]) -> dict[SessionKey, Activity]:
    sessions: dict[SessionKey, Activity] = {}
    for key, activity in pairs:
        sessions[key] = sessions[key].beside(activity) if key in sessions else activity
    return sessions


async def touch_sessions(connection: Connection, sessions: Mapping[SessionKey, Activity]) -> None:
    """Widen the span of each session, making it when it is new."""
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
        [sessions[key].user_id for key in keys],
        [sessions[key].first_at for key in keys],
        [sessions[key].last_at for key in keys],
    )


async def follow_rollups(
    connection: Connection, rolled: Collection[tuple[tuple[int, bytes], str | None]]
) -> None:
    """After the roll-ups of these traces, each with the session that it had before."""
    rows = await connection.fetch(
        _MOVED,
        [project_id for (project_id, _), _ in rolled],
        [trace_id for (_, trace_id), _ in rolled],
        [session_id for _, session_id in rolled],
    )
    joined = _together(
        ((row["project_id"], row["session_id"]), Activity(row["user_id"], row["started_at"], row["last_at"]))
        for row in rows
        if row["session_id"] is not None
    )
    left = {
        (row["project_id"], row["previous_id"])
        for row in rows
        if row["previous_id"] not in (None, row["session_id"])
    }
    await move_sessions(connection, joined, left)


async def move_sessions(
    connection: Connection, joined: Mapping[SessionKey, Activity], left: Collection[SessionKey]
) -> None:
    """Touch what traces joined, and delete what they left if no trace belongs to it any more.

    Ordering: the lock waits for whoever is adding a trace to one that was left; the last statement then sees
    that trace. Locked by the order of their characters, as `touch_sessions` sorts them.
    """
    if not left:
        await touch_sessions(connection, joined)
        return
    all_keys, left_keys = sorted({*joined, *left}), sorted(left)
    await connection.execute(
        "select from session s join unnest($1::bigint[], $2::text[]) as asked (project_id, id)"
        ' using (project_id, id) order by s.project_id, s.id collate "C" for update of s',
        [project_id for project_id, _ in all_keys],
        [session_id for _, session_id in all_keys],
    )
    await touch_sessions(connection, joined)
    # The ones without any trace, by the index on a trace's session.
    await connection.execute(
        "delete from session s using unnest($1::bigint[], $2::text[]) as asked (project_id, id)"
        " where s.project_id = asked.project_id and s.id = asked.id and not exists"
        " (select from trace t where t.project_id = s.project_id and t.session_id = s.id)",
        [project_id for project_id, _ in left_keys],
        [session_id for _, session_id in left_keys],
    )
