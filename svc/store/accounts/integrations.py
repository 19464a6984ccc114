"""Integrations of an organization: model providers and Git, their secrets as sealed text.

Owns the table `integration`. Nothing here can open what is sealed; the front and the command line seal and
open. Each change is audited in its transaction.

Secrets: only sealed text is stored, and the audit holds names and providers.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final, Literal
from uuid import UUID

import asyncpg
import attrs

from svc.store.accounts.audit import record
from svc.store.accounts.projects import lock_org
from svc.store.postgres.database import Connection, Database

#: What an organization may have; a list of them is one answer.
INTEGRATIONS_MAX: Final = 200

_COLUMNS: Final = (
    "id, org_id, kind, provider, name, base_url, username, sealed, created_at, updated_at, region"
)


@attrs.frozen
class Integration:
    """One row. `sealed` is None when it needs no secret."""

    id: UUID
    org_id: int
    kind: Literal["model_provider", "git"]
    provider: str
    name: str
    base_url: str | None
    username: str | None
    sealed: str | None = attrs.field(repr=False)
    created_at: datetime
    updated_at: datetime
    #: Where a cloud's model service is asked.
    region: str | None = None

    @property
    def purpose(self) -> str:
        """What its secret is sealed for."""
        return f"integration {self.org_id} {self.id}"


@attrs.frozen
class NameTaken:
    """The answer when another integration of the same kind has this name."""


@attrs.frozen
class TooMany:
    """The answer when the organization has as many as it may."""


@attrs.define(eq=False)
class IntegrationStore:
    """Reads and changes integrations. All verbs raise `Outage`."""

    database: Database

    async def list(self, org_id: int) -> Sequence[Integration]:
        """Those of an organization, by kind and name."""
        rows = await self.database.fetch(
            f"select {_COLUMNS} from integration where org_id = $1 order by kind, name, id limit $2",
            org_id,
            INTEGRATIONS_MAX,
        )
        return [_integration(row) for row in rows]

    async def one(self, org_id: int, integration_id: UUID) -> Integration | None:
        """One of an organization, or None."""
        rows = await self.database.fetch(
            f"select {_COLUMNS} from integration where org_id = $1 and id = $2", org_id, integration_id
        )
        return _integration(rows[0]) if rows else None

    async def put(self, integration: Integration, actor: str) -> NameTaken | TooMany | None:
        """Insert it, or replace the one of its id."""

        async def work(connection: Connection) -> TooMany | None:
            await lock_org(connection, integration.org_id)
            count = await connection.fetchval(
                "select count(*) from integration where org_id = $1 and id <> $2",
                integration.org_id,
                integration.id,
            )
            if count >= INTEGRATIONS_MAX:
                return TooMany()
            # The whole row; its beginning stays.
            await connection.execute(
                f"insert into integration ({_COLUMNS}) values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)"
                " on conflict (org_id, id) do update set kind = excluded.kind, provider = excluded.provider,"
                " name = excluded.name, base_url = excluded.base_url, username = excluded.username,"
                " sealed = excluded.sealed, updated_at = excluded.updated_at, region = excluded.region",
                integration.id,
                integration.org_id,
                integration.kind,
                integration.provider,
                integration.name,
                integration.base_url,
                integration.username,
                integration.sealed,
                integration.created_at,
                integration.updated_at,
                integration.region,
            )
            await _record(connection, "provider.update", integration, actor)
            return None

        try:
            return await self.database.run(work)
        except asyncpg.UniqueViolationError:
            return NameTaken()

    async def remove(self, integration: Integration, actor: str) -> bool:
        """Remove it. Returns whether it was there."""

        async def work(connection: Connection) -> bool:
            removed_id = await connection.fetchval(
                "delete from integration where org_id = $1 and id = $2 returning id",
                integration.org_id,
                integration.id,
            )
            if removed_id is not None:
                await _record(connection, "provider.delete", integration, actor)
            return removed_id is not None

        return await self.database.run(work)

    async def all_sealed(self) -> Sequence[Integration]:
        """Every integration with a sealed secret, of all organizations."""
        # A table of settings: a handful of rows each.
        rows = await self.database.fetch(
            f"select {_COLUMNS} from integration where sealed is not null order by org_id, kind, name"
        )
        return [_integration(row) for row in rows]

    async def reseal(self, integration: Integration, sealed: str) -> bool:
        """Replace the sealed text, unless somebody has changed it meanwhile."""
        # Only in place of what was opened.
        rows = await self.database.fetch(
            "update integration set sealed = $4 where org_id = $1 and id = $2 and sealed = $3 returning id",
            integration.org_id,
            integration.id,
            integration.sealed,
            sealed,
        )
        return bool(rows)


async def _record(
    connection: Connection,
    action: Literal["provider.update", "provider.delete"],
    integration: Integration,
    actor: str,
) -> None:
    await record(
        connection,
        action,
        actor=actor,
        org_id=integration.org_id,
        subject=("integration", str(integration.id)),
        details={
            "kind": integration.kind,
            "provider": integration.provider,
            "name": integration.name,
            "base_url": integration.base_url,
        },
    )


def _integration(row: Any) -> Integration:
    return Integration(**dict(row.items()))
