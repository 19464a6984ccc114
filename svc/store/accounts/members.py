"""Members and invitations of an organization.

Owns writes to the tables `membership` and `invitation`, but for what a sign-up does (`admission.py`).
Every change locks the organization's row first: so there is always an owner, and no invitation can meet the
sign-up that takes it up half-way.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final, Literal
from uuid import UUID

import attrs

from svc.domain.accounts.access import OrgRole, may_grant
from svc.store.accounts.admission import looks_alike
from svc.store.accounts.audit import record
from svc.store.accounts.invitations import INVITATION_DAYS, drop_pending, new_secret
from svc.store.accounts.keys import KeyOfSomebody, minted
from svc.store.accounts.project_roles import (
    EndedAccess,
    ProjectRoles,
    audited,
    end_what_is_over,
    in_projects,
    invited_to,
    project_ids,
    promise,
    replace,
)
from svc.store.accounts.projects import lock_org
from svc.store.postgres.database import Connection, Database


@attrs.frozen
class Member:
    """Somebody who belongs to an organization."""

    id: UUID
    email: str
    email_key: str
    role: OrgRole
    created_at: datetime
    projects: ProjectRoles = attrs.field(factory=dict)


@attrs.frozen
class Changed:
    """A member who has other roles now, and what ended with those before."""

    member: Member
    ended: EndedAccess


@attrs.frozen
class Gone:
    """A member who was taken out, the active keys that they minted, and what ended with their place."""

    keys: Sequence[KeyOfSomebody]
    key_count: int
    ended: EndedAccess


@attrs.frozen
class Invitation:
    """An address that may sign up in any mode, or an account that may join, with its secret."""

    id: UUID
    email: str
    role: OrgRole
    invited_by: str
    created_at: datetime
    expires_at: datetime
    projects: ProjectRoles = attrs.field(factory=dict)


#: Why a change was not made.
Denied = Literal[
    "unknown", "last owner", "owners only", "member", "invited", "alike", "no project", "no project role"
]

_MEMBER: Final = (
    "select a.id, a.email, a.email_key, m.role, m.created_at"
    " from membership m join account a on a.id = m.account_id"
)
_INVITATION: Final = "id, email, role, invited_by, created_at, expires_at"


@attrs.frozen
class Changer:
    """Who changes: their role bounds what they may deal in, the label goes into the audit."""

    role: OrgRole
    label: str


@attrs.define(eq=False)
class MemberStore:
    """Reads and changes who belongs to an organization."""

    database: Database
    org_id: int

    async def list(self) -> Sequence[Member]:
        """All members, the oldest first."""

        async def work(connection: Connection) -> Sequence[Member]:
            # Everybody with their roles.
            rows = await connection.fetch(
                f"{_MEMBER} where m.org_id = $1 order by m.created_at, a.id", self.org_id
            )
            projects = await in_projects(connection, self.org_id)
            return [_member(row, projects.get(row["id"], {})) for row in rows]

        return await self.database.run(work, readonly=True)

    async def add(
        self, email_key: str, role: OrgRole, by: Changer, projects: ProjectRoles
    ) -> Member | Denied:
        """Make an existing account a member."""

        async def work(connection: Connection) -> Member | Denied:
            await lock_org(connection, self.org_id)
            # The account behind the address.
            account_id = await connection.fetchval("select id from account where email_key = $1", email_key)
            if account_id is None:
                return "unknown"
            if not may_grant(by.role, role):
                return "owners only"
            roles = await project_ids(connection, self.org_id, projects, role)
            if isinstance(roles, str):
                return roles
            # Its place, unless it has one.
            added = await connection.fetchval(
                "insert into membership (org_id, account_id, role) values ($1, $2, $3)"
                " on conflict do nothing returning true",
                self.org_id,
                account_id,
                role,
            )
            if added is None:
                return "member"
            await replace(connection, self.org_id, account_id, roles)
            details = {"email": email_key, "role": role, **audited(projects)}
            await self._record(connection, "member.add", by, account_id, details)
            # Who belongs needs none.
            await drop_pending(
                connection, self.org_id, email_key, action="invitation.withdraw", actor=by.label
            )
            member = await self._find(connection, account_id)
            assert member is not None, "it was just made"
            return member

        return await self.database.run(work)

    async def change(
        self,
        account_id: UUID,
        role: OrgRole,
        by: Changer,
        *,
        projects: ProjectRoles | None = None,
        revoke_keys: bool = False,
    ) -> Changed | Denied:
        """Give a member another role, and these roles in projects; None leaves those as they are.

        `revoke_keys` revokes the keys that they minted where they may mint none any more.
        """

        async def work(connection: Connection) -> Changed | Denied:
            await lock_org(connection, self.org_id)
            member = await self._find(connection, account_id)
            if member is None:
                return "unknown"
            if not may_grant(by.role, role, member.role):
                return "owners only"
            if member.role == "owner" and role != "owner" and await self._owners(connection) == 1:
                return "last owner"
            new_projects = member.projects if projects is None else projects
            roles = await project_ids(connection, self.org_id, new_projects, role)
            if isinstance(roles, str):
                return roles
            if projects is not None:
                await replace(connection, self.org_id, account_id, roles)
            # The new role.
            await connection.execute(
                "update membership set role = $3 where org_id = $1 and account_id = $2",
                self.org_id,
                account_id,
                role,
            )
            # Whoever may make no key lets no application in either.
            ended = await end_what_is_over(
                connection, self.org_id, account_id, member.email_key, by.label, revoke_keys=revoke_keys
            )
            details: dict[str, Any] = {"before": member.role, "after": role}
            if new_projects != member.projects:
                details |= {"projects_before": dict(member.projects), "projects_after": dict(new_projects)}
            if revoke_keys:
                details["keys_revoked"] = ended.keys_revoked
            await self._record(connection, "member.update", by, account_id, details)
            return Changed(attrs.evolve(member, role=role, projects=new_projects), ended)

        return await self.database.run(work)

    async def remove(
        self, account_id: UUID, by: Changer, *, leaves: bool, revoke_keys: bool
    ) -> Gone | Denied:
        """Take a member out; `leaves` says that they do it themselves. The account stays.

        `revoke_keys` revokes the keys that they minted, in all projects, in the same transaction.
        """

        async def work(connection: Connection) -> Gone | Denied:
            await lock_org(connection, self.org_id)
            member = await self._find(connection, account_id)
            if member is None:
                return "unknown"
            if not leaves and not may_grant(by.role, member.role):
                return "owners only"
            if member.role == "owner" and await self._owners(connection) == 1:
                return "last owner"
            # Their place.
            await connection.execute(
                "delete from membership where org_id = $1 and account_id = $2", self.org_id, account_id
            )
            keys, key_count = await minted(connection, self.org_id, member.email_key)
            ended = await end_what_is_over(
                connection, self.org_id, account_id, member.email_key, by.label, revoke_keys=revoke_keys
            )
            removal = Gone(keys, key_count, ended)
            await self._record(
                connection,
                "member.remove",
                by,
                account_id,
                {
                    "email": member.email,
                    "role": member.role,
                    **audited(member.projects),
                    "keys": removal.key_count,
                    "keys_revoked": ended.keys_revoked,
                },
            )
            return removal

        return await self.database.run(work)

    async def invitations(self) -> Sequence[Invitation]:
        """All pending invitations, the newest first."""

        async def work(connection: Connection) -> Sequence[Invitation]:
            # What has expired admits nobody and is not shown.
            rows = await connection.fetch(
                f"select {_INVITATION} from invitation where org_id = $1 and expires_at > now()"
                " order by created_at desc, id",
                self.org_id,
            )
            projects = await invited_to(connection, self.org_id)
            return [_invitation(row, projects.get(row["id"], {})) for row in rows]

        return await self.database.run(work, readonly=True)

    async def invite(
        self, email: str, email_key: str, role: OrgRole, by: Changer, projects: ProjectRoles
    ) -> tuple[Invitation, str] | Denied:
        """Let an address sign up as something, in any mode: the invitation and its secret, this once."""
        secret, digest = new_secret()

        async def work(connection: Connection) -> tuple[Invitation, str] | Denied:
            await lock_org(connection, self.org_id)
            if not may_grant(by.role, role):
                return "owners only"
            roles = await project_ids(connection, self.org_id, projects, role)
            if isinstance(roles, str):
                return roles
            # Whether somebody has the address already, and whether they belong here.
            account = await connection.fetchrow(
                "select m.account_id is not null as belongs from account a left join membership m"
                " on m.account_id = a.id and m.org_id = $1 where a.email_key = $2",
                self.org_id,
                email_key,
            )
            if account is not None and account["belongs"]:
                return "member"
            if account is None and await looks_alike(connection, email):
                return "alike"
            # Those that nobody took up in time make room.
            await connection.execute(
                "delete from invitation where org_id = $1 and expires_at <= now()", self.org_id
            )
            # The invitation, unless one is pending.
            row = await connection.fetchrow(
                "insert into invitation (org_id, email, email_key, role, invited_by, digest, expires_at)"
                f" values ($1, $2, $3, $4, $5, $6, now() + interval '{INVITATION_DAYS} days')"
                f" on conflict do nothing returning {_INVITATION}",
                self.org_id,
                email,
                email_key,
                role,
                by.label,
                digest,
            )
            if row is None:
                return "invited"
            invitation = _invitation(row, projects)
            await promise(connection, self.org_id, invitation.id, roles)
            await record(
                connection,
                "invitation.create",
                actor=by.label,
                org_id=self.org_id,
                subject=("invitation", str(invitation.id)),
                details={"email": email_key, "role": role, **audited(projects)},
            )
            return invitation, secret

        return await self.database.run(work)

    async def withdraw(self, invitation_id: UUID, by: Changer) -> Invitation | Denied:
        """Take an invitation back."""

        async def work(connection: Connection) -> Invitation | Denied:
            await lock_org(connection, self.org_id)
            # The roles that it promises go with it.
            roles = await invited_to(connection, self.org_id, invitation_id)
            # It is gone, and what it was.
            row = await connection.fetchrow(
                f"delete from invitation where org_id = $1 and id = $2 returning {_INVITATION}",
                self.org_id,
                invitation_id,
            )
            if row is None:
                return "unknown"
            was = _invitation(row, roles.get(invitation_id, {}))
            await record(
                connection,
                "invitation.withdraw",
                actor=by.label,
                org_id=self.org_id,
                subject=("invitation", str(was.id)),
                details={"email": was.email, "role": was.role, **audited(was.projects)},
            )
            return was

        return await self.database.run(work)

    async def _find(self, connection: Connection, account_id: UUID) -> Member | None:
        # One member.
        row = await connection.fetchrow(
            f"{_MEMBER} where m.org_id = $1 and m.account_id = $2", self.org_id, account_id
        )
        if row is None:
            return None
        return _member(row, (await in_projects(connection, self.org_id, account_id)).get(account_id, {}))

    async def _owners(self, connection: Connection) -> int:
        # How many own the organization.
        count: int = await connection.fetchval(
            "select count(*) from membership where org_id = $1 and role = 'owner'", self.org_id
        )
        return count

    async def _record(
        self,
        connection: Connection,
        action: Literal["member.add", "member.update", "member.remove"],
        by: Changer,
        account_id: UUID,
        details: dict[str, Any],
    ) -> None:
        await record(
            connection,
            action,
            actor=by.label,
            org_id=self.org_id,
            subject=("account", str(account_id)),
            details=details,
        )


def _member(row: Any, projects: ProjectRoles) -> Member:
    return Member(**dict(row.items()), projects=projects)


def _invitation(row: Any, projects: ProjectRoles) -> Invitation:
    return Invitation(**dict(row.items()), projects=projects)
