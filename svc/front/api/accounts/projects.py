"""`{o}/projects`: projects are made, renamed and deleted."""

from __future__ import annotations

from typing import Final

from protocol.refusals import BAD_SLUG, BLANK_NAME, NO_SUCH_PROJECT, SLUG_TAKEN, Refusal
from protocol.rest.orgs import (
    ProjectChange,
    ProjectDeleted,
    ProjectNew,
    ProjectShown,
    is_slug,
    slug_of,
)
from protocol.rest.query import timestamp
from protocol.storage import Eviction
from svc.front.api.routes import ORG, PROJECT, Route
from svc.front.auth.calls import Call
from svc.store.accounts.projects import Listed, ProjectStore


def _project_view(project: Listed) -> ProjectShown:
    return ProjectShown(project.slug, project.name, timestamp(project.created_at))


async def get_projects(call: Call[None]) -> list[ProjectShown]:
    """The projects of the organization that the caller sees; a key sees its own."""
    projects = await ProjectStore(call.means.database).list(call.org.id)
    return [
        _project_view(project)
        for project in projects
        if call.project_ids is None or project.id in call.project_ids
    ]


async def post_project(call: Call[ProjectNew]) -> ProjectShown | Refusal:
    """Make a project."""
    name = call.body.name.strip()
    if not name:
        return BLANK_NAME
    slug = slug_of(name) if call.body.slug is None else call.body.slug
    if not is_slug(slug):
        return BAD_SLUG
    project = await ProjectStore(call.means.database).create(call.org.id, slug, name, actor=call.caller.label)
    return SLUG_TAKEN if project is None else _project_view(project)


async def get_project(call: Call[None]) -> ProjectShown | Refusal:
    """One project."""
    project = await ProjectStore(call.means.database).get(call.project.id)
    return NO_SUCH_PROJECT if project is None else _project_view(project)


async def patch_project(call: Call[ProjectChange]) -> ProjectShown | Refusal:
    """Rename a project."""
    name = call.body.name.strip()
    if not name:
        return BLANK_NAME
    changed = await ProjectStore(call.means.database).rename(call.project.id, name, actor=call.caller.label)
    return NO_SUCH_PROJECT if changed is None else _project_view(changed)


async def delete_project(call: Call[None]) -> ProjectDeleted | Refusal:
    """Delete a project: its keys are revoked at once, its data is purged in the background."""
    revoked = await ProjectStore(call.means.database).delete(call.project.id, actor=call.caller.label)
    if revoked is None:
        return NO_SUCH_PROJECT
    call.means.keys.evict(Eviction(project_id=call.project.id))
    return ProjectDeleted(True, revoked)


ROUTES: Final = (
    Route("GET", ORG + "/projects", "ORG_BELONG", get_projects, list[ProjectShown]),
    Route(
        "POST", ORG + "/projects", "ORG_MANAGE", post_project, ProjectShown, body=ProjectNew, status=201,
        refusals=(BLANK_NAME, BAD_SLUG, SLUG_TAKEN),
    ),
    Route("GET", PROJECT, "ORG_VIEW", get_project, ProjectShown),
    Route(
        "PATCH", PROJECT, "ORG_MANAGE", patch_project, ProjectShown, body=ProjectChange,
        refusals=(BLANK_NAME,),
    ),
    Route("DELETE", PROJECT, "ORG_ADMIN", delete_project, ProjectDeleted, status=202),
)  # fmt: skip
