"""Admission: a new account under the sign-up policy, with the place in the organization that it gets.

Owns inserting into the table `account`. A new account, its membership, the
invitation it takes up and the audit row are one transaction under the organization's row lock, so that two
first sign-ups cannot both become owner.

Ordering: whatever comes of it, the same statements run up to the answer "not admitted", and a secret is
compared whether or not one is stored, so that neither text nor time tells which addresses are invited.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final
from uuid import UUID

import attrs

from svc.domain.accounts.access import Joining, OrgRole, UnreadablePolicy, admits, read_policy
from svc.domain.accounts.lookalike_addresses import likenesses
from svc.store.accounts.audit import record
from svc.store.accounts.invitations import drop_pending, pending
from svc.store.accounts.project_roles import take_up
from svc.store.accounts.projects import the_org
from svc.store.postgres.database import Connection

#: Accounts from before likenesses were kept that are looked at in one go.
LIKENED_AT_ONCE: Final = 5000


@attrs.frozen
class Account:
    """An account as it may be shown."""

    id: UUID
    email: str
    email_key: str
    has_password: bool
    created_at: datetime


@attrs.frozen
class NotAdmitted:
    """The answer when the sign-up policy admits no such account."""


@attrs.frozen
class EmailTaken:
    """The answer when the address has an account already."""


@attrs.frozen
class LooksAlike:
    """The answer when the address cannot be told by eye from that of another account."""


@attrs.frozen
class Unverified:
    """The answer when an identity is new here and its provider does not vouch for its address."""


@attrs.frozen
class ByPassword:
    """Comes with a password, and perhaps the secret of an invitation, which alone proves the address."""

    password_hash: bytes = attrs.field(repr=False)
    secret: str | None = attrs.field(default=None, repr=False)
    #: By the operator's own link: admitted whatever the policy, and an owner.
    owns: bool = False


@attrs.frozen
class ByIdentity:
    """Comes from an identity provider, which vouches for the address."""

    issuer: str
    subject: str


SHOWN: Final = "id, email, email_key, password_hash is not null as has_password, created_at"


def account(row: Any) -> Account:
    """The account of a row of `SHOWN`."""
    return Account(row["id"], row["email"], row["email_key"], row["has_password"], row["created_at"])


async def admit(
    connection: Connection, email: str, email_key: str, by: ByPassword | ByIdentity
) -> Account | NotAdmitted | EmailTaken | LooksAlike:
    """Make an account if the policy admits it, within the caller's transaction.

    A secret that does not open the invitation of this very address admits nobody, whatever the policy says;
    and nobody signs up with an invited address in any other way, or they would hold another role than meant.
    """
    org = await the_org(connection, lock=True)
    # Whether this is the first account of all.
    first = not await connection.fetchval("select exists (select from account)")
    secret, identity = (None, True) if isinstance(by, ByIdentity) else (by.secret, False)
    invitation = await pending(connection, org.id, email_key, secret=secret, identity=identity)
    invited = invitation is not None and invitation.proved
    joining = await joining_of(connection, org.id)
    owns = first or (isinstance(by, ByPassword) and by.owns)
    lost = secret is not None and not invited
    if not owns and (lost or not admits(joining.policy, email_key, invited=invited, first=first)):
        return NotAdmitted()
    # Whether somebody has the address.
    if await connection.fetchval("select exists (select from account where email_key = $1)", email_key):
        return EmailTaken()
    if not owns and invitation is not None and not invited:
        return NotAdmitted()
    if await looks_alike(connection, email):
        return LooksAlike()
    role: OrgRole = "owner" if owns else joining.role if invitation is None else invitation.role
    account_ = await _make(connection, org.id, email, email_key, by, role)
    if invitation is not None and invited:
        await take_up(connection, org.id, invitation.id, account_.id)
    await record(
        connection,
        "account.create",
        actor=email_key,
        org_id=org.id,
        subject=("account", str(account_.id)),
        details={
            "role": role,
            "by": "sso" if isinstance(by, ByIdentity) else "password",
            "mode": "unreadable" if isinstance(joining.policy, UnreadablePolicy) else joining.policy.mode,
        },
    )
    # An owner by another way needs none.
    action: Final = "invitation.accept" if invited else "invitation.withdraw"
    await drop_pending(connection, org.id, email_key, action=action, actor=email_key)
    return account_


async def _make(
    connection: Connection,
    org_id: int,
    email: str,
    email_key: str,
    by: ByPassword | ByIdentity,
    role: OrgRole,
) -> Account:
    identity = (by.issuer, by.subject) if isinstance(by, ByIdentity) else (None, None)
    # The account; the lock keeps the address free until here.
    row = await connection.fetchrow(
        "insert into account (email, email_key, password_hash, sso_issuer, sso_subject, likenesses)"
        f" values ($1, $2, $3, $4, $5, $6) returning {SHOWN}",
        email,
        email_key,
        by.password_hash if isinstance(by, ByPassword) else None,
        *identity,
        likenesses(email),
    )
    account_ = account(row)
    # Its place in the organization.
    await connection.execute(
        "insert into membership (org_id, account_id, role) values ($1, $2, $3)", org_id, account_.id, role
    )
    return account_


async def joining_of(connection: Connection, org_id: int) -> Joining:
    """Who may join an organization, within the caller's transaction."""
    # What was decided, and what holds where nothing was.
    row = await connection.fetchrow(
        "select signup_policy, signup_decided_at is not null as decided, signup_role from organization"
        " where id = $1",
        org_id,
    )
    assert row is not None, "an organization is not deleted"
    return Joining(read_policy(row["signup_policy"]), row["decided"], row["signup_role"])


async def looks_alike(connection: Connection, email: str) -> bool:
    """Whether an address cannot be told by eye from that of an account, within the caller's transaction."""
    await _liken(connection)
    # Any account that shares one of its likenesses.
    return bool(
        await connection.fetchval(
            "select exists (select from account where likenesses && $1::text[])", likenesses(email)
        )
    )


async def _liken(connection: Connection) -> None:
    """Work out the likenesses of accounts from before they were kept; afterwards there are none.

    Once in the life of a database: 3.2 s for 50,000 accounts (measured 2026-11).
    """
    while True:
        # Some of them.
        rows = await connection.fetch(
            f"select id, email from account where likenesses is null limit {LIKENED_AT_ONCE}"
        )
        if not rows:
            return
        looks = [likenesses(row["email"]) for row in rows]
        # All of these at once; there are one or two of each, and the same twice does no harm.
        await connection.execute(
            "update account a set likenesses = array[l.one, l.other]"
            " from unnest($1::uuid[], $2::text[], $3::text[]) as l (id, one, other) where a.id = l.id",
            [row["id"] for row in rows],
            [look[0] for look in looks],
            [look[-1] for look in looks],
        )
