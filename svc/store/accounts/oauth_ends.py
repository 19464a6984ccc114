"""The end of a grant: it goes, its tokens are refused, every replica hears of it.

Called by the other OAuth stores, and by those that change members, passwords and sign-ins, within their
transactions.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from uuid import UUID

import attrs

from protocol.tokens import OAUTH_PURPOSE
from svc.store.accounts.audit import record
from svc.store.accounts.keys import CHANNEL
from svc.store.postgres.database import Connection


@attrs.frozen
class EndedGrant:
    """A grant that is over, and the ids of its access tokens that were alive."""

    project_id: int
    key_ids: Sequence[str]


async def end_grants(
    connection: Connection, account_id: UUID, actor: str, *, org_id: int | None = None
) -> Sequence[str]:
    """End the grants of an account within the caller's transaction: all, or those in an organization.

    Returns the ids of access tokens that were alive.
    """
    rows = await connection.fetch(
        "select g.id from oauth_grant g where g.account_id = $1 and ($2::bigint is null"
        " or g.project_id in (select p.id from project p where p.org_id = $2))",
        account_id,
        org_id,
    )
    return await end_in(connection, [row["id"] for row in rows], actor)


async def end_in(connection: Connection, grant_ids: Collection[UUID], actor: str) -> list[str]:
    """End these grants within the caller's transaction. Returns the ids of access tokens that were alive."""
    if not grant_ids:
        return []
    rows = await connection.fetch(
        "delete from oauth_grant where id = any($1::uuid[]) returning id, project_id, client_id, client_name",
        list(grant_ids),
    )
    for row in rows:
        await record(
            connection,
            "oauth.end",
            actor=actor,
            project_id=row["project_id"],
            subject=("oauth grant", str(row["id"])),
            details={"name": row["client_name"], "client_id": row["client_id"]},
        )
    return await _revoke_access(connection, [f"oauth:{row['id']}" for row in rows])


async def _revoke_access(connection: Connection, minted_by: list[str]) -> list[str]:
    revoked = await connection.fetch(
        "update api_key set revoked_at = now() where purpose = $2 and minted_by = any($1::text[])"
        " and revoked_at is null returning id::text",
        minted_by,
        OAUTH_PURPOSE,
    )
    key_ids = [row["id"] for row in revoked]
    # Every replica hears of each at the commit.
    await connection.execute(
        "select pg_notify($1, 'key:' || id) from unnest($2::text[]) as revoked (id)", CHANNEL, key_ids
    )
    return key_ids
