"""Roles in single projects: what somebody has there beside their role in the organization.

Owns the tables `project_membership` and `invitation_project`. Called by those that change members and
invitations, and by sign-ups, within their transactions, which lock the organization's row before. A role in
a project ends with the place in the organization: the schema sees to that.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final, Literal
from uuid import UUID

import attrs

from svc.domain.accounts.access import ROLES, OrgRole, ProjectRole, may
from svc.store.accounts.keys import revoke_all
from svc.store.accounts.oauth_ends import end_in
from svc.store.postgres.database import Connection

#: Roles by slug of their project.
ProjectRoles = Mapping[str, ProjectRole]

#: Roles that may make keys and let applications in.
KEY_MAKERS: Final = [role for role in ROLES if may(role, "ORG_MANAGE")]

_MAKES_KEYS: Final = (
    "exists (select from membership m left join project_membership r on r.account_id = m.account_id"
    " and r.project_id = p.id where m.account_id = $2 and m.org_id = p.org_id"
    " and (m.role = any($3::text[]) or r.role = any($3::text[])))"
)


@attrs.frozen
class EndedAccess:
    """How many keys were revoked, and the projects in which keys or tokens are refused from now on."""

    keys_revoked: int
    project_ids: Collection[int]


async def in_projects(
    connection: Connection, org_id: int, account_id: UUID | None = None
) -> Mapping[UUID, ProjectRoles]:
    """The roles in living projects, by account, or those of one; whoever has none is not among them."""
    return await _by_holder(connection, "project_membership", "account_id", org_id, account_id)


async def invited_to(
    connection: Connection, org_id: int, invitation_id: UUID | None = None
) -> Mapping[UUID, ProjectRoles]:
    """The roles in living projects that invitations promise, by invitation, or those of one."""
    return await _by_holder(connection, "invitation_project", "invitation_id", org_id, invitation_id)


def audited(roles: ProjectRoles) -> dict[str, Any]:
    """Roles as details of an audit row, which says nothing of them where there are none."""
    return {"projects": dict(roles)} if roles else {}


async def _by_holder(
    connection: Connection,
    table: Literal["project_membership", "invitation_project"],
    holder: Literal["account_id", "invitation_id"],
    org_id: int,
    holder_id: UUID | None,
) -> Mapping[UUID, ProjectRoles]:
    rows = await connection.fetch(
        f"select r.{holder} as holder, p.slug, r.role from {table} r"
        " join project p on p.id = r.project_id and p.deleted_at is null"
        f" where r.org_id = $1 and ($2::uuid is null or r.{holder} = $2) order by p.id",
        org_id,
        holder_id,
    )
    roles: dict[UUID, dict[str, ProjectRole]] = {}
    for row in rows:
        roles.setdefault(row["holder"], {})[row["slug"]] = row["role"]
    return roles


async def project_ids(
    connection: Connection, org_id: int, roles: ProjectRoles, org_role: OrgRole
) -> Mapping[int, ProjectRole] | Literal["no project", "no project role"]:
    """The same roles by the ids of their living projects; `none` in the organization needs one at least."""
    if org_role == "none" and not roles:
        return "no project role"
    rows = await connection.fetch(
        "select id, slug from project where org_id = $1 and deleted_at is null and slug = any($2::text[])",
        org_id,
        list(roles),
    )
    if len(rows) < len(roles):
        return "no project"
    return {row["id"]: roles[row["slug"]] for row in rows}


async def replace(
    connection: Connection, org_id: int, account_id: UUID, roles: Mapping[int, ProjectRole]
) -> None:
    """Give a member these roles in living projects, and no other."""
    await connection.execute(
        "delete from project_membership where org_id = $1 and account_id = $2"
        " and project_id <> all($3::bigint[])",
        org_id,
        account_id,
        list(roles),
    )
    await connection.execute(
        "insert into project_membership (project_id, account_id, org_id, role)"
        " select r.project_id, $2, $1, r.role from unnest($3::bigint[], $4::text[]) as r (project_id, role)"
        " on conflict (project_id, account_id) do update set role = excluded.role",
        org_id,
        account_id,
        list(roles),
        list(roles.values()),
    )


async def promise(
    connection: Connection, org_id: int, invitation_id: UUID, roles: Mapping[int, ProjectRole]
) -> None:
    """Let an invitation promise these roles."""
    await connection.execute(
        "insert into invitation_project (project_id, invitation_id, org_id, role)"
        " select r.project_id, $2, $1, r.role from unnest($3::bigint[], $4::text[]) as r (project_id, role)",
        org_id,
        invitation_id,
        list(roles),
        list(roles.values()),
    )


async def take_up(connection: Connection, org_id: int, invitation_id: UUID, account_id: UUID) -> None:
    """Give a member what an invitation promises; never a role below the one that they have."""
    await connection.execute(
        "insert into project_membership (project_id, account_id, org_id, role)"
        " select i.project_id, $3, i.org_id, i.role from invitation_project i"
        " join project p on p.id = i.project_id and p.deleted_at is null"
        " where i.org_id = $1 and i.invitation_id = $2"
        " on conflict (project_id, account_id) do update set role = excluded.role"
        " where project_membership.role = 'viewer'",
        org_id,
        invitation_id,
        account_id,
    )


async def end_what_is_over(
    connection: Connection, org_id: int, account_id: UUID, email_key: str, actor: str, *, revoke_keys: bool
) -> EndedAccess:
    """End what an account let in where it may make no keys now: its grants, and its keys if asked.

    Without a place in the organization that is everywhere in it.
    """
    grants = await connection.fetch(
        "select g.id, p.id as project_id from oauth_grant g join project p on p.id = g.project_id"
        f" where p.org_id = $1 and g.account_id = $2 and not {_MAKES_KEYS}",
        org_id,
        account_id,
        KEY_MAKERS,
    )
    await end_in(connection, [row["id"] for row in grants], actor)
    project_ids = {row["project_id"] for row in grants}
    if not revoke_keys:
        return EndedAccess(0, project_ids)
    rows = await connection.fetch(
        "select p.id from project p where p.org_id = $1 and exists (select from api_key k"
        " where k.project_id = p.id and k.minted_by = $4 and k.revoked_at is null)"
        f" and not {_MAKES_KEYS}",
        org_id,
        account_id,
        KEY_MAKERS,
        email_key,
    )
    revoked = 0
    for row in rows:
        revoked += await revoke_all(connection, row["id"], actor, minted_by=email_key)
        project_ids.add(row["id"])
    return EndedAccess(revoked, project_ids)
