"""Pending invitations: their proof, their offer to an account that exists, and the link that is mailed.

Owns the secrets of invitations. `pending` and `drop_pending` run in the transaction of a sign-up
(`admission.py`) or of a change of members (`members.py`), which lock the organization's row before.
An invitation of an account is accepted with the link, or by the account of an identity provider, which
vouched for the address; a password proves nothing about an address.

Secrets: of a secret only the SHA-256 digest is stored; it has 32 random bytes. A mailed link has a secret of
its own, so that a stranger who asks for a mail does not end the link that was handed over.
"""

from __future__ import annotations

import secrets
from datetime import datetime
from hashlib import sha256
from hmac import compare_digest
from typing import Any, Final, Literal
from uuid import UUID

import attrs

from svc.domain.accounts.access import OrgRole, outranks, role_in
from svc.store.accounts.audit import record
from svc.store.accounts.project_roles import audited, invited_to, take_up
from svc.store.postgres.database import Connection, Database

INVITATION_DAYS: Final = 7
#: An invitation is mailed no more often, and so many times in all.
MAIL_PAUSE_MINUTES: Final = 10
MAILS_BOUND: Final = 5


@attrs.frozen
class Pending:
    """A living invitation. `proved`: whoever asks is the one who was invited."""

    id: UUID
    role: OrgRole
    proved: bool


@attrs.frozen
class Offer:
    """An invitation of an account. `needs_link`: only the link proves that the address is theirs."""

    id: UUID
    org_id: int
    org_slug: str
    org_name: str
    role: OrgRole
    invited_by: str
    expires_at: datetime
    needs_link: bool
    email_key: str


@attrs.frozen
class MailedLink:
    """What the mail to an invited address says. Secrets: never log one."""

    email: str
    org_name: str
    role: OrgRole
    invited_by: str
    expires_at: datetime
    secret: str = attrs.field(repr=False)


def new_secret() -> tuple[str, bytes]:
    """The secret of an invitation, and what is stored of it."""
    secret = secrets.token_urlsafe(32)
    return secret, _digest(secret)


def _digest(secret: str) -> bytes:
    return sha256(secret.encode()).digest()


def _opens(row: Any, secret: str | None) -> bool:
    """Whether a secret is one of the two. Compares both, whether or not they are stored."""
    digest_ = _digest(secret or "")
    stored = (None, None) if row is None else (row["digest"], row["mailed_digest"])
    matches = [compare_digest(digest or b"", digest_) for digest in stored]
    return any(matches)


async def pending(
    connection: Connection, org_id: int, email_key: str, *, secret: str | None, identity: bool
) -> Pending | None:
    """The living invitation of an address. `identity`: an identity provider vouches for the address."""
    # There is at most one of an address.
    row = await connection.fetchrow(
        "select id, role, digest, mailed_digest from invitation"
        " where org_id = $1 and email_key = $2 and expires_at > now()",
        org_id,
        email_key,
    )
    proved = _opens(row, secret) or identity
    return None if row is None else Pending(row["id"], row["role"], proved)


async def drop_pending(
    connection: Connection,
    org_id: int,
    email_key: str,
    *,
    action: Literal["invitation.accept", "invitation.decline", "invitation.withdraw"],
    actor: str,
) -> None:
    """End the invitation of an address, if there is one."""
    invitation_id = await connection.fetchval(
        "select id from invitation where org_id = $1 and email_key = $2", org_id, email_key
    )
    if invitation_id is None:
        return
    # The roles that it promises go with it.
    roles = await invited_to(connection, org_id, invitation_id)
    # It serves once.
    row = await connection.fetchrow(
        "delete from invitation where org_id = $1 and id = $2 returning role", org_id, invitation_id
    )
    if row is None:
        return
    await record(
        connection,
        action,
        actor=actor,
        org_id=org_id,
        subject=("invitation", str(invitation_id)),
        details={"email": email_key, "role": row["role"], **audited(roles.get(invitation_id, {}))},
    )


_OFFER: Final = (
    "select i.id, i.org_id, o.slug, o.name, i.role, i.invited_by, i.expires_at, i.digest, i.mailed_digest,"
    " a.email_key, a.sso_subject is null as needs_link, m.role as present_role,"
    " array(select p.role from invitation_project p where p.org_id = i.org_id and p.invitation_id = i.id"
    "  order by p.project_id) as project_roles,"
    " array(select r.role from invitation_project p left join project_membership r"
    "  on r.project_id = p.project_id and r.account_id = a.id where p.org_id = i.org_id"
    "  and p.invitation_id = i.id order by p.project_id) as present_project_roles"
    " from account a join invitation i on i.email_key = a.email_key and i.expires_at > now()"
    " join organization o on o.id = i.org_id"
    " left join membership m on m.org_id = i.org_id and m.account_id = a.id where a.id = $1"
)


