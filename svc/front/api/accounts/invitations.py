"""`/auth/invitation*`: an invitation of whoever is signed in, and the link of one by mail.

The offer itself stands in `/auth/me` and in the answer to a sign-in. Making and withdrawing invitations is
`members.py`.

Secrets: whoever asks for a link hears the same whether or not the address is invited, and no sooner: a
mailer looks it up later.
"""

from __future__ import annotations

from typing import Final

from protocol.refusals import (
    BAD_EMAIL,
    INVITATION_LINK,
    NO_INVITATION,
    NO_MAIL,
    TOO_MANY_TRIES,
    Refusal,
)
from protocol.rest.accounts import InvitationAccepted, LinkAsked, LinkWanted, Me, email_key
from svc.front.api.accounts import auth
from svc.front.api.accounts.auth import limited_place, refuse_passwords, told_to_wait
from svc.front.api.routes import Route
from svc.front.auth.calls import Call
from svc.store.accounts.invitations import InvitationStore


async def post_accept(call: Call[InvitationAccepted]) -> Me | Refusal:
    """Take up the invitation of my address."""
    store = InvitationStore(call.means.database)
    match await store.accept(call.person.login.account_id, call.body.invitation):
        case "unknown":
            return NO_INVITATION
        case "link":
            return INVITATION_LINK
    return await auth.me(call)


async def post_decline(call: Call[None]) -> Me | Refusal:
    """Decline the invitation of my address."""
    declined = await InvitationStore(call.means.database).decline(call.person.login.account_id)
    return await auth.me(call) if declined else NO_INVITATION


async def post_link(call: Call[LinkWanted]) -> LinkAsked | Refusal:
    """Mail the link of the invitation of an address to that address, if it is invited."""
    means = call.means
    refuse_passwords(means)
    key = email_key(call.body.email)
    if key is None:
        return BAD_EMAIL
    wait = limited_place(call) or told_to_wait(means, means.attempts.sign_up(key, call.client.place))
    if wait is not None:
        return wait
    if not await means.invitation_mail.can_send():
        return NO_MAIL
    means.invitation_mail.ask(key)
    return LinkAsked()


ROUTES: Final = (
    Route(
        "POST", "/auth/invitation/accept", "SIGNED_IN", post_accept, Me, body=InvitationAccepted,
        refusals=(NO_INVITATION, INVITATION_LINK),
    ),
    Route("POST", "/auth/invitation/decline", "SIGNED_IN", post_decline, Me, refusals=(NO_INVITATION,)),
    Route(
        "POST", "/auth/invitation/link", "PUBLIC", post_link, LinkAsked, body=LinkWanted, status=202,
        refusals=(BAD_EMAIL, NO_MAIL, TOO_MANY_TRIES),
    ),
)  # fmt: skip
