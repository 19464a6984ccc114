"""Accounts: found by address, verified by password or by an identity provider.

Owns the table `account`, but for what a sign-up makes (`admission.py`).

Secrets: only bcrypt hashes are stored. A password is hashed with SHA-256 first, because bcrypt reads no more
than 72 bytes. Hashing takes a tenth of a second of a core: it runs in threads, under the limiter that the
wiring lends, and exactly once for each sign-in and sign-up, whether or not the address is known.
"""

from __future__ import annotations

import unicodedata
from base64 import b64encode
from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Any, Final, TypeVar
from uuid import UUID

import attrs
import bcrypt
import trio

from protocol.storage import Outage
from svc.domain.accounts.access import OrgRole
from svc.store.accounts.admission import (
    SHOWN,
    Account,
    ByIdentity,
    ByPassword,
    EmailTaken,
    LooksAlike,
    NotAdmitted,
    Unverified,
    admit,
)
from svc.store.accounts.admission import account as as_account
from svc.store.accounts.audit import record
from svc.store.accounts.logins import end_all
from svc.store.accounts.oauth_ends import end_grants
from svc.store.accounts.projects import Org, the_org
from svc.store.postgres.database import Connection, Database

T = TypeVar("T")

#: People's passwords are weaker than our keys, so each guess costs twice as much.
BCRYPT_COST: Final = 11
#: Hashes that may wait for their turn; two at a time, they take less than a second and a half.
WAITING_BOUND: Final = 16


@attrs.frozen
class Place:
    """An organization that an account belongs to, and its role there."""

    org: Org
    role: OrgRole
    #: The living projects of the organization that the account sees; None: all.
    project_ids: frozenset[int] | None = None


def _digest(password: str) -> bytes:
    return b64encode(sha256(unicodedata.normalize("NFC", password).encode()).digest())


def _hash(password: str, cost: int) -> bytes:
    """The stored form of a password. Slow on purpose: call it in a thread."""
    return bcrypt.hashpw(_digest(password), bcrypt.gensalt(cost))


def _nobodys_hash(cost: int) -> bytes:
    """A hash that no password has, for addresses that are not known; checking against it costs the same."""
    return bcrypt.gensalt(cost) + b"." * 31


def _fits(password: str, hashed: bytes) -> bool:
    return bcrypt.checkpw(_digest(password), hashed)


