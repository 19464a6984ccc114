"""The users of a project over a range: what each ran, what failed for them and what they cost.

Called by the page of users. Bounded: the newest `MOST_TRACES` traces of the range are read by the index on
their start, and the answer says when there are more. Users are those that traces name; it never looks into
payloads.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from typing import Final, Literal

import attrs

from svc.store.postgres.clauses import Where
from svc.store.postgres.database import READ_TIMEOUT_S, Database

#: Traces of the range that are looked through, the newest first.
MOST_TRACES: Final = 20_000

#: Users without which a median says nothing.
LEAST_USERS: Final = 30

UserOrder = Literal["seen", "traces", "failed", "cost"]
#: What each order sorts by, ties by the name.
_ORDERS: Final[dict[UserOrder, str]] = {
    "failed": "failing desc, failed desc, traces desc",
    "traces": "traces desc",
    "seen": "last_seen desc",
    "cost": "cost desc nulls last, traces desc",
}
ORDERS: Final = tuple(_ORDERS)


#: What the traces of one user come to.
_SUMS: Final = (
    "select user_id, count(*) as traces, count(distinct session_id) as sessions,"
    " count(*) filter (where status = 'error') as failed,"
    " count(*) filter (where error_count > 0) as failing, sum(total_cost) as cost,"
    " coalesce(sum(unpriced_spans), 0)::bigint as unpriced, max(started_at) as last_seen"
)


def _newest(where: str, most: str) -> str:
    """The newest traces of a range, so many at most."""
    return (
        "with newest as materialized (select user_id, session_id, status, error_count, total_cost,"
        f" unpriced_spans, started_at from trace where {where}"
        f" order by started_at desc, trace_id desc limit {most})"
    )


@attrs.frozen
class UserSums:
    """What the traces of one user come to. `failed` counts traces, `failing` those with any failed span."""

    user_id: str
    traces: int
    sessions: int
    failed: int
    failing: int
    cost: Decimal | None
    unpriced: int
    last_seen: datetime


@attrs.frozen
class UserPage:
    """Some users, how many there are in all, and since when traces were read where those are not all."""

    users: Sequence[UserSums]
    count: int
    since: datetime | None


@attrs.frozen
class UserBeside:
    """What one user comes to, and the median of all users of the same traces. Shares are of traces with any
    failed span; `since` is as in `UserPage`.
    """

    own: UserSums
    users: int
    traces: float
    sessions: float
    failing_share: float
    cost: Decimal
    since: datetime | None


@attrs.define(eq=False)
class UserReads:
    """Reads users of one project at a time. Raises `Outage`."""

    database: Database

    async def page(
        self,
        project_id: int,
        low: datetime,
        high: datetime,
        *,
        q: str = "",
        failing: bool = False,
        order: UserOrder = "failed",
        limit: int,
        offset: int = 0,
        most: int = MOST_TRACES,
    ) -> UserPage:
        """The users of traces that began in the range, whose id holds `q` in any case of letters."""
        where = Where.of(project_id)
        where.within("started_at", low, high)
        most_value = where.value(most)
        matching = Where(["user_id is not null"], where.values)
        if q:
            matching.contains(("user_id",), q)
        limit_value, offset_value = where.value(limit), where.value(offset)
        # Traces down the index on their start, the oldest of them and their number, then one row a user.
        rows = await self.database.fetch(
            f"{_newest(where.sql(), most_value)},"
            f" users as ({_SUMS} from newest where {matching.sql()} group by 1"
            f"{' having count(*) filter (where error_count > 0) > 0' if failing else ''}),"
            " bounds as (select count(*) as read_traces, min(started_at) as oldest from newest)"
            " select u.*, b.*, (select count(*) from users) as all_users from bounds b left join"
            f" (select * from users order by {_ORDERS[order]}, user_id limit {limit_value}"
            f" offset {offset_value}) u on true order by {_ORDERS[order]}, user_id",
            *where.values,
            timeout_s=READ_TIMEOUT_S,
        )
        names = [field.name for field in attrs.fields(UserSums)]
        users = [
            UserSums(**{name: row[name] for name in names}) for row in rows if row["user_id"] is not None
        ]
        first = rows[0]
        return UserPage(users, first["all_users"], first["oldest"] if first["read_traces"] >= most else None)

    async def beside(
        self, project_id: int, user_id: str, low: datetime, high: datetime, *, most: int = MOST_TRACES
    ) -> UserBeside | None:
        """One user beside the median of all; None of too few users, or of one whom no trace names."""
        where = Where.of(project_id)
        where.within("started_at", low, high)
        most_value, user_value = where.value(most), where.value(user_id)
        # Traces down the index on their start, one row a user, and their medians.
        rows = await self.database.fetch(
            f"{_newest(where.sql(), most_value)},"
            f" users as ({_SUMS} from newest where user_id is not null group by 1),"
            " medians as (select count(*) as users,"
            " percentile_cont(0.5) within group (order by traces) as median_traces,"
            " percentile_cont(0.5) within group (order by sessions) as median_sessions,"
            " percentile_cont(0.5) within group (order by failing::float8 / traces) as median_failing,"
            " percentile_disc(0.5) within group (order by coalesce(cost, 0)) as median_cost from users),"
            " bounds as (select count(*) as read_traces, min(started_at) as oldest from newest)"
            f" select * from users, medians, bounds where user_id = {user_value}",
            *where.values,
            timeout_s=READ_TIMEOUT_S,
        )
        if not rows or rows[0]["users"] < LEAST_USERS:
            return None
        row = rows[0]
        return UserBeside(
            UserSums(**{field.name: row[field.name] for field in attrs.fields(UserSums)}),
            row["users"],
            row["median_traces"],
            row["median_sessions"],
            row["median_failing"],
            row["median_cost"],
            row["oldest"] if row["read_traces"] >= most else None,
        )
