"""From where people signed in before, so that a stranger's guesses at a password do not keep them out.

Owns the table `known_address`. Called when a session opens and when a limit on tries was met. At most
`KNOWN_BOUND` addresses an account, the oldest go; who is signed out everywhere has none.

Secrets: an address is kept as its HMAC under a key of this instance; the table alone names nobody's address.
"""

from __future__ import annotations

import hmac
from typing import Final
from uuid import UUID

import attrs

from svc.store.postgres.database import Connection, Database

#: Addresses kept of one account.
KNOWN_BOUND: Final = 20


@attrs.frozen
class KnownAddresses:
    """Remembers and recognizes client addresses. `days` is how long one stays known; 0 knows none."""

    database: Database
    key: bytes = attrs.field(repr=False)
    days: int

    async def remember(self, connection: Connection, account_id: UUID, address: str) -> None:
        """Note, within the caller's transaction, that an account signed in from an address."""
        if not self.days:
            return
        # This one is the newest.
        await connection.execute(
            "insert into known_address (account_id, digest) values ($1, $2)"
            " on conflict (account_id, digest) do update set seen_at = now()",
            account_id,
            self._digest(address),
        )
        # What is past its days, and the oldest above the bound.
        await connection.execute(
            "delete from known_address where account_id = $1"
            " and (seen_at <= now() - make_interval(days => $2) or digest in"
            " (select digest from known_address where account_id = $1"
            f" order by seen_at desc, digest offset {KNOWN_BOUND}))",
            account_id,
            self.days,
        )

    async def is_known(self, email_key: str, address: str) -> bool:
        """Whether the account of an e-mail address signed in from a client address within the days."""
        # One query by two keys; an account that does not exist has no known address.
        rows = await self.database.fetch(
            "select from known_address k join account a on a.id = k.account_id"
            " where a.email_key = $1 and k.digest = $2 and k.seen_at > now() - make_interval(days => $3)",
            email_key,
            self._digest(address),
            self.days,
        )
        return bool(rows)

    def _digest(self, address: str) -> bytes:
        return hmac.digest(self.key, address.encode(), "sha256")


async def forget_addresses(connection: Connection, account_id: UUID) -> None:
    """Within the caller's transaction, an account is known nowhere any more."""
    await connection.execute("delete from known_address where account_id = $1", account_id)
