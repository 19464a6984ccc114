"""Reading feedback: entries of a trace, a session or a name. What each name says over a range is in `sums`.

Called by pages, REST and MCP. Answers are bounded: a page of entries, `SUBJECT_ENTRIES` of one trace.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

import attrs

from svc.domain.feedback.entries import THUMB, FeedbackSource
from svc.domain.quantities import percent, score
from svc.store.postgres.clauses import Where
from svc.store.postgres.database import READ_TIMEOUT_S, Database
from svc.store.postgres.keyset import Keyset

#: Entries of one trace or session that are shown with it.
SUBJECT_ENTRIES: Final = 200
#: Traces and entries of one session that its mean is made of, the newest.
SESSION_ENTRIES: Final = 500

_NEWEST: Final = Keyset("feedback", (("created_at", "moment"), ("source", "text"), ("id", "text")))
_COLUMNS: Final = (
    "id, source, name, trace_id, span_id, session_id, number, category, text, author, judged_at, created_at"
)

# What people and programs wrote, the newest first.
_WRITTEN: Final = f"""
select {_COLUMNS} from feedback where project_id = $1 and created_at >= $2 and text is not null
order by created_at desc limit $3
"""

# The mean of each trace's numbers of each name, and how many entries there are.
_OF_TRACES: Final = """
select trace_id, name, count(*) as entries, avg(number) as mean, max(category) as category
from feedback where project_id = $1 and trace_id = any($2::bytea[])
group by trace_id, name order by trace_id, name limit $3
"""

# The names that have numbers, thumbs first, then those that were said last.
_NUMBERED: Final = """
select name, low, high from feedback_name where project_id = $1 and low is not null
order by name <> $2, last_at desc, name limit $3
"""

# Of each session the mean of a name's numbers, of itself and of its traces.
_OF_SESSIONS: Final = f"""
select wanted.id, count(*) as entries, avg(given.number) as mean
from unnest($2::text[]) as wanted (id) cross join lateral (
    (select number from feedback where project_id = $1 and session_id = wanted.id and name = $3
        and number is not null limit {SESSION_ENTRIES})
    union all
    (select f.number from (select trace_id from trace where project_id = $1 and session_id = wanted.id
        order by started_at desc limit {SESSION_ENTRIES}) t
        join feedback f on f.project_id = $1 and f.trace_id = t.trace_id and f.name = $3
        and f.number is not null limit {SESSION_ENTRIES})
) given group by 1
"""

# Of each user the mean of a name's numbers: of the newest traces of a range, and of the sessions of those.
_OF_USERS: Final = f"""
with newest as materialized (
    select user_id, trace_id, session_id from trace where project_id = $1 and started_at >= $4
    and started_at < $5 order by started_at desc, trace_id desc limit $6
), chosen as materialized (select * from newest where user_id = any($2::text[]))
select given.user_id, count(*) as entries, avg(given.number) as mean from (
    select c.user_id, f.number from chosen c cross join lateral (
        select number from feedback where project_id = $1 and trace_id = c.trace_id and name = $3
        and number is not null limit {SUBJECT_ENTRIES}) f
    union all
    select s.user_id, f.number
    from (select distinct user_id, session_id from chosen where session_id is not null) s cross join lateral (
        select number from feedback where project_id = $1 and session_id = s.session_id and name = $3
        and number is not null limit {SUBJECT_ENTRIES}) f
) given group by 1
"""

# The newest entries of these sessions and of their traces, a bounded number of each.
_WITHIN_SESSIONS: Final = f"""
select {_COLUMNS} from (
    select given.* from unnest($2::text[]) as wanted (id) cross join lateral (
        (select {_COLUMNS} from feedback where project_id = $1 and session_id = wanted.id
            limit {SESSION_ENTRIES})
        union all
        (select f.* from (select trace_id from trace where project_id = $1 and session_id = wanted.id
            order by started_at desc limit {SESSION_ENTRIES}) t cross join lateral (
            select {_COLUMNS} from feedback where project_id = $1 and trace_id = t.trace_id
            limit {SUBJECT_ENTRIES}) f limit {SESSION_ENTRIES})
    ) given
) entries order by created_at desc, source desc, id desc limit $3
"""

# The newest entries of each of these traces.
_ENTRIES_OF_TRACES: Final = f"""
select f.* from unnest($2::bytea[]) as wanted (trace_id) cross join lateral (
    select {_COLUMNS} from feedback where project_id = $1 and trace_id = wanted.trace_id
    order by created_at desc, source desc, id desc limit {SUBJECT_ENTRIES}
) f
"""


@attrs.frozen
class FeedbackRow:
    """One entry as it is kept; ids of traces and spans are bytes."""

    id: str
    source: FeedbackSource
    name: str
    trace_id: bytes | None
    span_id: bytes | None
    session_id: str | None
    number: float | None
    category: str | None
    text: str | None = attrs.field(repr=False)
    author: str | None
    judged_at: datetime
    created_at: datetime


@attrs.frozen
class NumberedName:
    """A name whose entries have numbers, and the range of those so far."""

    name: str
    low: float
    high: float

    def written(self, mean: float) -> str:
        """A mean of its numbers: of thumbs and the like a share."""
        return percent(mean) if self.low >= 0 and self.high <= 1 else score(round(mean, 2))


@attrs.frozen
class TraceFeedback:
    """What a trace was given under one name: the mean of the numbers, or a category where there are none."""

    name: str
    entries: int
    mean: float | None
    category: str | None

    @property
    def verdict(self) -> str:
        """The number, else the category; nothing of a text alone."""
        return self.category or "" if self.mean is None else score(round(self.mean, 2))


@attrs.define(eq=False)
class FeedbackReads:
    """Raises `Outage`."""

    database: Database

    async def page(
        self,
        project_id: int,
        *,
        name: str | None = None,
        trace_id: bytes | None = None,
        session_id: str | None = None,
        limit: int,
        cursor: str | None = None,
    ) -> tuple[list[FeedbackRow], str | None]:
        """Entries, the newest first, and the cursor of the next page."""
        where = Where.of(project_id)
        where.equal("name", name)
        where.equal("trace_id", trace_id)
        where.equal("session_id", session_id)
        if (place := _NEWEST.place(cursor)) is not None:
            moment, source, id_ = (where.value(value) for value in place)
            where.add(f"(created_at, source, id) < ({moment}, {source}, {id_})")
        rows = await self.database.fetch(
            f"select {_COLUMNS} from feedback where {where.sql()}"
            f" order by created_at desc, source desc, id desc limit {where.value(limit + 1)}",
            *where.values,
            timeout_s=READ_TIMEOUT_S,
        )
        entries = [_row(row) for row in rows[:limit]]
        return entries, _NEWEST.cursor(rows[limit - 1]) if len(rows) > limit else None

    async def of_trace(self, project_id: int, trace_id: bytes) -> list[FeedbackRow]:
        """What was said of a trace and its spans, the newest first."""
        entries, _ = await self.page(project_id, trace_id=trace_id, limit=SUBJECT_ENTRIES)
        return entries

    async def entries_of_traces(
        self, project_id: int, trace_ids: Sequence[bytes]
    ) -> dict[bytes, list[FeedbackRow]]:
        """What was said of each of these traces and their spans, the newest first."""
        rows = await self.database.fetch(
            _ENTRIES_OF_TRACES, project_id, list(dict.fromkeys(trace_ids)), timeout_s=READ_TIMEOUT_S
        )
        by_trace: dict[bytes, list[FeedbackRow]] = {}
        for row in rows:
            by_trace.setdefault(row["trace_id"], []).append(_row(row))
        return by_trace

    async def of_session(self, project_id: int, session_id: str) -> list[FeedbackRow]:
        """What was said of a session itself, the newest first."""
        entries, _ = await self.page(project_id, session_id=session_id, limit=SUBJECT_ENTRIES)
        return entries

    async def of_traces(
        self, project_id: int, trace_ids: Sequence[bytes]
    ) -> dict[bytes, list[TraceFeedback]]:
        """What each of these traces was given, by name."""
        rows = await self.database.fetch(
            _OF_TRACES, project_id, list(trace_ids), 20 * len(trace_ids), timeout_s=READ_TIMEOUT_S
        )
        by_trace: dict[bytes, list[TraceFeedback]] = {}
        for row in rows:
            given = TraceFeedback(row["name"], row["entries"], row["mean"], row["category"])
            by_trace.setdefault(row["trace_id"], []).append(given)
        return by_trace

    async def written(self, project_id: int, low: datetime, limit: int) -> list[FeedbackRow]:
        """Entries with a text, the newest first."""
        rows = await self.database.fetch(_WRITTEN, project_id, low, limit, timeout_s=READ_TIMEOUT_S)
        return [_row(row) for row in rows]

    async def numbered(self, project_id: int, limit: int) -> list[NumberedName]:
        """Names whose entries have numbers."""
        rows = await self.database.fetch(_NUMBERED, project_id, THUMB, limit, timeout_s=READ_TIMEOUT_S)
        return [NumberedName(row["name"], row["low"], row["high"]) for row in rows]

    async def of_sessions(
        self, project_id: int, session_ids: Sequence[str], name: str
    ) -> dict[str, tuple[int, float]]:
        """How many numbers of a name each session and its traces were given, and their mean."""
        rows = await self.database.fetch(
            _OF_SESSIONS, project_id, list(session_ids), name, timeout_s=READ_TIMEOUT_S
        )
        return {row["id"]: (row["entries"], row["mean"]) for row in rows}

    async def of_users(
        self, project_id: int, user_ids: Sequence[str], name: str, low: datetime, high: datetime, most: int
    ) -> dict[str, tuple[int, float]]:
        """How many numbers of a name each user's traces and sessions were given, and their mean. Only the
        newest `most` traces of the range count.
        """
        if not user_ids:
            return {}
        rows = await self.database.fetch(
            *(_OF_USERS, project_id, list(user_ids), name, low, high, most),
            timeout_s=READ_TIMEOUT_S,
        )
        return {row["user_id"]: (row["entries"], row["mean"]) for row in rows}

    async def within_sessions(
        self, project_id: int, session_ids: Sequence[str], limit: int
    ) -> list[FeedbackRow]:
        """What was said of these sessions and their traces, the newest first."""
        rows = await self.database.fetch(
            _WITHIN_SESSIONS, project_id, list(session_ids), limit, timeout_s=READ_TIMEOUT_S
        )
        return [_row(row) for row in rows]

    async def refused(self, project_id: int) -> tuple[int, datetime] | None:
        """How many entries had a name that the project has no room for, and when the last of them came."""
        rows = await self.database.fetch(
            "select entries, last_at from feedback_refused where project_id = $1",
            project_id,
            timeout_s=READ_TIMEOUT_S,
        )
        return (rows[0]["entries"], rows[0]["last_at"]) if rows else None


def _row(row: Any) -> FeedbackRow:
    return FeedbackRow(**dict(row.items()))
