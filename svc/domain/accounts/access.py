"""Who may do what: roles, permissions, what a key may do, whom the sign-up policy admits (contract §6).

Pure rules; the API asks them for every request. Nothing here knows where roles and policies are kept.
"""

from __future__ import annotations

from typing import Any, Final, Literal, get_args

import attrs
import msgspec

from protocol.refusals import SIGNUP_OPEN, SIGNUP_UNDECIDED, SIGNUP_UNPROVED
from protocol.rest.accounts import (
    OrgRoleName,
    ProjectRoleName,
    RoleName,
    SignupMode,
    SignupPolicy,
    Undecided,
)
from protocol.rest.orgs import SignupRole
from protocol.tokens import Scope

Role = RoleName
ROLES: Final[tuple[Role, ...]] = get_args(Role)
#: A role in one project, beside the one in the organization.
ProjectRole = ProjectRoleName
PROJECT_ROLES: Final[tuple[ProjectRole, ...]] = get_args(ProjectRole)
#: What somebody is in the organization. `none` belongs to it and sees the projects in which they have a role.
OrgRole = OrgRoleName
ORG_ROLES: Final[tuple[OrgRole, ...]] = get_args(OrgRole)

#: Permissions within an organization, or in one project of it. ORG_BELONG is to know that it is there and
#: to leave it; ORG_ADMIN is "owner or admin only".
OrgPermission = Literal["ORG_BELONG", "ORG_VIEW", "ORG_MANAGE", "ORG_ADMIN"]
#: What a route asks for: nothing, a signed-in person, or a permission in the organization of its path.
Permission = Literal["PUBLIC", "SIGNED_IN", "ORG_BELONG", "ORG_VIEW", "ORG_MANAGE", "ORG_ADMIN"]

PERMISSIONS: Final[dict[OrgRole, frozenset[OrgPermission]]] = {
    "owner": frozenset({"ORG_BELONG", "ORG_VIEW", "ORG_MANAGE", "ORG_ADMIN"}),
    "admin": frozenset({"ORG_BELONG", "ORG_VIEW", "ORG_MANAGE", "ORG_ADMIN"}),
    "member": frozenset({"ORG_BELONG", "ORG_VIEW", "ORG_MANAGE"}),
    "viewer": frozenset({"ORG_BELONG", "ORG_VIEW"}),
    "none": frozenset({"ORG_BELONG"}),
}

#: Whoever minted it (spec, "API key").
KEY_ROLE: Final[Role] = "member"


def may(role: OrgRole, permission: OrgPermission) -> bool:
    """Whether a role holds a permission."""
    return permission in PERMISSIONS[role]


def outranks(role: OrgRole, other: OrgRole) -> bool:
    """Whether a role stands above another."""
    return ORG_ROLES.index(role) < ORG_ROLES.index(other)


def role_in(org_role: OrgRole, project_role: ProjectRole | None) -> Role | None:
    """What somebody is in one project: the higher of their two roles. None: it does not exist to them."""
    higher: OrgRole = org_role
    if project_role is not None and outranks(project_role, org_role):
        higher = project_role
    return None if higher == "none" else higher


def may_grant(granter: OrgRole, *roles: OrgRole) -> bool:
    """Whether someone may give, change or take all of these roles: only an owner deals in owners."""
    return may(granter, "ORG_ADMIN") and (granter == "owner" or "owner" not in roles)


def key_reaches(scope: Scope, *, reads: bool, own_project: bool) -> bool:
    """Whether a key's scope lets it call a REST route at all; its role is asked after that.

    `query` only reads; `admin` also writes, but only within its project.
    """
    return (scope == "admin" and (reads or own_project)) or (scope == "query" and reads)


@attrs.frozen
class UnreadablePolicy:
    """A stored sign-up policy that means nothing to this release."""


def read_policy(stored: Any) -> SignupPolicy | UnreadablePolicy:
    """The policy as it is stored: JSON text or its value."""
    try:
        if isinstance(stored, str | bytes):
            return msgspec.json.decode(stored, type=SignupPolicy)
        return msgspec.convert(stored, SignupPolicy)
    except (msgspec.ValidationError, msgspec.DecodeError):
        return UnreadablePolicy()


def mode_of(policy: SignupPolicy | UnreadablePolicy) -> SignupMode:
    """The mode in force; an unreadable policy fails closed."""
    return "invite" if isinstance(policy, UnreadablePolicy) else policy.mode


@attrs.frozen
class Joining:
    """Who may join an organization, as what when nobody invited them, and whether somebody decided that."""

    policy: SignupPolicy | UnreadablePolicy
    decided: bool
    role: SignupRole

    def undecided(self, org_slug: str, *, reachable: bool) -> Undecided | None:
        """What an owner is asked, None once it was decided. `reachable`: from other machines than this."""
        if self.decided:
            return None
        proposed: SignupMode = "invite" if reachable else "open"
        return Undecided(
            proposed,
            SIGNUP_UNDECIDED.format(
                who="anyone who can reach this service" if reachable else "anyone on this machine",
                role=self.role,
                path=f"/api/orgs/{org_slug}/signup-policy",
                proposed=proposed,
            ),
        )


def signup_warnings(mode: SignupMode, *, org_slug: str, reachable: bool, passwords: bool) -> list[str]:
    """What is to be said aloud of a sign-up mode, one sentence each.

    `reachable`: from other machines than this; `passwords`: people sign up with an address and a password.
    """
    if mode == "open" and reachable:
        return [SIGNUP_OPEN.format(slug=org_slug)]
    if mode == "domain" and passwords:
        return [SIGNUP_UNPROVED]
    return []


def admits(policy: SignupPolicy | UnreadablePolicy, email_key: str, *, invited: bool, first: bool) -> bool:
    """Whether a new account may be made (spec, "Authentication" 12): the first and the invited always.

    `invited`: an invitation of this address is pending, and it is proved that the address is theirs.
    """
    if invited or first:
        return True
    if isinstance(policy, UnreadablePolicy):
        return False
    domain = email_key.rpartition("@")[2]
    return policy.mode == "open" or (policy.mode == "domain" and domain in policy.domains)
