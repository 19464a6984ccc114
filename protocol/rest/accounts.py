"""Bodies and answers of accounts, sign-ins and the sign-up policy (contract §6).

Shapes and plain checks only. Instants are texts in our form (`protocol.rest.query.timestamp`).
"""

from __future__ import annotations

import re
import unicodedata
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from protocol.sealed import Unlogged

#: An instant as we print it.
Instant = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]

PASSWORD_MIN: Final = 8
PASSWORD_MAX: Final = 200
EMAIL_MAX: Final = 254
NAME_MAX: Final = 100
INVITATION_MAX: Final = 100
#: Where an identity provider sends browsers back to.
SSO_CALLBACK: Final = "/auth/sso/callback"

RoleName = Literal["owner", "admin", "member", "viewer"]
#: A role in one project. Whoever administers does so for the whole organization.
ProjectRoleName = Literal["member", "viewer"]
#: What somebody is in an organization; `none`: only what their roles in projects make of them.
OrgRoleName = Literal["owner", "admin", "member", "viewer", "none"]
SignupMode = Literal["open", "domain", "invite"]

_LABEL: Final = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_DOMAIN: Final = re.compile(rf"{_LABEL}(?:\.{_LABEL})*", re.ASCII)
#: Characters that nobody sees although they are letters or marks (Unicode, Default_Ignorable_Code_Point).
_UNSEEN: Final = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
#: Controls, bidirectional and other format marks, halves of pairs, private and unassigned ones, separators.
_NO_TEXT: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zs", "Zl", "Zp"})
_LOCAL: Final = re.compile(r"[^\s@\x00-\x20\x7f\"(),:;<>\[\]\\]{1,64}")


class SignIn(Unlogged, forbid_unknown_fields=True):
    """An address and a password. Secrets: never log one."""

    email: Annotated[str, Meta(max_length=EMAIL_MAX)]
    password: Annotated[str, Meta(max_length=PASSWORD_MAX)]


class SignUp(Unlogged, forbid_unknown_fields=True):
    """What a new account is made of. Secrets: never log one."""

    email: Annotated[str, Meta(max_length=EMAIL_MAX)]
    password: Annotated[str, Meta(min_length=PASSWORD_MIN, max_length=PASSWORD_MAX)]
    #: The secret of an invitation, for whoever was given one.
    invitation: Annotated[str, Meta(max_length=INVITATION_MAX)] | None = None


class PasswordChange(Unlogged, forbid_unknown_fields=True):
    """The old password and the new one. Secrets: never log one."""

    current_password: Annotated[str, Meta(max_length=PASSWORD_MAX)]
    new_password: Annotated[str, Meta(min_length=PASSWORD_MIN, max_length=PASSWORD_MAX)]


class AccountShown(msgspec.Struct):
    """An account as its owner sees it. `id` is null in single-user mode."""

    id: str | None
    email: str
    has_password: bool
    created_at: Instant | None


class Belonging(msgspec.Struct):
    """An organization that an account belongs to, and as what."""

    slug: str
    name: str
    role: OrgRoleName


class InvitationOffered(msgspec.Struct):
    """An invitation of the account. `needs_link`: it is accepted with the secret of its link alone."""

    slug: str
    name: str
    role: OrgRoleName
    invited_by: str
    expires_at: Instant
    needs_link: bool


class Me(msgspec.Struct, omit_defaults=True):
    """Who is signed in, where they belong, and where they are invited to while they are."""

    account: AccountShown
    organizations: list[Belonging]
    invitation: InvitationOffered | msgspec.UnsetType = msgspec.UNSET


class InvitationAccepted(Unlogged, forbid_unknown_fields=True):
    """The acceptance of an invitation, with the secret of its link. Secrets: never log one."""

    invitation: Annotated[str, Meta(max_length=INVITATION_MAX)] | None = None


class LinkWanted(msgspec.Struct, forbid_unknown_fields=True):
    """The address that the link of its invitation is to be mailed to."""

    email: Annotated[str, Meta(max_length=EMAIL_MAX)]


class LinkAsked(msgspec.Struct):
    """The answer to everybody: if the address is invited, a mail with the link is on its way."""

    asked: Literal[True] = True


class Undecided(msgspec.Struct):
    """Nobody has said yet who may join: what is proposed, and how to decide, in words."""

    proposed: SignupMode
    message: str


class SignedUp(Me, omit_defaults=True):
    """Who has just signed up; the first account is asked at once who may join."""

    signup_undecided: Undecided | msgspec.UnsetType = msgspec.UNSET


class Mode(msgspec.Struct):
    """How one signs in here, for a page that nobody has signed in to yet."""

    auth: Literal["password", "sso", "disabled"]
    sso: bool
    signup: SignupMode
    has_accounts: bool


class SignedOut(msgspec.Struct):
    """The answer to a sign-out."""

    signed_out: Literal[True] = True


class SessionShown(msgspec.Struct):
    """One sign-in of an account."""

    id: str
    created_at: Instant
    last_seen_at: Instant
    expires_at: Instant
    address: str
    user_agent: str
    current: bool


class Ended(msgspec.Struct):
    """How many sign-ins were ended."""

    ended: int


class SignupPolicy(msgspec.Struct, forbid_unknown_fields=True):
    """Who may make an account (spec, "Sign-up policy")."""

    mode: SignupMode
    domains: Annotated[list[str], Meta(max_length=1000)] = msgspec.field(default_factory=list)


class SignupPolicyShown(msgspec.Struct, omit_defaults=True):
    """The sign-up policy, and what its owner should know while there is something to know."""

    mode: SignupMode
    domains: list[str]
    undecided: Undecided | msgspec.UnsetType = msgspec.UNSET
    warnings: list[str] = msgspec.field(default_factory=list)


def email_written(email: str) -> str:
    """An address as it is shown: as its owner wrote it, in the compatible form (NFKC)."""
    return unicodedata.normalize("NFKC", email.strip()).strip()


def email_key(email: str) -> str | None:
    """An address as it is compared, or None when it is none.

    One `@`, a plain local part without anything unseen in it, a domain name.
    """
    plain = email_written(email)
    local, at, domain = plain.rpartition("@")
    domain = domain.lower()
    key = unicodedata.normalize("NFKC", local.lower())
    if (
        not at
        or len(plain) > EMAIL_MAX
        or not _is_local(local)
        or not _is_local(key)
        or not is_domain(domain)
    ):
        return None
    return f"{key}@{domain}"


def _is_local(text: str) -> bool:
    if _LOCAL.fullmatch(text) is None or _UNSEEN.search(text):
        return False
    return not any(unicodedata.category(letter) in _NO_TEXT for letter in text)


def is_domain(text: str) -> bool:
    """Whether a lower-case text is an exact domain name."""
    return len(text) <= 253 and _DOMAIN.fullmatch(text) is not None
