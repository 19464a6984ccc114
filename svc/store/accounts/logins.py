"""Sign-ins: one row a living session of a person, ended by deleting it.

Owns the table `login_session`. The secret of a session is made here, handed out once to be sealed into a
cookie, and stored as its SHA-256 digest. Every replica reads the row on every request, so a session that was
ended is refused by the very next one.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Final
from uuid import UUID

import attrs

from svc.store.accounts.known import KnownAddresses, forget_addresses
from svc.store.postgres.database import Connection, Database

SESSION_DAYS: Final = 7
SECRET_BYTES: Final = 32
#: Sign-ins of one account at once; the oldest go.
SESSIONS_BOUND: Final = 100
SEEN_EVERY: Final = timedelta(minutes=1)


@attrs.frozen
class Login:
    """A living session and whose it is."""

    id: UUID
    account_id: UUID
    email: str
    email_key: str


@attrs.frozen
class LoginRow:
    """A living session as its owner sees it."""

    id: UUID
    created_at: datetime
    last_seen_at: datetime
    expires_at: datetime
    address: str
    user_agent: str


@attrs.define(eq=False)
class LoginStore:
    """Opens, finds and ends sessions."""

    database: Database
    known: KnownAddresses

    async def open(
        self, account_id: UUID, *, address: str, place: str, user_agent: str, replacing: bytes | None
    ) -> bytes:
        """A new session; the one whose secret is `replacing` ends. Returns the secret, once.

        `address` is shown to the account's owner; `place` is what it is recognized by the next time.
        """
        secret = secrets.token_bytes(SECRET_BYTES)

        async def work(connection: Connection) -> None:
            # What the browser held before must not live on beside the new one.
            await connection.execute("delete from login_session where digest = $1", _digest(replacing or b""))
            # Expired sessions of any account go, except those that another transaction deletes.
            await connection.execute(
                "delete from login_session where id in (select id from login_session"
                " where expires_at <= now() order by expires_at limit 100 for update skip locked)"
            )
            await connection.execute(
                "insert into login_session (digest, account_id, expires_at, address, user_agent)"
                f" values ($1, $2, now() + interval '{SESSION_DAYS} days', $3, $4)",
                _digest(secret),
                account_id,
                address[:100],
                user_agent.replace("\x00", "")[:300],
            )
            # Only the newest live on.
            await connection.execute(
                "delete from login_session where id in (select id from login_session where account_id = $1"
                f" order by created_at desc, id offset {SESSIONS_BOUND})",
                account_id,
            )
            await self.known.remember(connection, account_id, place)

        await self.database.run(work)
        return secret

    async def find(self, secret: bytes) -> Login | None:
        """The living session behind a secret. Notes at most once a minute that it was seen."""

        async def work(connection: Connection) -> Login | None:
            row = await connection.fetchrow(
                "select s.id, s.account_id, a.email, a.email_key,"
                " s.last_seen_at < now() - $2::interval as stale"
                " from login_session s join account a on a.id = s.account_id"
                " where s.digest = $1 and s.expires_at > now()",
                _digest(secret),
                SEEN_EVERY,
            )
            if row is None:
                return None
            if row["stale"]:
                await connection.execute(
                    "update login_session set last_seen_at = now() where id = $1", row["id"]
                )
            return Login(row["id"], row["account_id"], row["email"], row["email_key"])

        # Every request of a browser comes by here: a transaction would be two more journeys to the server.
        return await self.database.run(work, transaction=False, timeout_s=8.0)

    async def list(self, account_id: UUID) -> Sequence[LoginRow]:
        """The living sessions of an account, newest first."""
        # At most as many as may live.
        rows = await self.database.fetch(
            "select id, created_at, last_seen_at, expires_at, address, user_agent from login_session"
            " where account_id = $1 and expires_at > now() order by created_at desc, id",
            account_id,
        )
        return [LoginRow(**dict(row.items())) for row in rows]

    async def end(self, account_id: UUID, session_id: UUID) -> bool:
        """End one session of an account. Returns whether it lived."""
        return await self._delete("account_id = $1 and id = $2", account_id, session_id) > 0

    async def end_others(self, account_id: UUID, but: UUID) -> int:
        """End all sessions of an account but one. Returns how many lived."""
        return await self._delete("account_id = $1 and id <> $2", account_id, but)

    async def _delete(self, where: str, *values: UUID) -> int:
        rows = await self.database.fetch(f"delete from login_session where {where} returning id", *values)
        return len(rows)


async def end_all(connection: Connection, account_id: UUID, *, but: UUID | None = None) -> int:
    """End the sessions of an account within the caller's transaction. Returns how many there were.

    When all of them end, the places they came from are forgotten too.
    """
    if but is None:
        await forget_addresses(connection, account_id)
    # All of them, or all but the one that asks.
    rows = await connection.fetch(
        "delete from login_session where account_id = $1 and ($2::uuid is null or id <> $2) returning id",
        account_id,
        but,
    )
    return len(rows)


def _digest(secret: bytes) -> bytes:
    return sha256(secret).digest()
