"""API keys: made, listed, rotated, revoked; looked up by prefix; revocations announced to every replica.

Owns the table `api_key` and the notification channel `svc_keys`. A change, its announcement and its audit
row are one transaction, so a replica hears of a revocation exactly when it holds.

Secrets: only bcrypt hashes at cost 10 are stored. A plaintext is returned once by `create` and `rotate`
and is nowhere else.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import attrs
import bcrypt
import trio

from protocol.storage import Eviction, KeyRecord
from protocol.tokens import FEEDBACK_PURPOSE, MCP_PURPOSE, OAUTH_PURPOSE, Scope, lookup_prefix, new_token
from svc.store.accounts.audit import SYSTEM, Action, record
from svc.store.postgres.database import Connection, Database

CHANNEL: Final = "svc_keys"
BCRYPT_COST: Final = 10
#: Keys of somebody that are listed at once.
MINTED_SHOWN: Final = 1000


@attrs.frozen
class Key:
    """A key as it may be shown: never its secret."""

    id: str
    name: str
    scope: Scope
    token_prefix: str
    created_at: datetime
    last_used_at: datetime | None
    revoked_at: datetime | None
    minted_by: str
    #: What it was made for, if it opens nothing else.
    purpose: str | None = None

    @property
    def state(self) -> str:
        """`active` or `revoked` (spec, "API key lifecycle")."""
        return "active" if self.revoked_at is None else "revoked"


@attrs.frozen
class KeyOfSomebody:
    """An active key that somebody minted; `project` is a slug."""

    id: str
    project: str
    name: str
    scope: Scope
    token_prefix: str


@attrs.frozen
class Minted:
    """A key and its plaintext, on their only way out."""

    key: Key
    plaintext: str = attrs.field(repr=False)


@attrs.frozen
class NoSuchKey:
    """The answer when a key id is unknown or belongs to another project."""


@attrs.frozen
class AlreadyRevoked:
    """The answer when a revoked key is to be rotated."""


def matches(token: str, secret_hash: bytes) -> bool:
    """Whether a token is the one behind a hash. Tens of milliseconds of a core: call it in a thread."""
    return bcrypt.checkpw(token.encode(), secret_hash)


def secret_hash_of(token: str) -> bytes:
    """The stored form of a token. As slow as `matches`."""
    return bcrypt.hashpw(token.encode(), bcrypt.gensalt(BCRYPT_COST))


_SHOWN: Final = (
    "id::text, name, scope, token_prefix, created_at, last_used_at, revoked_at, minted_by, purpose"
)
# Those that people make and see. A key with another purpose is a run's, made and revoked by the service.
_PEOPLES: Final = f"(purpose is null or purpose in ('{FEEDBACK_PURPOSE}', '{MCP_PURPOSE}'))"


@attrs.define(eq=False)
class PostgresKeyStore:
    """Implements the `KeyStore` port, and the life cycle of keys for the command line and the fronts.

    `hashers` bounds how many secrets are hashed at once; the service lends the one of all its hashing.
    """

    database: Database
    hashers: trio.CapacityLimiter = attrs.field(factory=lambda: trio.CapacityLimiter(1))

    async def create(
        self,
        project_id: int,
        name: str,
        scope: Scope,
        *,
        actor: str,
        purpose: str | None = None,
        expires_at: datetime | None = None,
    ) -> Minted:
        """A new key. `name` must not be blank.

        One with a `purpose` opens nothing else; unless people make such keys, it has an end and is unlisted.
        """
        token = new_token(scope)
        secret_hash = await trio.to_thread.run_sync(secret_hash_of, token, limiter=self.hashers)

        async def work(connection: Connection) -> Key:
            # The new key; its secret as a hash only.
            row = await connection.fetchrow(
                "insert into api_key (project_id, name, scope, token_prefix, secret_hash, minted_by, purpose,"
                f" expires_at) values ($1, $2, $3, $4, $5, $6, $7, $8) returning {_SHOWN}",
                project_id,
                name,
                scope,
                lookup_prefix(token),
                secret_hash,
                actor,
                purpose,
                expires_at,
            )
            key = _key(row)
            await _record(connection, "key.create", project_id, key, actor)
            return key

        return Minted(await self.database.run(work), token)

    async def list(self, project_id: int) -> Sequence[Key]:
        """All keys of a project, newest first, revoked ones included."""
        rows = await self.database.fetch(
            f"select {_SHOWN} from api_key where project_id = $1 and {_PEOPLES} order by created_at desc, id",
            project_id,
        )
        return [_key(row) for row in rows]

    async def rotate(
        self, project_id: int, key_id: str, *, actor: str
    ) -> Minted | NoSuchKey | AlreadyRevoked:
        """A new secret for the same name and scope; the old one stops verifying at once."""
        previous = await self._find(project_id, key_id)
        if previous is None:
            return NoSuchKey()
        token = new_token(previous.scope)
        secret_hash = await trio.to_thread.run_sync(secret_hash_of, token, limiter=self.hashers)

        async def work(connection: Connection) -> Key | None:
            # The new secret, unless the key was revoked meanwhile. Who rotates sees the plaintext; behind
            # a key stands whoever minted that one.
            row = await connection.fetchrow(
                "update api_key set token_prefix = $3, secret_hash = $4, minted_by = coalesce("
                "(select by_key.minted_by from api_key by_key"
                " where by_key.project_id = $1 and 'key:' || by_key.id::text = $5), $5)"
                " where project_id = $1 and id = $2::uuid and revoked_at is null"
                f" returning {_SHOWN}",
                project_id,
                UUID(key_id),
                lookup_prefix(token),
                secret_hash,
                actor,
            )
            if row is None:
                return None
            key = _key(row)
            await _announce(connection, key.id)
            await _record(connection, "key.rotate", project_id, key, actor)
            return key

        key = await self.database.run(work)
        return AlreadyRevoked() if key is None else Minted(key, token)

    async def revoke(
        self,
        project_id: int,
        key_id: str,
        *,
        actor: str,
        scope: Scope | None = None,
        purpose: str | None = None,
    ) -> Key | NoSuchKey:
        """Revoke for good; twice is the same as once. With a `scope`, only a key of that scope.

        A key that was made for a purpose is revoked by whoever names that.
        """
        if _uuid(key_id) is None:
            return NoSuchKey()
        return await self.database.run(
            lambda connection: revoked_in(
                connection, project_id, key_id, actor=actor, scope=scope, purpose=purpose
            )
        )

    async def keys_behind(self, lookup_prefix: str) -> Sequence[KeyRecord]:
        """The keys behind a prefix, living ones first; more than one only by a rare coincidence."""
        # Candidates for a token; a deleted project has no keys that verify.
        rows = await self.database.fetch(
            "select k.id::text as key_id, k.project_id, k.scope, k.secret_hash, k.purpose, k.expires_at,"
            " k.revoked_at is not null or p.deleted_at is not null as revoked"
            " from api_key k join project p on p.id = k.project_id"
            " where k.token_prefix = $1 order by revoked, k.created_at limit 4",
            lookup_prefix,
            timeout_s=8.0,
        )
        return [KeyRecord(**dict(row.items())) for row in rows]

    async def sweep(self) -> int:
        """Revoke the keys with a purpose whose time is over, and forget those that were over for a week.

        Returns how many were revoked. Access tokens end every hour: the audit has their grants.
        """

        async def work(connection: Connection) -> int:
            # Those whose holder never came to revoke them.
            rows = await connection.fetch(
                "update api_key set revoked_at = now() where purpose <> $1 and revoked_at is null"
                f" and expires_at <= now() returning project_id, {_SHOWN}",
                OAUTH_PURPOSE,
            )
            for row in rows:
                key = _key({name: value for name, value in row.items() if name != "project_id"})
                await _announce(connection, key.id)
                await _record(connection, "key.revoke", row["project_id"], key, SYSTEM)
            # Their history is the audit's.
            await connection.execute(
                "delete from api_key where purpose is not null and expires_at <= now() - interval '7 days'"
            )
            return len(rows)

        return await self.database.run(work)

    async def note_used(self, used: dict[str, datetime]) -> None:
        """Write down when keys were used last; never moves backwards."""
        # One update for all of them.
        await self.database.fetch(
            "update api_key k set last_used_at = greatest(k.last_used_at, used.at)"
            " from unnest($1::uuid[], $2::timestamptz[]) as used (id, at) where k.id = used.id",
            [UUID(key_id) for key_id in used],
            list(used.values()),
        )

    @asynccontextmanager
    async def evictions(self) -> AsyncIterator[AsyncIterator[Eviction]]:
        """Hear of every change of a key, from any process. The iterator raises `Outage` when it goes deaf."""
        async with self.database.listening(CHANNEL) as payloads:

            async def notices() -> AsyncGenerator[Eviction, None]:
                async for payload in payloads:
                    kind, _, value = payload.partition(":")
                    yield Eviction(project_id=int(value)) if kind == "project" else Eviction(key_id=value)

            async with aclosing(notices()) as stream:
                yield stream

    async def _find(self, project_id: int, key_id: str) -> Key | None:
        if _uuid(key_id) is None:
            return None
        rows = await self.database.fetch(
            f"select {_SHOWN} from api_key where project_id = $1 and id = $2::uuid and {_PEOPLES}",
            project_id,
            UUID(key_id),
        )
        return _key(rows[0]) if rows else None


async def revoked_in(
    connection: Connection,
    project_id: int,
    key_id: str,
    *,
    actor: str,
    scope: Scope | None = None,
    purpose: str | None = None,
) -> Key | NoSuchKey:
    """Revoke a key within the caller's transaction, as `PostgresKeyStore.revoke` says."""
    # The key as it was; nobody else changes it until the commit.
    previous = await connection.fetchrow(
        f"select {_SHOWN} from api_key where project_id = $1 and id = $2::uuid"
        " and ($3::text is null or scope = $3)"
        f" and case when $4::text is null then {_PEOPLES} else purpose = $4 end for update",
        project_id,
        UUID(key_id),
        scope,
        purpose,
    )
    if previous is None or previous["revoked_at"] is not None:
        return NoSuchKey() if previous is None else _key(previous)
    row = await connection.fetchrow(
        f"update api_key set revoked_at = now() where project_id = $1 and id = $2::uuid returning {_SHOWN}",
        project_id,
        UUID(key_id),
    )
    key = _key(row)
    await _announce(connection, key.id)
    await _record(connection, "key.revoke", project_id, key, actor)
    return key


