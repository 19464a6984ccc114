"""Settings: one member of the organization, what they are in it and in single projects.

Called by the table of pages, and by the page People, whose invitations are made of the same choices. Changes
go through the REST API's own handler.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from protocol.refusals import NO_SUCH_MEMBER, Refusal
from protocol.rest.orgs import MemberChange, MemberShown, ProjectShown
from svc.domain.accounts.access import ORG_ROLES, PROJECT_ROLES
from svc.front.api.accounts import members, projects
from svc.web.shell.forms import asked
from svc.web.shell.page import PROJECT, Go, Html, PageRoute, Visit

#: Projects that one form offers roles in; the API knows no such bound.
PROJECTS_SHOWN: Final = 150


class AccessForm(msgspec.Struct):
    """What a member is in the organization and, as `slug:role`, in single projects."""

    role: str = ""
    project: list[str] = msgspec.field(default_factory=list)
    revoke_keys: str = ""


def chosen_roles(present: Mapping[str, str], choices: Sequence[str]) -> dict[str, str]:
    """Roles by project after these choices, each `slug:role`; a blank role takes it."""
    roles = dict(present)
    for choice in choices:
        slug, _, role = choice.partition(":")
        roles.pop(slug, None)
        if role:
            roles[slug] = role
    return roles


async def access(visit: Visit) -> Html | Refusal:
    """What one member may see: the organization, or single projects."""
    return await _access(visit)


async def _access(visit: Visit, refusal: Refusal | None = None) -> Html | Refusal:
    member = await _member(visit)
    if member is None:
        return NO_SUCH_MEMBER
    context = {
        "tab": "people",
        "member": member,
        "projects": _listed(await projects.get_projects(visit.call), member),
        "org_roles": ORG_ROLES,
        "project_roles": PROJECT_ROLES,
        "refusal": refusal,
    }
    return Html("account/member", context, status=refusal.status if refusal else 200)


async def _member(visit: Visit) -> MemberShown | None:
    member_id = visit.call.path["memberId"]
    everybody = await members.get_members(visit.call)
    return next((member for member in everybody if member.id == member_id), None)


def _listed(shown: Sequence[ProjectShown], member: MemberShown) -> Sequence[ProjectShown]:
    """Those in which they have a role first; what a form has no room for stays as it is."""
    return sorted(shown, key=lambda project: project.slug not in member.projects)[:PROJECTS_SHOWN]


async def keep_access(visit: Visit) -> Html | Go | Refusal:
    """Give a member these roles."""
    member = await _member(visit)
    if member is None:
        return NO_SUCH_MEMBER
    fields = {
        "role": visit.form.role,
        "projects": chosen_roles(member.projects, visit.form.project),
        "revoke_keys": bool(visit.form.revoke_keys),
    }
    answer = await asked(visit, members.patch_member, MemberChange, fields)
    if isinstance(answer, Refusal):
        return await _access(visit, answer)
    return Go(visit.base + "/settings/people")


_MEMBER: Final = PROJECT + "/settings/people/{memberId}"

PAGES: Final = (
    PageRoute("GET", _MEMBER, "ORG_ADMIN", access),
    PageRoute("POST", _MEMBER + "/access", "ORG_ADMIN", keep_access, form=AccessForm),
)
