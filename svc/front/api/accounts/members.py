"""`{o}/members` and `{o}/invitations`: who belongs to the organization, and who may come.

Secrets: that of an invitation leaves in the answer to its creation and is kept nowhere.
"""

from __future__ import annotations

from typing import Final

import msgspec

from protocol.refusals import (
    ALREADY_INVITED,
    ALREADY_MEMBER,
    BAD_EMAIL,
    FORBIDDEN,
    LAST_OWNER,
    LOOKS_ALIKE,
    NO_PROJECT_ROLE,
    NO_SUCH_ACCOUNT,
    NO_SUCH_INVITATION,
    NO_SUCH_MEMBER,
    NO_SUCH_PROJECT,
    OWNERS_ONLY,
    Refusal,
)
from protocol.rest.accounts import email_key, email_written
from protocol.rest.orgs import (
    InvitationMade,
    InvitationNew,
    InvitationShown,
    KeyLeft,
    MemberChange,
    MemberChanged,
    MemberNew,
    MemberRemoved,
    MemberShown,
    RemovalQuery,
    Removed,
)
from protocol.rest.query import timestamp
from protocol.storage import Eviction
from svc.domain.accounts.access import may
from svc.front.api.routes import ORG, Route
from svc.front.auth.callers import Person
from svc.front.auth.calls import Call
from svc.store.accounts.members import Changed, Changer, Denied, Gone, Invitation, Member, MemberStore


def _store(call: Call[object]) -> MemberStore:
    return MemberStore(call.means.database, call.org.id)


def _changer(call: Call[object]) -> Changer:
    assert call.org_role is not None, "a route of an organization has a role"
    return Changer(call.org_role, call.caller.label)


def _refusal(denied: Denied, unknown: Refusal) -> Refusal:
    return {
        "unknown": unknown,
        "last owner": LAST_OWNER,
        "owners only": OWNERS_ONLY,
        "member": ALREADY_MEMBER,
        "invited": ALREADY_INVITED,
        "alike": LOOKS_ALIKE,
        "no project": NO_SUCH_PROJECT,
        "no project role": NO_PROJECT_ROLE,
    }[denied]


def _member_view(member: Member) -> MemberShown:
    return MemberShown(
        str(member.id), member.email, member.role, timestamp(member.created_at), dict(member.projects)
    )


def _invitation(invitation: Invitation) -> InvitationShown:
    return InvitationShown(
        id=str(invitation.id),
        email=invitation.email,
        role=invitation.role,
        invited_by=invitation.invited_by,
        created_at=timestamp(invitation.created_at),
        expires_at=timestamp(invitation.expires_at),
        projects=dict(invitation.projects),
    )


async def get_members(call: Call[None]) -> list[MemberShown]:
    """Everybody who belongs to the organization."""
    return [_member_view(member) for member in await _store(call).list()]


async def post_member(call: Call[MemberNew]) -> MemberShown | Refusal:
    """Make an existing account a member; somebody new is invited instead."""
    key = email_key(call.body.email)
    if key is None:
        return BAD_EMAIL
    member = await _store(call).add(key, call.body.role, _changer(call), call.body.projects)
    return _member_view(member) if isinstance(member, Member) else _refusal(member, NO_SUCH_ACCOUNT)


async def patch_member(call: Call[MemberChange]) -> MemberChanged | Refusal:
    """Give a member another role, in the organization and in single projects."""
    account_id = call.id_of("memberId", NO_SUCH_MEMBER)
    changed = await _store(call).change(
        account_id,
        call.body.role,
        _changer(call),
        projects=call.body.projects,
        revoke_keys=call.body.revoke_keys,
    )
    if not isinstance(changed, Changed):
        return _refusal(changed, NO_SUCH_MEMBER)
    for project_id in changed.ended.project_ids:
        call.means.keys.evict(Eviction(project_id=project_id))
    member = msgspec.structs.asdict(_member_view(changed.member))
    return MemberChanged(**member, keys_revoked=changed.ended.keys_revoked)


