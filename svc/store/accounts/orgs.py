"""Organizations: found with a caller's place in them, renamed, and their sign-up policy.

Owns writes to the table `organization`. The sign-up policy is changed by its own verb only, and each change
is audited in the same transaction.
"""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

import attrs
import msgspec

from protocol.rest.accounts import SignupPolicy
from protocol.rest.orgs import SignupRole
from svc.domain.accounts.access import Joining, OrgRole, ProjectRole, UnreadablePolicy, read_policy
from svc.store.accounts.admission import joining_of
from svc.store.accounts.audit import record
from svc.store.accounts.projects import Org, Project
from svc.store.postgres.database import Connection, Database


@attrs.frozen
class Placed:
    """What the slugs of a path name, and the caller's role there (None: no member)."""

    org: Org
    role: OrgRole | None
    project: Project | None
    #: Every living project of the organization.
    project_ids: frozenset[int]
    #: The caller's roles in single projects.
    project_roles: Mapping[int, ProjectRole]


@attrs.define(eq=False)
class OrgStore:
    """Reads and changes organizations."""

    database: Database

    async def place(self, org_slug: str, project_slug: str | None, account_id: UUID | None) -> Placed | None:
        """An organization by its slug, with a project and an account's role; None when there is none."""
        # As what this account belongs to it, its living projects, and as what to each: in one journey, since
        # every page and every call of the API comes by here.
        rows = await self.database.fetch(
            "select o.id, o.slug, o.name, m.role, p.id as project_id, p.slug as project_slug,"
            " p.name as project_name, r.role as project_role from organization o"
            " left join membership m on m.org_id = o.id and m.account_id = $2"
            " left join project p on p.org_id = o.id and p.deleted_at is null"
            " left join project_membership r on r.project_id = p.id and r.account_id = $2 where o.slug = $1",
            org_slug,
            account_id,
        )
        if not rows:
            return None
        org = Org(rows[0]["id"], rows[0]["slug"], rows[0]["name"])
        projects = {row["project_id"]: row for row in rows if row["project_id"] is not None}
        named = next((row for row in projects.values() if row["project_slug"] == project_slug), None)
        project = None
        if named is not None:
            project = Project(named["project_id"], named["project_slug"], named["project_name"], org.slug)
        return Placed(
            org,
            rows[0]["role"],
            project,
            frozenset(projects),
            {number: row["project_role"] for number, row in projects.items() if row["project_role"]},
        )

    async def change(self, org: Org, name: str | None, signup_role: SignupRole | None, actor: str) -> Org:
        """Give an organization another name, its uninvited sign-ups another role, or both."""
        details = {"name": name, "signup_role": signup_role}

        async def work(connection: Connection) -> Org:
            # The slug stays: commands and addresses use it.
            new_name = await connection.fetchval(
                "update organization set name = coalesce($2, name), signup_role = coalesce($3, signup_role)"
                " where id = $1 returning name",
                org.id,
                name,
                signup_role,
            )
            await record(
                connection,
                "org.update",
                actor=actor,
                org_id=org.id,
                subject=("organization", org.slug),
                details={field: value for field, value in details.items() if value is not None},
            )
            return attrs.evolve(org, name=new_name)

        return await self.database.run(work)

    async def joining(self, org_id: int | None = None) -> Joining:
        """Who may join an organization, or the instance; open and undecided where there is nothing yet."""

        async def work(connection: Connection) -> Joining:
            # The organization of the instance is the oldest.
            target_id = org_id or await connection.fetchval("select min(id) from organization")
            if target_id is None:
                return Joining(SignupPolicy("open"), False, "viewer")
            return await joining_of(connection, target_id)

        return await self.database.run(work, readonly=True)

    async def set_signup_policy(self, org: Org, policy: SignupPolicy, actor: str) -> SignupPolicy:
        """Replace the sign-up policy. Members and their sign-ins stay as they are."""

        async def work(connection: Connection) -> None:
            # What it was, for the audit; the lock puts it in order with sign-ups.
            previous_text = await connection.fetchval(
                "select signup_policy from organization where id = $1 for update", org.id
            )
            # What it is from now on.
            await connection.execute(
                "update organization set signup_policy = $2::jsonb, signup_decided_at = now() where id = $1",
                org.id,
                msgspec.json.encode(policy).decode(),
            )
            previous_policy = read_policy(previous_text)
            await record(
                connection,
                "signup_policy.update",
                actor=actor,
                org_id=org.id,
                subject=("organization", org.slug),
                details={
                    "before": "unreadable"
                    if isinstance(previous_policy, UnreadablePolicy)
                    else msgspec.to_builtins(previous_policy),
                    "after": msgspec.to_builtins(policy),
                },
            )

        await self.database.run(work)
        return policy