async def revoke_all(
    connection: Connection, project_id: int, actor: str, *, minted_by: str | None = None
) -> int:
    """Revoke the keys of a project within the caller's transaction: all, or those that somebody minted.

    Returns how many were active.
    """
    # Those that are active.
    rows = await connection.fetch(
        "update api_key set revoked_at = now() where project_id = $1 and revoked_at is null"
        f" and ($2::text is null or minted_by = $2) returning {_SHOWN}",
        project_id,
        minted_by,
    )
    for row in rows:
        await _record(connection, "key.revoke", project_id, _key(row), actor)
    # Every replica drops all it knows of the project, also keys that were revoked before.
    await connection.execute("select pg_notify($1, $2)", CHANNEL, f"project:{project_id}")
    return len(rows)


async def minted(connection: Connection, org_id: int, minted_by: str) -> tuple[list[KeyOfSomebody], int]:
    """The active keys in living projects whose plaintext somebody saw last, the newest first.

    At most `MINTED_SHOWN` of them, and how many there are.
    """
    # The keys and their projects, and the whole count on each row.
    rows = await connection.fetch(
        "select k.id::text, p.slug, k.name, k.scope, k.token_prefix, count(*) over () as n"
        " from api_key k join project p on p.id = k.project_id and p.deleted_at is null"
        f" where p.org_id = $1 and k.minted_by = $2 and k.revoked_at is null and {_PEOPLES}"
        f" order by k.created_at desc, k.id limit {MINTED_SHOWN}",
        org_id,
        minted_by,
    )
    keys = [
        KeyOfSomebody(row["id"], row["slug"], row["name"], row["scope"], row["token_prefix"]) for row in rows
    ]
    return keys, rows[0]["n"] if rows else 0


async def _record(connection: Connection, action: Action, project_id: int, key: Key, actor: str) -> None:
    await record(
        connection,
        action,
        actor=actor,
        project_id=project_id,
        subject=("key", key.id),
        details={
            "name": key.name,
            "scope": key.scope,
            "token_prefix": key.token_prefix,
            "minted_by": key.minted_by,
        },
    )


async def _announce(connection: Connection, key_id: str) -> None:
    # Delivered to every listener at the commit of this transaction.
    await connection.execute("select pg_notify($1, $2)", CHANNEL, f"key:{key_id}")


def _uuid(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None


def _key(row: Any) -> Key:
    return Key(**dict(row.items()))
