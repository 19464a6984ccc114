"""The certificate of a name and its challenges, in tables, so that any copy can show and answer them.

Owns the tables `certificate` and `acme_challenge` and the channel `tls`, on which each change is told. Called
by the actor that keeps the certificate, and by the plain port.

Secrets: account key, certificate and key lie in one sealed text; the sealing is handed in.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Final

import attrs
import msgspec

from protocol.certificates import Challenge, ChallengeKind, Kept, Pair
from protocol.sealed import Lost
from svc.store.postgres.database import Connection, Database

CHANNEL: Final = "tls"


class _Row(msgspec.Struct):
    account_key: str | None
    account_url: str | None
    directory_url: str | None
    proven_by: ChallengeKind | None
    chain: str | None
    key: str | None


@attrs.frozen
class PostgresCertificateStore:
    """The store of one domain, shared by all copies."""

    database: Database
    domain: str
    seal: Callable[[str], str] = attrs.field(repr=False)
    unseal: Callable[[str], str | Lost] = attrs.field(repr=False)

    async def load(self) -> Kept:
        """What is kept; nothing when it cannot be opened any more, as with a new key: it is got anew."""
        # The row of this name.
        rows = await self.database.fetch("select sealed from certificate where domain = $1", self.domain)
        text = self.unseal(rows[0]["sealed"]) if rows else None
        if text is None or isinstance(text, Lost):
            return Kept()
        row = msgspec.json.decode(text, type=_Row)
        pair = None if row.chain is None or row.key is None else Pair(_bytes(row.chain), _bytes(row.key))
        account_key = None if row.account_key is None else _bytes(row.account_key)
        return Kept(account_key, row.account_url, row.directory_url, row.proven_by, pair)

    async def keep(self, kept: Kept) -> None:
        """Write it and tell the others."""
        row = _Row(
            None if kept.account_key is None else _text(kept.account_key),
            kept.account_url,
            kept.directory_url,
            kept.proven_by,
            None if kept.pair is None else _text(kept.pair.chain),
            None if kept.pair is None else _text(kept.pair.key),
        )
        sealed = self.seal(msgspec.json.encode(row).decode())

        async def work(connection: Connection) -> None:
            # The newest stands.
            await connection.execute(
                "insert into certificate (domain, sealed) values ($1, $2)"
                " on conflict (domain) do update set sealed = excluded.sealed, changed_at = now()",
                self.domain,
                sealed,
            )
            await _tell(connection)

        await self.database.run(work)

    async def publish(self, challenge: Challenge) -> None:
        """Let every copy answer this challenge from now on."""

        async def work(connection: Connection) -> None:
            # Those that somebody left behind are over.
            await connection.execute("delete from acme_challenge where expires_at < now()")
            # A token comes once; an authority that repeats one means the same.
            await connection.execute(
                "insert into acme_challenge (token, kind, domain, key_authorization) values ($1, $2, $3, $4)"
                " on conflict (token) do nothing",
                challenge.token,
                challenge.kind,
                challenge.domain,
                challenge.key_authorization,
            )
            await _tell(connection)

        await self.database.run(work)

    async def withdraw(self, challenge: Challenge) -> None:
        """Answer it no longer."""

        async def work(connection: Connection) -> None:
            # This one.
            await connection.execute("delete from acme_challenge where token = $1", challenge.token)
            await _tell(connection)

        await self.database.run(work)

    async def challenges(self) -> Sequence[Challenge]:
        """Those that are waited for."""
        # The newest first: of two orders only the last is of interest.
        rows = await self.database.fetch(
            "select kind, domain, token, key_authorization from acme_challenge"
            " where domain = $1 and expires_at > now() order by expires_at desc limit 10",
            self.domain,
        )
        return [Challenge(row["kind"], row["domain"], row["token"], row["key_authorization"]) for row in rows]

    async def answer(self, token: str) -> str | None:
        """The key authorization of a token that is waited for."""
        # One look-up by key; anybody may ask.
        rows = await self.database.fetch(
            "select key_authorization from acme_challenge where token = $1 and expires_at > now()",
            token,
            timeout_s=2.0,
        )
        return rows[0]["key_authorization"] if rows else None

    def notices(self) -> AbstractAsyncContextManager[AsyncIterator[str]]:
        """Hear of every change. The iterator raises `Outage` when it goes deaf."""
        return self.database.listening(CHANNEL)


async def _tell(connection: Connection) -> None:
    # Heard when the transaction is committed.
    await connection.execute("select pg_notify($1, '')", CHANNEL)


def _text(data: bytes) -> str:
    return b64encode(data).decode()


def _bytes(text: str) -> bytes:
    return b64decode(text)
