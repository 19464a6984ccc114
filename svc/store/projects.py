"""Organizations and projects: the default ones made on first use, and look-ups by slug.

In the self-hosted open edition the organization is the whole instance (spec, "What the service does").
"""

from __future__ import annotations

import attrs

from svc.store.database import Connection, Database

DEFAULT_ORG = "default"
DEFAULT_PROJECT = "default"


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
            # The default organization, once.
            await connection.execute(
                "insert into organization (slug, name) values ($1, 'Default') on conflict do nothing",
                DEFAULT_ORG,
            )
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

    async def find(self, org_slug: str, project_slug: str) -> Project | None:
        """The living project of these slugs, or None."""
        return await self.database.run(
            lambda connection: _find(connection, org_slug, project_slug), readonly=True
        )


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