async def delete_member(call: Call[None]) -> MemberRemoved | Refusal:
    """Take a member out, or leave; revoke_keys=true revokes the keys that they minted. The account stays."""
    account_id = call.id_of("memberId", NO_SUCH_MEMBER)
    changer = _changer(call)
    leaves = isinstance(call.caller, Person) and call.caller.login.account_id == account_id
    if not leaves and not may(changer.role, "ORG_ADMIN"):
        return FORBIDDEN.saying("this needs the role admin or owner, or to be yourself")
    removal = await _store(call).remove(
        account_id, changer, leaves=leaves, revoke_keys=call.query.revoke_keys
    )
    if not isinstance(removal, Gone):
        return _refusal(removal, NO_SUCH_MEMBER)
    for project_id in removal.ended.project_ids:
        call.means.keys.evict(Eviction(project_id=project_id))
    return MemberRemoved(
        [KeyLeft(key.id, key.project, key.name, key.scope, key.token_prefix) for key in removal.keys],
        removal.key_count,
        removal.ended.keys_revoked,
    )


async def get_invitations(call: Call[None]) -> list[InvitationShown]:
    """Every pending invitation."""
    return [_invitation(invitation) for invitation in await _store(call).invitations()]


async def post_invitation(call: Call[InvitationNew]) -> InvitationMade | Refusal:
    """Let an address sign up, whatever the policy says, or its account join; the secret is shown once."""
    key = email_key(call.body.email)
    if key is None:
        return BAD_EMAIL
    invite = await _store(call).invite(
        email_written(call.body.email), key, call.body.role, _changer(call), call.body.projects
    )
    if not isinstance(invite, tuple):
        return _refusal(invite, NO_SUCH_INVITATION)
    invitation, secret = invite
    return InvitationMade(**msgspec.structs.asdict(_invitation(invitation)), secret=secret)


async def delete_invitation(call: Call[None]) -> Removed | Refusal:
    """Take a pending invitation back."""
    invitation_id = call.id_of("invitationId", NO_SUCH_INVITATION)
    withdrawn = await _store(call).withdraw(invitation_id, _changer(call))
    return Removed() if isinstance(withdrawn, Invitation) else NO_SUCH_INVITATION


_MEMBER: Final = ORG + "/members/{memberId}"

ROUTES: Final = (
    Route("GET", ORG + "/members", "ORG_ADMIN", get_members, list[MemberShown]),
    Route(
        "POST", ORG + "/members", "ORG_ADMIN", post_member, MemberShown, body=MemberNew, status=201,
        refusals=(BAD_EMAIL, NO_SUCH_ACCOUNT, ALREADY_MEMBER, NO_PROJECT_ROLE, NO_SUCH_PROJECT),
    ),
    Route(
        "PATCH", _MEMBER, "ORG_ADMIN", patch_member, MemberChanged, body=MemberChange,
        refusals=(NO_SUCH_MEMBER, LAST_OWNER, NO_PROJECT_ROLE, NO_SUCH_PROJECT),
    ),
    Route(
        "DELETE", _MEMBER, "ORG_BELONG", delete_member, MemberRemoved, query=RemovalQuery,
        refusals=(NO_SUCH_MEMBER, LAST_OWNER),
    ),
    Route("GET", ORG + "/invitations", "ORG_ADMIN", get_invitations, list[InvitationShown]),
    Route(
        "POST", ORG + "/invitations", "ORG_ADMIN", post_invitation, InvitationMade, body=InvitationNew,
        status=201, refusals=(BAD_EMAIL, ALREADY_INVITED, LOOKS_ALIKE, NO_PROJECT_ROLE, NO_SUCH_PROJECT),
    ),
    Route(
        "DELETE", ORG + "/invitations/{invitationId}", "ORG_ADMIN", delete_invitation, Removed,
        refusals=(NO_SUCH_INVITATION,),
    ),
)  # fmt: skip
