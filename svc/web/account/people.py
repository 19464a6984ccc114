"""Settings: people. Members and their roles, invitations, and who may sign up.

Secrets: the link of an invitation stands in the answer to its making and nowhere else. A link that is mailed
is another one.
"""

from __future__ import annotations

from typing import Final

import msgspec

from protocol.refusals import Refusal
from protocol.rest.accounts import SignupPolicy
from protocol.rest.orgs import InvitationNew, MemberChange, OrgChange, RemovalQuery
from svc.domain.accounts.access import PROJECT_ROLES, ROLES
from svc.front.api.accounts import members, orgs, projects
from svc.web.account.member import PROJECTS_SHOWN, chosen_roles
from svc.web.account.sign_in import POLICY
from svc.web.shell.forms import asked
from svc.web.shell.page import PROJECT, Go, Html, PageRoute, Visit
from svc.web.shell.render import query


class InviteForm(msgspec.Struct):
    """Who is invited, and as what."""

    email: str = ""
    role: str = "member"
    project: list[str] = msgspec.field(default_factory=list)


class MemberForm(msgspec.Struct):
    """Which member; another role, or none to take them out."""

    id: str
    role: str = ""
    revoke_keys: str = ""


class InvitationId(msgspec.Struct):
    """Which invitation."""

    id: str


class OrgForm(msgspec.Struct):
    """The organization: its name, and what a sign-up without an invitation makes of a person."""

    name: str = ""
    signup_role: str = ""


class PolicyForm(msgspec.Struct):
    """Who may sign up."""

    mode: str = "open"
    domains: str = ""


async def page(visit: Visit) -> Html:
    """The people of the organization."""
    return await _page(visit)


async def _page(visit: Visit, *, link: str | None = None, refusal: Refusal | None = None) -> Html:
    administers = visit.administers
    shown_members = await members.get_members(visit.call)
    if not visit.sees_org:
        # Whoever sees single projects sees of the organization's people themselves.
        shown_members = [member for member in shown_members if member.email == visit.email]
    shown_projects = await projects.get_projects(visit.call) if administers else []
    context = {
        "tab": "people",
        "members": shown_members,
        "projects": shown_projects[:PROJECTS_SHOWN],
        # One project needs no roles of its own.
        "by_project": len(shown_projects) > 1 or any(member.projects for member in shown_members),
        "project_roles": PROJECT_ROLES,
        "invitations": await members.get_invitations(visit.call) if administers else [],
        "policy": await orgs.get_policy(visit.call) if administers else None,
        "org": await orgs.get_org(visit.call),
        "sign_on": visit.process_view.sign_on,
        "passwords": visit.means.passwords,
        "modes": POLICY,
        "roles": ROLES,
        "link": link,
        "mails": link is not None and await visit.means.invitation_mail.can_send(),
        "refusal": refusal,
        "administers": administers,
    }
    status = refusal.status if refusal else 200
    return Html("account/people", context, status=status, secret=link is not None)


async def invite(visit: Visit) -> Html:
    """Invite an address: the link is shown once."""
    fields = {
        "email": visit.form.email,
        "role": visit.form.role,
        "projects": chosen_roles({}, visit.form.project),
    }
    answer = await asked(visit, members.post_invitation, InvitationNew, fields)
    if isinstance(answer, Refusal):
        return await _page(visit, refusal=answer)
    return await _page(visit, link=query(f"{visit.origin}/signup", invitation=answer.secret))


async def withdraw(visit: Visit) -> Html | Go:
    """Take an invitation back."""
    answer = await asked(visit, members.delete_invitation, path={"invitationId": visit.form.id})
    return await _done(visit, answer)


async def change(visit: Visit) -> Html | Go:
    """Give a member another role."""
    path = {"memberId": visit.form.id}
    answer = await asked(visit, members.patch_member, MemberChange, {"role": visit.form.role}, path=path)
    return await _done(visit, answer)


async def remove(visit: Visit) -> Html | Go:
    """Take a member out."""
    path = {"memberId": visit.form.id}
    removal = RemovalQuery(revoke_keys=bool(visit.form.revoke_keys))
    return await _done(visit, await asked(visit, members.delete_member, path=path, query=removal))


async def organization(visit: Visit) -> Html | Go:
    """Rename the organization, and say as what people join it who were not invited."""
    fields = {"name": visit.form.name}
    if visit.form.signup_role:
        fields["signup_role"] = visit.form.signup_role
    return await _done(visit, await asked(visit, orgs.patch_org, OrgChange, fields))


async def policy(visit: Visit) -> Html | Go:
    """Say who may sign up."""
    fields = {"mode": visit.form.mode, "domains": visit.form.domains.replace(",", " ").split()}
    return await _done(visit, await asked(visit, orgs.put_policy, SignupPolicy, fields))


async def _done(visit: Visit, answer: object) -> Html | Go:
    if isinstance(answer, Refusal):
        return await _page(visit, refusal=answer)
    return Go(visit.base + "/settings/people")


_PEOPLE: Final = PROJECT + "/settings/people"

PAGES: Final = (
    PageRoute("GET", _PEOPLE, "ORG_VIEW", page),
    PageRoute("POST", _PEOPLE + "/invite", "ORG_ADMIN", invite, form=InviteForm),
    PageRoute("POST", _PEOPLE + "/withdraw", "ORG_ADMIN", withdraw, form=InvitationId),
    PageRoute("POST", _PEOPLE + "/change", "ORG_ADMIN", change, form=MemberForm),
    PageRoute("POST", _PEOPLE + "/remove", "ORG_VIEW", remove, form=MemberForm),
    PageRoute("POST", _PEOPLE + "/organization", "ORG_ADMIN", organization, form=OrgForm),
    PageRoute("POST", _PEOPLE + "/policy", "ORG_ADMIN", policy, form=PolicyForm),
)
