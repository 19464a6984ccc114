"""Password attempts that one copy counted, for the others: written in batches, told, read once, thrown away.

Owns the table `try_count` and the channel `tries`. Rows of one copy become visible in their order, as that
copy writes one batch after the other, so each reader keeps its place for each copy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import attrs

from protocol.attempts import CountedAttempt, ReportedAttempt, ReportedAttempts
from svc.store.postgres.database import Connection, Database

CHANNEL: Final = "tries"
#: What is read at once: more attempts than this within a window no limit lets through.
MOST: Final = 10_000


@attrs.frozen
class PostgresAttemptStore:
    """The attempts as one copy, `copy`, tells and hears them. Beyond `window_s` nobody asks for one."""

    database: Database
    copy: str
    window_s: float

    async def tell(self, counted: Sequence[CountedAttempt]) -> None:
        """Let the others have these."""

        async def work(connection: Connection) -> None:
            # In their order.
            await connection.execute(
                "insert into try_count (copy, counts, name, change) select $1, counts, name, change"
                " from unnest($2::text[], $3::bytea[], $4::text[]) with ordinality"
                " as told (counts, name, change, place) order by place",
                self.copy,
                [attempt.limit for attempt in counted],
                [attempt.name for attempt in counted],
                [attempt.change for attempt in counted],
            )
            # What no window reaches any more.
            await connection.execute(
                "delete from try_count where at < now() - make_interval(secs => $1)", self.window_s
            )
            # Heard when the transaction is committed.
            await connection.execute("select pg_notify($1, '')", CHANNEL)

        await self.database.run(work)

    async def reported(self, seen: Mapping[str, int]) -> ReportedAttempts:
        """What others told that is not seen yet."""
        # Beyond the places that were reached; from a copy that is new, all within the window.
        rows = await self.database.fetch(
            "select id, copy, counts, name, change, extract(epoch from now() - at)::float8 as age_s"
            " from try_count left join unnest($2::text[], $3::bigint[]) reached (who, place) on who = copy"
            " where copy <> $1 and id > coalesce(place, 0) and at > now() - make_interval(secs => $4)"
            " order by id limit $5",
            self.copy,
            list(seen),
            list(seen.values()),
            self.window_s,
            MOST,
        )
        places = {**seen, **{row["copy"]: row["id"] for row in rows}}
        attempts = (
            ReportedAttempt(CountedAttempt(row["counts"], bytes(row["name"]), row["change"]), row["age_s"])
            for row in rows
        )
        return ReportedAttempts(places, tuple(attempts))
