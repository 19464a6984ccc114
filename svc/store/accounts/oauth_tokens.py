"""The tokens of grants: codes are redeemed, refresh tokens rotate, applications give back what they have.

Owns the table `oauth_refresh`, and the rows of `api_key` with the purpose `oauth`, which are access tokens.

Ordering: a grant's row is locked before its tokens change, so that of two uses of one code or refresh token
the second sees the first.

Secrets: refresh tokens and access tokens are made here, handed out once and stored as digests.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

import attrs
import trio

from protocol.tokens import OAUTH_PURPOSE, lookup_prefix, new_token
from svc.domain.accounts.oauth import verifies
from svc.store.accounts.keys import CHANNEL, secret_hash_of
from svc.store.accounts.oauth import MEMBER, MEMBER_ROLES, REFRESH_TERM, digest_of
from svc.store.accounts.oauth_ends import EndedGrant, end_in
from svc.store.postgres.database import Connection, Database

ACCESS_TERM: Final = timedelta(hours=1)
#: Used refresh tokens of a grant that are still recognized.
USED_KEPT: Final = 100


@attrs.frozen
class OAuthTokens:
    """The tokens of a grant, on their only way out."""

    access: str = attrs.field(repr=False)
    refresh: str = attrs.field(repr=False)


@attrs.define(eq=False)
class OAuthTokenStore:
    """Issues the tokens of grants, and ends grants whose tokens are in wrong hands."""

    database: Database
    hashers: trio.CapacityLimiter

    async def redeem(
        self, code: str, *, client_id: str, redirect_uri: str, verifier: str, resource: str
    ) -> OAuthTokens | EndedGrant | None:
        """The first tokens of a grant, for its code.

        None for a code that nobody has. A second use, or one by whoever cannot prove that the code was meant
        for them, ends the grant.
        """
        digest = digest_of(code)

        async def claim(connection: Connection) -> tuple[Any, bool]:
            grant = await connection.fetchrow(
                "select id, client_id, redirect_uri, project_id, resource, challenge,"
                " code_used_at is null and code_expires_at > now() as fresh"
                f" from oauth_grant g where code_digest = $1 and exists ({MEMBER}) for update",
                digest,
                MEMBER_ROLES,
            )
            if grant is None or not (
                grant["fresh"]
                and grant["client_id"] == client_id
                and grant["redirect_uri"] == redirect_uri
                and resource in ("", grant["resource"])
                and verifies(verifier, grant["challenge"])
            ):
                return grant, False
            await connection.execute("update oauth_grant set code_used_at = now() where id = $1", grant["id"])
            return grant, True

        return await self._tokens("select from oauth_grant where code_digest = $1", digest, claim)

    async def refresh(self, token: str, *, client_id: str, resource: str) -> OAuthTokens | EndedGrant | None:
        """New tokens for a refresh token, which is used up. A second use of one ends the grant."""
        digest = digest_of(token)

        async def claim(connection: Connection) -> tuple[Any, bool]:
            grant = await connection.fetchrow(
                "select g.id, g.client_id, g.project_id, g.resource from oauth_refresh r"
                " join oauth_grant g on g.id = r.grant_id and g.expires_at > now()"
                f" where r.digest = $1 and exists ({MEMBER}) for update of g",
                digest,
                MEMBER_ROLES,
            )
            if grant is None:
                return None, False
            # Read behind the lock: whoever came first has used it.
            unused = await connection.fetchval(
                "update oauth_refresh set used_at = now() where digest = $1 and used_at is null"
                " returning true",
                digest,
            )
            is_theirs = grant["client_id"] == client_id and resource in ("", grant["resource"])
            return grant, unused is not None and is_theirs

        return await self._tokens("select from oauth_refresh where digest = $1", digest, claim)

    async def give_back(self, token: str, client_id: str) -> EndedGrant | None:
        """End the grant of a refresh token, as its application asks (RFC 7009)."""

        async def work(connection: Connection) -> EndedGrant | None:
            grant = await connection.fetchrow(
                "select g.id, g.project_id from oauth_refresh r join oauth_grant g on g.id = r.grant_id"
                " where r.digest = $1 and g.client_id = $2 for update of g",
                digest_of(token),
                client_id,
            )
            return None if grant is None else await _ended(connection, grant)

        return await self.database.run(work)

    async def give_back_access(self, key_id: str, client_id: str) -> EndedGrant | None:
        """End the grant of an access token that was verified, as its application asks."""

        async def work(connection: Connection) -> EndedGrant | None:
            grant = await connection.fetchrow(
                "select g.id, g.project_id from api_key k join oauth_grant g"
                " on k.minted_by = 'oauth:' || g.id::text where k.id = $1 and k.purpose = $3"
                " and g.client_id = $2 for update of g",
                UUID(key_id),
                client_id,
                OAUTH_PURPOSE,
            )
            return None if grant is None else await _ended(connection, grant)

        return await self.database.run(work)

    async def _tokens(
        self, known: str, digest: bytes, claim: Callable[[Connection], Awaitable[tuple[Any, bool]]]
    ) -> OAuthTokens | EndedGrant | None:
        """Fresh tokens of the grant that `claim` locks and uses, if that may be; if not, the grant ends.

        None are made for a secret that nobody has.
        """
        if not await self.database.fetch(known, digest):
            return None
        tokens = OAuthTokens(new_token("admin"), f"svc_r_{secrets.token_urlsafe(32)}")
        secret_hash = await trio.to_thread.run_sync(secret_hash_of, tokens.access, limiter=self.hashers)

        async def work(connection: Connection) -> OAuthTokens | EndedGrant | None:
            grant, may_have_tokens = await claim(connection)
            if grant is None:
                return None
            if not may_have_tokens:
                return await _ended(connection, grant)
            await _issue(connection, grant, tokens, secret_hash)
            return tokens

        return await self.database.run(work)


async def _ended(connection: Connection, grant: Any) -> EndedGrant:
    """The grant is over: its application gave it back, or somebody has what only it should have."""
    return EndedGrant(grant["project_id"], await end_in(connection, [grant["id"]], f"oauth:{grant['id']}"))


async def _issue(connection: Connection, grant: Any, tokens: OAuthTokens, secret_hash: bytes) -> None:
    minted_by = f"oauth:{grant['id']}"
    # What is under way with the token before goes on; those before that are over, however fast tokens are
    # asked for.
    old = await connection.fetch(
        "delete from api_key where (project_id, id) in (select project_id, id from api_key"
        " where purpose = $2 and minted_by = $1 order by created_at desc, id offset 1) returning id::text",
        minted_by,
        OAUTH_PURPOSE,
    )
    await connection.execute(
        "select pg_notify($1, 'key:' || id) from unnest($2::text[]) as deleted (id)",
        CHANNEL,
        [row["id"] for row in old],
    )
    await connection.execute(
        "insert into api_key (project_id, name, scope, token_prefix, secret_hash, minted_by, purpose,"
        " expires_at) select project_id, client_name, 'admin', $2, $3, $4, $5, now() + $6::interval"
        " from oauth_grant where id = $1",
        grant["id"],
        lookup_prefix(tokens.access),
        secret_hash,
        minted_by,
        OAUTH_PURPOSE,
        ACCESS_TERM,
    )
    await connection.execute(
        "insert into oauth_refresh (digest, grant_id) values ($1, $2)", digest_of(tokens.refresh), grant["id"]
    )
    await connection.execute(
        "delete from oauth_refresh where digest in (select digest from oauth_refresh where grant_id = $1"
        f" order by made_at desc, digest offset {USED_KEPT})",
        grant["id"],
    )
    await connection.execute(
        "update oauth_grant set refreshed_at = now(), expires_at = now() + $2::interval where id = $1",
        grant["id"],
        REFRESH_TERM,
    )