@attrs.define(eq=False)
class AccountStore:
    """Makes and finds accounts. `hashers` bounds how many passwords are hashed at once."""

    database: Database
    hashers: trio.CapacityLimiter
    cost: int = BCRYPT_COST
    refused_full: int = 0

    async def sign_up(
        self, email: str, email_key: str, password: str, secret: str | None = None, *, owns: bool = False
    ) -> Account | NotAdmitted | EmailTaken | LooksAlike:
        """A new account with its place in the organization, or why not. A refusal creates nothing.

        `secret` is that of an invitation; `owns`: by the link that only the operator has.
        """
        password_hash = await self._in_turn(_hash, password, self.cost)
        return await self.database.run(
            lambda connection: admit(connection, email, email_key, ByPassword(password_hash, secret, owns))
        )

    async def _in_turn(self, hash_: Callable[..., T], *arguments: Any) -> T:
        """Hash in a thread. Raises `Outage` when too many wait: keys are verified under the same limiter."""
        if self.hashers.statistics().tasks_waiting >= WAITING_BOUND:
            self.refused_full += 1
            raise Outage("too many passwords wait to be hashed")
        return await trio.to_thread.run_sync(hash_, *arguments, limiter=self.hashers)

    async def sign_in(self, email_key: str, password: str) -> Account | None:
        """The account behind an address and its password, or None."""
        # The account and its hash; an unknown address is checked against nobody's.
        rows = await self.database.fetch(
            f"select {SHOWN}, password_hash from account where email_key = $1", email_key
        )
        has_password = bool(rows and rows[0]["has_password"])
        password_hash = rows[0]["password_hash"] if has_password else _nobodys_hash(self.cost)
        fits = await self._in_turn(_fits, password, password_hash)
        return as_account(rows[0]) if has_password and fits else None

    async def sign_in_by_sso(
        self, sso: tuple[str, str], verified: tuple[str, str] | None
    ) -> Account | NotAdmitted | EmailTaken | LooksAlike | Unverified:
        """The account of an identity (issuer and subject), made or linked when it is seen first.

        `verified` is its address and how it is compared, if the provider vouches for it. An account with that
        address becomes this identity's: its password, which proved nothing about the address, and its
        sessions go. A new account is made only as the sign-up policy admits.
        """

        async def work(
            connection: Connection,
        ) -> Account | NotAdmitted | EmailTaken | LooksAlike | Unverified:
            org = await the_org(connection, lock=True)
            # Who it is, if it was here before.
            row = await connection.fetchrow(
                f"select {SHOWN} from account where sso_issuer = $1 and sso_subject = $2", *sso
            )
            if row is not None:
                return as_account(row)
            if verified is None:
                return Unverified()
            # Whoever has the address, unless it belongs to another identity.
            row = await connection.fetchrow(
                "update account set sso_issuer = $2, sso_subject = $3, password_hash = null"
                f" where email_key = $1 and sso_subject is null returning {SHOWN}",
                verified[1],
                *sso,
            )
            if row is None:
                return await admit(connection, *verified, ByIdentity(*sso))
            account = as_account(row)
            await end_grants(connection, account.id, verified[1])
            await record(
                connection,
                "account.link",
                actor=verified[1],
                org_id=org.id,
                subject=("account", str(account.id)),
                details={"issuer": sso[0], "sessions_ended": await end_all(connection, account.id)},
            )
            return account

        return await self.database.run(work)

    async def find(self, account_id: UUID) -> Account | None:
        """An account by its id."""
        rows = await self.database.fetch(f"select {SHOWN} from account where id = $1", account_id)
        return as_account(rows[0]) if rows else None

    async def change_password(
        self, account_id: UUID, current: str, new: str, *, keep: UUID | None = None
    ) -> int | None:
        """Change a known password. Ends all sessions but `keep`; returns how many, None for a wrong one."""
        account = await self.find(account_id)
        if account is None or await self.sign_in(account.email_key, current) is None:
            return None
        return await self.set_password(account_id, new, actor=account.email_key, keep=keep)

    async def set_password(self, account_id: UUID, new: str, *, actor: str, keep: UUID | None = None) -> int:
        """Set a password. Ends all sessions but `keep`, and all grants of applications.

        Returns how many sessions ended.
        """
        password_hash = await self._in_turn(_hash, new, self.cost)

        async def work(connection: Connection) -> int:
            await connection.execute(
                "update account set password_hash = $2 where id = $1", account_id, password_hash
            )
            sessions = await end_all(connection, account_id, but=keep)
            await end_grants(connection, account_id, actor)
            await record(
                connection,
                "account.password",
                actor=actor,
                org_id=(await the_org(connection)).id,
                subject=("account", str(account_id)),
                details={"sessions_ended": sessions},
            )
            return sessions

        return await self.database.run(work)

    async def places(self, account_id: UUID) -> Sequence[Place]:
        """Where an account belongs."""
        # Every membership with its organization.
        rows = await self.database.fetch(
            "select o.id, o.slug, o.name, m.role, array(select r.project_id from project_membership r"
            " join project p on p.id = r.project_id and p.deleted_at is null"
            " where r.account_id = m.account_id and r.org_id = m.org_id) as project_ids"
            " from membership m join organization o on o.id = m.org_id"
            " where m.account_id = $1 order by o.id",
            account_id,
        )
        return [
            Place(
                Org(row["id"], row["slug"], row["name"]),
                row["role"],
                frozenset(row["project_ids"]) if row["role"] == "none" else None,
            )
            for row in rows
        ]

    async def by_email(self, email_key: str) -> Account | None:
        """An account by its address, as it is compared."""
        rows = await self.database.fetch(f"select {SHOWN} from account where email_key = $1", email_key)
        return as_account(rows[0]) if rows else None

    async def all(self) -> Sequence[tuple[Account, OrgRole | None]]:
        """Every account with its role in the organization, the oldest first."""
        # Who there is, members or not.
        rows = await self.database.fetch(
            f"select {SHOWN}, (select role from membership m where m.account_id = account.id limit 1)"
            " as role from account order by created_at, id"
        )
        return [(as_account(row), row["role"]) for row in rows]

    async def any(self) -> bool:
        """Whether any account exists."""
        # The cheapest way to see one.
        return bool(await self.database.fetch("select from account limit 1"))