@attrs.frozen
class InvitationStore:
    """Offers invitations to accounts and takes their answers."""

    database: Database

    async def offer(self, account_id: UUID) -> Offer | None:
        """The invitation of an account. One that would give it no more than it has is withdrawn."""
        # One account, and the one invitation of its address.
        rows = await self.database.fetch(_OFFER, account_id)
        if not rows:
            return None
        if _adds(rows[0]):
            return _offer(rows[0])

        async def work(connection: Connection) -> None:
            row = await _locked(connection, account_id)
            if row is not None and not _adds(row):
                await _drop(connection, row, "invitation.withdraw")

        await self.database.run(work)
        return None

    async def accept(self, account_id: UUID, secret: str | None) -> Literal["unknown", "link"] | None:
        """Give the account the role it was invited as. "link": only the link proves whose address it is."""

        async def work(connection: Connection) -> Literal["unknown", "link"] | None:
            row = await _locked(connection, account_id)
            if row is None:
                return "unknown"
            if not _opens(row, secret) and row["needs_link"]:
                return "link"
            if _adds(row):
                # The new role; never one below the present one.
                present_role = row["present_role"]
                higher = present_role is None or outranks(row["role"], present_role)
                await connection.execute(
                    "insert into membership (org_id, account_id, role) values ($1, $2, $3)"
                    " on conflict (org_id, account_id) do update set role = excluded.role",
                    row["org_id"],
                    account_id,
                    row["role"] if higher else present_role,
                )
                await take_up(connection, row["org_id"], row["id"], account_id)
            await _drop(connection, row, "invitation.accept")
            return None

        return await self.database.run(work)

    async def decline(self, account_id: UUID) -> bool:
        """End the invitation of an account. Returns whether there was one."""

        async def work(connection: Connection) -> bool:
            row = await _locked(connection, account_id)
            if row is not None:
                await _drop(connection, row, "invitation.decline")
            return row is not None

        return await self.database.run(work)

    async def mailed(self, email_key: str) -> MailedLink | None:
        """A new secret for a mail to the invited address; an earlier mailed one opens no more.

        None: the address is not invited, or was mailed just before, or too often.
        """
        secret, digest = new_secret()
        # At most one invitation of an address, and no faster than the pause, whichever replica asks.
        rows = await self.database.fetch(
            "update invitation i set mailed_digest = $2, mailed_at = now(), mails = mails + 1"
            " from organization o where o.id = i.org_id and i.email_key = $1 and i.expires_at > now()"
            f" and i.mails < {MAILS_BOUND} and (i.mailed_at is null"
            f" or i.mailed_at < now() - interval '{MAIL_PAUSE_MINUTES} minutes')"
            " returning i.email, o.name, i.role, i.invited_by, i.expires_at",
            email_key,
            digest,
        )
        if not rows:
            return None
        row = rows[0]
        return MailedLink(
            row["email"], row["name"], row["role"], row["invited_by"], row["expires_at"], secret
        )

    async def can_mail(self) -> bool:
        """Whether any project has an alert channel that sends mail."""
        # A table of settings: a handful of rows.
        rows = await self.database.fetch(
            "select exists (select from alert_channel c join project p on p.id = c.project_id"
            " where c.kind = 'email' and p.deleted_at is null) as found"
        )
        return bool(rows[0]["found"])


def _adds(row: Any) -> bool:
    present_role = row["present_role"]
    if present_role is None or outranks(row["role"], present_role):
        return True
    return any(
        outranks(role, role_in(present_role, present_project_role) or "none")
        for role, present_project_role in zip(row["project_roles"], row["present_project_roles"], strict=True)
    )


def _offer(row: Any) -> Offer:
    return Offer(
        row["id"],
        row["org_id"],
        row["slug"],
        row["name"],
        row["role"],
        row["invited_by"],
        row["expires_at"],
        row["needs_link"],
        row["email_key"],
    )


async def _locked(connection: Connection, account_id: UUID) -> Any:
    """The invitation of an account, under the lock of its organization."""
    # Changes of members, and sign-ups, one after the other.
    await connection.execute(
        "select from organization o where o.id in (select i.org_id from invitation i join account a"
        " on a.email_key = i.email_key where a.id = $1) for update",
        account_id,
    )
    return await connection.fetchrow(_OFFER, account_id)


async def _drop(
    connection: Connection,
    row: Any,
    action: Literal["invitation.accept", "invitation.decline", "invitation.withdraw"],
) -> None:
    await drop_pending(connection, row["org_id"], row["email_key"], action=action, actor=row["email_key"])
