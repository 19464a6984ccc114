"""The census behind the heartbeat: the install's id, and how much there is.

Owns the table `instance_fact`. The id is a random UUID, made at the first census and kept for ever; an
instance that sends no heartbeat never has one.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final
from uuid import uuid4

import attrs

from protocol.storage import Census
from svc.store.postgres.database import Connection, Database

#: Traces are counted up to here: the highest bucket begins below.
TRACES_COUNTED: Final = 100_001


@attrs.define(eq=False)
class CensusStore:
    """Implements the `CensusTaker` port."""

    database: Database

    async def take(self, now: datetime) -> Census:
        """Count, and make the install's id if there is none yet. Raises `Outage`."""

        async def work(connection: Connection) -> Census:
            # The id, once; of two replicas that start at once, one makes it.
            await connection.execute(
                "insert into instance_fact (name, value) values ('install_id', $1) on conflict do nothing",
                str(uuid4()),
            )
            # The counts; traces down the index on created_at, project by project.
            row = await connection.fetchrow(
                "select (select value from instance_fact where name = 'install_id') as install_id,"
                " (select count(*) from organization) as orgs,"
                " (select count(*) from project where deleted_at is null) as projects,"
                " (select count(*) from (select from project p, lateral (select from trace t"
                "  where t.project_id = p.id and t.created_at >= $1 limit $2) seen limit $2) all_seen)"
                " as traces",
                now - timedelta(days=1),
                TRACES_COUNTED,
            )
            assert row is not None, "a select of counts has one row"
            return Census(row["install_id"], row["orgs"], row["projects"], row["traces"])

        return await self.database.run(work)
