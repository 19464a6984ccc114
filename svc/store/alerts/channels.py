"""Channels of a project: where alerts go, their secrets as sealed text.

Owns the table `alert_channel`, but for how a try went, which is with the deliveries. Nothing here can open
what is sealed. Each act of a person is audited in its transaction.

Secrets: only sealed text is stored; the audit holds names and kinds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal
from uuid import UUID

import asyncpg
import attrs
import msgspec

from protocol.alerts import CHANNELS_MAX, AlertChannel
from svc.store.accounts.audit import Action, record
from svc.store.accounts.projects import lock_project
from svc.store.postgres.database import Connection, Database

COLUMNS: Final = (
    "a.project_id, a.id, a.kind, a.name, a.params::text as params, a.sealed, a.created_at, a.updated_at,"
    " a.failures, a.rests_until, a.last_error, a.last_sent_at, a.off_at"
)

#: Why a change was not made.
Unchanged = Literal["taken", "too many"]


@attrs.define(eq=False)
class AlertChannelStore:
    """Reads and changes channels. All verbs raise `Outage`."""

    database: Database

    async def list(self, project_id: int) -> Sequence[AlertChannel]:
        """Those of a project, by name."""
        rows = await self.database.fetch(
            f"select {COLUMNS} from alert_channel a where a.project_id = $1 order by a.name limit $2",
            project_id,
            CHANNELS_MAX,
        )
        return [channel_of(row) for row in rows]

    async def one(self, project_id: int, channel_id: UUID) -> AlertChannel | None:
        """One of a project, or None."""
        rows = await self.database.fetch(
            f"select {COLUMNS} from alert_channel a where a.project_id = $1 and a.id = $2",
            project_id,
            channel_id,
        )
        return channel_of(rows[0]) if rows else None

    async def put(
        self, channel: AlertChannel, actor: str, action: Action = "alert_channel.update"
    ) -> Unchanged | None:
        """Insert it, or replace the one of its id. What was wrong with it is forgotten."""

        async def work(connection: Connection) -> Unchanged | None:
            await lock_project(connection, channel.project_id)
            count = await connection.fetchval(
                "select count(*) from alert_channel where project_id = $1 and id <> $2",
                channel.project_id,
                channel.id,
            )
            if count >= CHANNELS_MAX:
                return "too many"
            # The whole row; its beginning stays.
            await connection.execute(
                "insert into alert_channel (project_id, id, kind, name, params, sealed, created_at,"
                " updated_at) values ($1, $2, $3, $4, $5::text::jsonb, $6, $7, $8)"
                " on conflict (project_id, id) do update set name = excluded.name,"
                " params = excluded.params, sealed = excluded.sealed, updated_at = excluded.updated_at,"
                " failures = 0, rests_until = null, last_error = null, off_at = null",
                channel.project_id,
                channel.id,
                channel.kind,
                channel.name,
                msgspec.json.encode(channel.params).decode(),
                channel.sealed,
                channel.created_at,
                channel.updated_at,
            )
            await audit_channel(connection, action, channel, actor)
            return None

        try:
            return await self.database.run(work)
        except asyncpg.UniqueViolationError:
            return "taken"

    async def remove(self, channel: AlertChannel, actor: str) -> bool:
        """Remove it with what waits for it, and take it out of every rule. Returns whether it was there."""

        async def work(connection: Connection) -> bool:
            # What waits for it is not sent any more.
            await connection.execute(
                "update alert_delivery set state = 'dead', failure = 'the channel was removed',"
                " lease_token = null, lease_until = null, ended_at = now()"
                " where project_id = $1 and channel_id = $2 and state = 'queued'",
                channel.project_id,
                channel.id,
            )
            # Rules that lead to it lead elsewhere, or nowhere.
            await connection.execute(
                "update alert_rule set channels = array_remove(channels, $2)"
                " where project_id = $1 and $2 = any(channels)",
                channel.project_id,
                channel.id,
            )
            removed_id = await connection.fetchval(
                "delete from alert_channel where project_id = $1 and id = $2 returning id",
                channel.project_id,
                channel.id,
            )
            if removed_id is not None:
                await audit_channel(connection, "alert_channel.delete", channel, actor)
            return removed_id is not None

        return await self.database.run(work)

    async def tested(self, channel: AlertChannel, actor: str) -> None:
        """Note that somebody had a test message sent."""
        await self.database.run(
            lambda connection: audit_channel(connection, "alert_channel.test", channel, actor)
        )

    async def all_sealed(self) -> Sequence[AlertChannel]:
        """Every channel with a sealed secret, of all projects."""
        # A table of settings: a handful of rows each.
        rows = await self.database.fetch(
            f"select {COLUMNS} from alert_channel a where a.sealed is not null order by a.project_id, a.name"
        )
        return [channel_of(row) for row in rows]

    async def reseal(self, channel: AlertChannel, sealed: str) -> bool:
        """Replace the sealed text, unless somebody has changed it meanwhile."""
        # Only in place of what was opened.
        rows = await self.database.fetch(
            "update alert_channel set sealed = $4 where project_id = $1 and id = $2 and sealed = $3"
            " returning id",
            channel.project_id,
            channel.id,
            channel.sealed,
            sealed,
        )
        return bool(rows)


async def audit_channel(connection: Connection, action: Action, channel: AlertChannel, actor: str) -> None:
    """Record what somebody did to a channel, in the transaction of it."""
    await record(
        connection,
        action,
        actor=actor,
        project_id=channel.project_id,
        subject=("alert_channel", str(channel.id)),
        details={"kind": channel.kind, "name": channel.name},
    )


def channel_of(row: Any) -> AlertChannel:
    """A row, read; its columns as `COLUMNS` has them."""
    fields = {field.name: row[field.name] for field in attrs.fields(AlertChannel)}
    return AlertChannel(**{**fields, "params": msgspec.json.decode(fields["params"])})
