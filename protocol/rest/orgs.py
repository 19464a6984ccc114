"""Bodies and answers of organizations, projects, members and invitations (contract §6).

Shapes and plain checks only. Instants are texts in our form (`protocol.rest.query.timestamp`).
"""

from __future__ import annotations

import re
import unicodedata
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from protocol.rest.accounts import EMAIL_MAX, NAME_MAX, Instant, RoleName
from protocol.tokens import Scope

SLUG_MAX: Final = 50

SignupRole = Literal["viewer", "member"]


class OrgShown(msgspec.Struct):
    """An organization, and the caller's role in it."""

    slug: str
    name: str
    role: RoleName
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


class MemberShown(msgspec.Struct):
    """Somebody who belongs to the organization. `id` is that of the account."""

    id: str
    email: str
    role: RoleName
    created_at: Instant


class MemberNew(msgspec.Struct, forbid_unknown_fields=True):
    """An existing account that is to belong to the organization."""

    email: Annotated[str, Meta(max_length=EMAIL_MAX)]
    role: RoleName


class MemberChange(msgspec.Struct, forbid_unknown_fields=True):
    """Another role."""

    role: RoleName


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


class InvitationShown(msgspec.Struct):
    """A pending invitation: with its secret, its address may sign up whatever the policy says."""

    id: str
    email: str
    role: RoleName
    invited_by: str
    created_at: Instant
    expires_at: Instant


class InvitationMade(InvitationShown):
    """A new invitation and its secret, which is never shown again: hand it to the one who is invited."""

    secret: str

    def __repr__(self) -> str:
        return f"InvitationMade({self.id!r}, …)"


class InvitationNew(msgspec.Struct, forbid_unknown_fields=True):
    """An address that may sign up, and as what."""

    email: Annotated[str, Meta(max_length=EMAIL_MAX)]
    role: RoleName = "member"


_SLUG: Final = re.compile(rf"[a-z0-9](?:[a-z0-9-]{{0,{SLUG_MAX - 2}}}[a-z0-9])?", re.ASCII)


def is_slug(text: str) -> bool:
    """Whether a text can name a project in a path."""
    return _SLUG.fullmatch(text) is not None


def slug_of(name: str) -> str:
    """A slug made from a name; `project` when nothing of it can stand in one."""
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
    return re.sub(r"[^a-z0-9]+", "-", plain).strip("-")[:SLUG_MAX].strip("-") or "project"
