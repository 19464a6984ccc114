"""Applications that people let read a project over MCP: registrations, and grants with their codes.

Owns the tables `oauth_client` and `oauth_grant`. Called by the OAuth doors, the consent page and the list of
what is connected.

Secrets: a code is made here, handed out once and stored as its digest.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Final
from uuid import UUID, uuid4

import attrs

from svc.domain.accounts.oauth import OAuthClient
from svc.store.accounts.audit import record
from svc.store.accounts.oauth_ends import EndedGrant, end_in
from svc.store.accounts.project_roles import KEY_MAKERS
from svc.store.postgres.database import Connection, Database

CLIENTS_BOUND: Final = 2_000
#: A registration that nobody let in is forgotten after this time.
UNUSED_TERM: Final = timedelta(days=1)
#: One that was let in, but has no grant any more.
IDLE_TERM: Final = timedelta(days=90)
GRANTS_BOUND: Final = 100
CODE_TERM: Final = timedelta(minutes=1)
REFRESH_TERM: Final = timedelta(days=30)
GRANTS_SHOWN: Final = 200
PROJECTS_SHOWN: Final = 200
#: Who may let an application in: whoever may make a key.
MEMBER_ROLES: Final = KEY_MAKERS
MEMBER: Final = (
    "select from membership m join project p on p.org_id = m.org_id and p.deleted_at is null"
    " left join project_membership r on r.project_id = p.id and r.account_id = m.account_id"
    " where m.account_id = g.account_id and p.id = g.project_id"
    " and (m.role = any($2::text[]) or r.role = any($2::text[]))"
)


@attrs.frozen
class GrantableProject:
    """A project that somebody may let applications read."""

    id: int
    slug: str
    name: str
    org_slug: str
    org_name: str


@attrs.frozen
class OAuthGrant:
    """What somebody let an application do, as lists show it."""

    id: UUID
    client_name: str
    redirect_uri: str
    email: str
    made_at: datetime
    refreshed_at: datetime | None
    last_used_at: datetime | None


@attrs.define(eq=False)
class OAuthStore:
    """Registers applications; keeps, lists and ends grants."""

    database: Database

    async def register(self, client: OAuthClient) -> bool:
        """Keep a registration; False when there are as many as there may be."""

        async def work(connection: Connection) -> bool:
            # Those whose time is over make room.
            await connection.execute(
                "delete from oauth_client c where case when used_at is null"
                " then made_at < now() - $1::interval else used_at < now() - $2::interval and not exists"
                " (select from oauth_grant g where g.client_id = c.id) end",
                UNUSED_TERM,
                IDLE_TERM,
            )
            registered: bool | None = await connection.fetchval(
                "insert into oauth_client (id, name, redirect_uris) select $1, $2, $3"
                f" where (select count(*) from oauth_client) < {CLIENTS_BOUND} returning true",
                client.id,
                client.name,
                list(client.redirect_uris),
            )
            return registered is True

        return await self.database.run(work)

    async def client(self, client_id: str) -> OAuthClient | None:
        """A registered application."""
        rows = await self.database.fetch(
            "select id, name, redirect_uris from oauth_client where id = $1"
            " and (used_at is not null or made_at >= now() - $2::interval)",
            client_id,
            UNUSED_TERM,
        )
        return OAuthClient(rows[0]["id"], rows[0]["name"], tuple(rows[0]["redirect_uris"])) if rows else None

    async def projects(self, account_id: UUID) -> Sequence[GrantableProject]:
        """The projects that somebody may let applications read, the oldest first."""
        rows = await self.database.fetch(
            "select p.id, p.slug, p.name, o.slug as org_slug, o.name as org_name from membership m"
            " join organization o on o.id = m.org_id"
            " join project p on p.org_id = o.id and p.deleted_at is null"
            " left join project_membership r on r.project_id = p.id and r.account_id = m.account_id"
            " where m.account_id = $1 and (m.role = any($2::text[]) or r.role = any($2::text[]))"
            f" order by p.id limit {PROJECTS_SHOWN}",
            account_id,
            MEMBER_ROLES,
        )
        return [GrantableProject(**dict(row.items())) for row in rows]

    async def allow(
        self,
        client: OAuthClient,
        account_id: UUID,
        project_id: int,
        *,
        redirect_uri: str,
        challenge: str,
        resource: str,
        actor: str,
    ) -> str | None:
        """A new grant: its code, once. None where this account may not let anybody read the project."""
        code, grant_id = secrets.token_urlsafe(32), uuid4()

        async def work(connection: Connection) -> str | None:
            # Those that are over, and codes that nobody redeemed.
            await connection.execute(
                "delete from oauth_grant where id in (select id from oauth_grant where expires_at <= now()"
                " order by expires_at limit 100 for update skip locked)"
            )
            inserted = await connection.fetchval(
                "insert into oauth_grant (id, client_id, client_name, redirect_uri, account_id, project_id,"
                " resource, code_digest, challenge, code_expires_at, expires_at)"
                " select $3, $4, $5, $6, g.account_id, g.project_id, $7, $8, $9, now() + $10::interval,"
                " now() + $10::interval from (select $1::uuid as account_id, $11::bigint as project_id) g"
                f" where exists ({MEMBER}) returning true",
                account_id,
                MEMBER_ROLES,
                grant_id,
                client.id,
                client.name,
                redirect_uri,
                resource,
                digest_of(code),
                challenge,
                CODE_TERM,
                project_id,
            )
            if inserted is None:
                return None
            await connection.execute("update oauth_client set used_at = now() where id = $1", client.id)
            # Only the newest live on.
            over = await connection.fetch(
                "select id from oauth_grant where account_id = $1"
                f" order by made_at desc, id offset {GRANTS_BOUND}",
                account_id,
            )
            await end_in(connection, [row["id"] for row in over], actor)
            await record(
                connection,
                "oauth.allow",
                actor=actor,
                project_id=project_id,
                subject=("oauth grant", str(grant_id)),
                details={"name": client.name, "client_id": client.id, "redirect_uri": redirect_uri},
            )
            return code

        return await self.database.run(work)

    async def grants(self, project_id: int) -> Sequence[OAuthGrant]:
        """The living grants of a project, the newest first."""
        rows = await self.database.fetch(
            "select g.id, g.client_name, g.redirect_uri, a.email, g.made_at, g.refreshed_at,"
            " (select max(k.last_used_at) from api_key k where k.purpose = 'oauth'"
            "  and k.minted_by = 'oauth:' || g.id::text) as last_used_at"
            " from oauth_grant g join account a on a.id = g.account_id"
            " where g.project_id = $1 and g.code_used_at is not null and g.expires_at > now()"
            f" order by g.made_at desc, g.id limit {GRANTS_SHOWN}",
            project_id,
        )
        return [OAuthGrant(**dict(row.items())) for row in rows]

    async def end(self, project_id: int, grant_id: str, *, actor: str) -> EndedGrant | None:
        """End a grant of a project."""
        try:
            sought_id = UUID(grant_id)
        except ValueError:
            return None

        async def work(connection: Connection) -> EndedGrant | None:
            living_id = await connection.fetchval(
                "select id from oauth_grant where id = $1 and project_id = $2", sought_id, project_id
            )
            return (
                None
                if living_id is None
                else EndedGrant(project_id, await end_in(connection, [living_id], actor))
            )

        return await self.database.run(work)


def digest_of(secret: str) -> bytes:
    """The stored form of a code or a refresh token: long random texts need no slow hash."""
    return sha256(secret.encode("utf-8", "replace")).digest()
