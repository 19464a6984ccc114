"""Organizations and projects: the default ones made on first use, and look-ups by slug.

In the self-hosted open edition the organization is the whole instance (spec, "What the service does").
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final, Literal

import attrs

from svc.store.accounts.audit import record
from svc.store.accounts.keys import revoke_all
from svc.store.postgres.database import Connection, Database

DEFAULT_ORG = "default"
DEFAULT_PROJECT = "default"


@attrs.frozen
class Org:
    """An organization."""

    id: int
    slug: str
    name: str


@attrs.frozen
class Project:
    """A living project and the slugs by which people name it."""

    id: int
    slug: str
    name: str
    org_slug: str


@attrs.frozen
class Listed:
    """A living project as lists show it."""

    id: int
    slug: str
    name: str
    created_at: datetime


_LISTED: Final = "id, slug, name, created_at"


@attrs.define(eq=False)
class ProjectStore:
    """Reads, makes, renames and deletes projects; makes the default organization and project."""

    database: Database

    async def make_default(self) -> Project | None:
        """The default project, made with its organization when there never was one. Idempotent.

        None: it was deleted. What people delete comes back by their own hand only.
        """

        async def work(connection: Connection) -> Project | None:
            await the_org(connection)
            # The default project in it, once: a deleted one was it too.
            await connection.execute(
                "insert into project (org_id, slug, name) select o.id, $2, 'Default' from organization o"
                " where o.slug = $1 and not exists (select from project p where p.org_id = o.id"
                " and p.slug = $2 and p.deleted_at is not null) on conflict do nothing",
                DEFAULT_ORG,
                DEFAULT_PROJECT,
            )
            return await _find(connection, DEFAULT_ORG, DEFAULT_PROJECT)

        return await self.database.run(work)

    async def list(self, org_id: int) -> list[Listed]:
        """The living projects of an organization, the oldest first."""
        rows = await self.database.fetch(
            f"select {_LISTED} from project where org_id = $1 and deleted_at is null order by id", org_id
        )
        return [_listed(row) for row in rows]

    async def get(self, project_id: int) -> Listed | None:
        """A living project by its id."""
        rows = await self.database.fetch(
            f"select {_LISTED} from project where id = $1 and deleted_at is null", project_id
        )
        return _listed(rows[0]) if rows else None

    async def create(self, org_id: int, slug: str, name: str, *, actor: str) -> Listed | None:
        """A new project, or None when a living one has the slug."""

        async def work(connection: Connection) -> Listed | None:
            # The project, unless the slug is taken.
            row = await connection.fetchrow(
                "insert into project (org_id, slug, name) values ($1, $2, $3)"
                f" on conflict do nothing returning {_LISTED}",
                org_id,
                slug,
                name,
            )
            if row is None:
                return None
            await _record(connection, "project.create", row["id"], actor, {"slug": slug, "name": name})
            return _listed(row)

        return await self.database.run(work)

    async def rename(self, project_id: int, name: str, *, actor: str) -> Listed | None:
        """Give a living project another name; None when there is none."""

        async def work(connection: Connection) -> Listed | None:
            # The new name; the slug stays.
            row = await connection.fetchrow(
                f"update project set name = $2 where id = $1 and deleted_at is null returning {_LISTED}",
                project_id,
                name,
            )
            if row is None:
                return None
            await _record(connection, "project.update", project_id, actor, {"name": name})
            return _listed(row)

        return await self.database.run(work)

    async def delete(self, project_id: int, *, actor: str) -> int | None:
        """Delete a living project and revoke all its keys, everywhere at once; None when there is none.

        Returns how many keys were revoked. Its data is purged later (`svc/store/retention/purge.py`).
        """

        async def work(connection: Connection) -> int | None:
            # From here on no key of it verifies.
            row = await connection.fetchrow(
                "update project set deleted_at = now() where id = $1 and deleted_at is null"
                " returning slug, name",
                project_id,
            )
            if row is None:
                return None
            revoked = await revoke_all(connection, project_id, actor)
            await _record(
                connection,
                "project.delete",
                project_id,
                actor,
                {"slug": row["slug"], "name": row["name"], "keys_revoked": revoked},
            )
            return revoked

        return await self.database.run(work)

    async def the_org(self) -> Org:
        """The one organization of this instance."""
        return await self.database.run(the_org)

    async def find(self, org_slug: str, project_slug: str) -> Project | None:
        """The living project of these slugs, or None."""
        return await self.database.run(
            lambda connection: _find(connection, org_slug, project_slug), readonly=True
        )


async def the_org(connection: Connection, *, lock: bool = False) -> Org:
    """The one organization of this instance, made with its default project when missing.

    `lock` holds its row until the commit, which puts sign-ups and changes of members in a row.
    """
    # The oldest is the instance; there is no other in the open edition.
    find = "select id, slug, name from organization order by id limit 1" + (" for update" if lock else "")
    row = await connection.fetchrow(find)
    if row is None:
        # The default organization, once.
        await connection.execute(
            "insert into organization (slug, name) values ($1, 'Default') on conflict do nothing", DEFAULT_ORG
        )
        # Its first project.
        await connection.execute(
            "insert into project (org_id, slug, name)"
            " select id, $2, 'Default' from organization where slug = $1 on conflict do nothing",
            DEFAULT_ORG,
            DEFAULT_PROJECT,
        )
        row = await connection.fetchrow(find)
    assert row is not None, "there is an organization by now"
    return Org(row["id"], row["slug"], row["name"])


async def lock_org(connection: Connection, org_id: int) -> None:
    """Hold an organization's row until the commit: who changes what it has takes turns with all others."""
    await connection.execute("select from organization where id = $1 for update", org_id)


async def lock_project(connection: Connection, project_id: int) -> None:
    """The same for a project: so nothing that it may have only so many of is counted past."""
    await connection.execute("select from project where id = $1 for update", project_id)


async def _record(
    connection: Connection,
    action: Literal["project.create", "project.update", "project.delete"],
    project_id: int,
    actor: str,
    details: dict[str, Any],
) -> None:
    await record(
        connection,
        action,
        actor=actor,
        project_id=project_id,
        subject=("project", str(project_id)),
        details=details,
    )


def _listed(row: Any) -> Listed:
    return Listed(**dict(row.items()))


async def _find(connection: Connection, org_slug: str, project_slug: str) -> Project | None:
    # A project by its slugs; deleted ones are not found.
    row = await connection.fetchrow(
        "select p.id, p.slug, p.name, o.slug as org_slug from project p"
        " join organization o on o.id = p.org_id"
        " where o.slug = $1 and p.slug = $2 and p.deleted_at is null",
        org_slug,
        project_slug,
    )
    return None if row is None else Project(**dict(row.items()))
