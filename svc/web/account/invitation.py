"""An invitation as pages: the offer to whoever is signed in, their answer, and the link by mail.

Forms over the handlers of `/auth/invitation*`.

Secrets: the secret of the link stands in the address that was opened and in the form it shows.
"""

from __future__ import annotations

from typing import Any, Final

import attrs
import msgspec

from protocol.refusals import BAD_EMAIL, INVITATION_LINK, Refusal, Refused
from protocol.rest.accounts import InvitationAccepted, LinkWanted
from protocol.sealed import Unlogged
from svc.front.api.accounts import auth, invitations
from svc.front.auth.callers import Person
from svc.web.shell.page import Go, Html, PageRoute, Visit


class AnswerForm(Unlogged):
    """The answer to an invitation. Secrets: never log one."""

    answer: str = ""
    invitation: str = ""


class LinkForm(msgspec.Struct):
    """Where the link is to be mailed to."""

    email: str = ""


async def page(visit: Visit) -> Html | Go:
    """The offer; whoever has none goes on to the start page."""
    return await invitation_page(visit, visit.call.person.login.account_id, "", None)


async def invitation_page(visit: Visit, account_id: Any, secret: str, refusal: Refusal | None) -> Html | Go:
    """The offer to an account, with the secret of the link that it came with."""
    account = await visit.means.accounts.find(account_id)
    me = None if account is None else await auth.me_of(visit.means, account)
    offer = None if me is None else me.invitation or None
    if me is None or (offer is None and not secret):
        return Go("/")
    context = {
        "me": me,
        "offer": offer,
        "secret": secret,
        "refusal": refusal,
        "mails": await visit.means.invitation_mail.can_send(),
    }
    status = refusal.status if refusal else 200
    return Html("account/invitation", context, status=status, secret=True)


async def post_answer(visit: Visit) -> Html | Go:
    """Accept or decline."""
    form: AnswerForm = visit.form
    if form.answer != "accept":
        await invitations.post_decline(visit.call)
        return Go("/")
    try:
        body = msgspec.convert({"invitation": form.invitation or None}, InvitationAccepted)
    except msgspec.ValidationError:
        body = InvitationAccepted()
    answer = await invitations.post_accept(attrs.evolve(visit.call, body=body))
    if answer == INVITATION_LINK:
        assert isinstance(visit.call.caller, Person)
        return await invitation_page(visit, visit.call.caller.login.account_id, "", INVITATION_LINK)
    return Go("/")


async def post_link(visit: Visit) -> Html:
    """Ask for the link by mail; the page says the same to everybody."""
    answer: object
    try:
        link_request = msgspec.convert({"email": visit.form.email}, LinkWanted)
        answer = await invitations.post_link(attrs.evolve(visit.call, body=link_request))
    except msgspec.ValidationError:
        answer = BAD_EMAIL
    except Refused as refused:
        answer = refused.refusal
    refusal = answer if isinstance(answer, Refusal) else None
    return Html(
        "account/invitation_link",
        {"refusal": refusal, "email": visit.form.email},
        status=refusal.status if refusal else 200,
        retry_after_s=refusal.retry_after_s if refusal else None,
    )


PAGES: Final = (
    PageRoute("GET", "/invitation", "SIGNED_IN", page),
    PageRoute("POST", "/invitation", "SIGNED_IN", post_answer, form=AnswerForm),
    PageRoute("POST", "/invitation/link", "PUBLIC", post_link, form=LinkForm),
)
