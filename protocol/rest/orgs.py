"""Bodies and answers of organizations, projects, members and invitations (contract §6).

Shapes and plain checks only. Instants are texts in our form (`protocol.rest.query.timestamp`).
"""

from __future__ import annotations

import re
import unicodedata
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from protocol.rest.accounts import EMAIL_MAX, NAME_MAX, Instant, OrgRoleName, ProjectRoleName
from protocol.tokens import Scope

SLUG_MAX: Final = 50

SignupRole = Literal["viewer", "member"]


#: Roles by slug of their project.
ProjectRoles = dict[str, ProjectRoleName]


class OrgShown(msgspec.Struct):
    """An organization, and the caller's role in it."""

    slug: str
    name: str
    role: OrgRoleName
    #: What a sign-up without an invitation makes of a person.
    signup_role: SignupRole


class OrgChange(msgspec.Struct, forbid_unknown_fields=True):
    """What can be changed of an organization. The sign-up policy has a route of its own."""

    name: Annotated[str, Meta(max_length=NAME_MAX)] | None = None
    signup_role: SignupRole | None = None


class ProjectShown(msgspec.Struct):
    """A project."""

    slug: str
    name: str
    created_at: Instant


class ProjectNew(msgspec.Struct, forbid_unknown_fields=True):
    """A project to be made; without a slug it gets one from its name."""

    name: Annotated[str, Meta(max_length=NAME_MAX)]
    slug: Annotated[str, Meta(max_length=SLUG_MAX)] | None = None


class ProjectChange(msgspec.Struct, forbid_unknown_fields=True):
    """What can be changed of a project. Its slug stays: addresses use it."""

    name: Annotated[str, Meta(max_length=NAME_MAX)]


class ProjectDeleted(msgspec.Struct):
    """The project and its keys are gone; its data is being purged."""

    deleted: Literal[True]
    keys_revoked: int


class MemberShown(msgspec.Struct, omit_defaults=True):
    """Somebody who belongs to the organization. `id` is that of the account.

    `projects` are their roles in single projects; left out when they have none. Where both roles count, the
    higher one does.
    """

    id: str
    email: str
    role: OrgRoleName
    created_at: Instant
    projects: ProjectRoles = {}


class MemberChanged(MemberShown, omit_defaults=True):
    """A member as they are now. `keys_revoked`: how many keys were, left out when it was none."""

    keys_revoked: int = 0


class MemberNew(msgspec.Struct, forbid_unknown_fields=True):
    """An existing account that is to belong to the organization. The role `none` needs one in a project."""

    email: Annotated[str, Meta(max_length=EMAIL_MAX)]
    role: OrgRoleName
    projects: ProjectRoles = {}


class MemberChange(msgspec.Struct, forbid_unknown_fields=True):
    """Another role. `projects` replaces their roles in projects, which stay when it is left out.

    `revoke_keys` revokes the keys that they minted in projects where they may mint none any more.
    """

    role: OrgRoleName
    projects: ProjectRoles | None = None
    revoke_keys: bool = False


class Removed(msgspec.Struct):
    """It is gone."""

    removed: Literal[True] = True


class RemovalQuery(msgspec.Struct, forbid_unknown_fields=True):
    """What goes with a member: with `revoke_keys`, the keys that they minted."""

    revoke_keys: bool = False


class KeyLeft(msgspec.Struct):
    """A key whose plaintext a member who goes has seen. `project` is a slug."""

    id: str
    project: str
    name: str
    scope: Scope
    token_prefix: str


class MemberRemoved(msgspec.Struct):
    """A member is gone. `keys` are those that they minted and that were active, the newest first.

    At most 1000 are listed; `key_count` says how many there are, `keys_revoked` how many of them this call
    revoked: all or none.
    """

    keys: list[KeyLeft]
    key_count: int
    keys_revoked: int
    removed: Literal[True] = True


class InvitationShown(msgspec.Struct, omit_defaults=True, kw_only=True):
    """A pending invitation: with its secret, its address may sign up whatever the policy says.

    `projects` are the roles in single projects that it promises; left out when there are none.
    """

    id: str
    email: str
    role: OrgRoleName
    invited_by: str
    created_at: Instant
    expires_at: Instant
    projects: ProjectRoles = {}


class InvitationMade(InvitationShown, omit_defaults=True, kw_only=True):
    """A new invitation and its secret, which is never shown again: hand it to the one who is invited."""

    secret: str

    def __repr__(self) -> str:
        return f"InvitationMade({self.id!r}, …)"


class InvitationNew(msgspec.Struct, forbid_unknown_fields=True):
    """An address that may sign up, and as what. The role `none` needs one in a project."""

    email: Annotated[str, Meta(max_length=EMAIL_MAX)]
    role: OrgRoleName = "member"
    projects: ProjectRoles = {}


_SLUG: Final = re.compile(rf"[a-z0-9](?:[a-z0-9-]{{0,{SLUG_MAX - 2}}}[a-z0-9])?", re.ASCII)


def is_slug(text: str) -> bool:
    """Whether a text can name a project in a path."""
    return _SLUG.fullmatch(text) is not None


def slug_of(name: str) -> str:
    """A slug made from a name; `project` when nothing of it can stand in one."""
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
    return re.sub(r"[^a-z0-9]+", "-", plain).strip("-")[:SLUG_MAX].strip("-") or "project"
