"""Organizations and projects: the default ones made on first use, and look-ups by slug.

In the self-hosted open edition the organization is the whole instance (spec, "What the service does").
"""

from __future__ import annotations

import attrs

from svc.store.database import Connection, Database

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


@attrs.define(eq=False)
class ProjectStore:
    """Reads projects; makes the default organization and project."""

    database: Database

    async def make_default(self) -> Project:
        """The default project, made together with its organization when missing. Idempotent."""

        async def work(connection: Connection) -> Project:
            await the_org(connection)
            # The default project in it, once.
            await connection.execute(
                "insert into project (org_id, slug, name)"
                " select id, $2, 'Default' from organization where slug = $1 on conflict do nothing",
                DEFAULT_ORG,
                DEFAULT_PROJECT,
            )
            project = await _find(connection, DEFAULT_ORG, DEFAULT_PROJECT)
            assert project is not None, "the default project was deleted"
            return project

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
