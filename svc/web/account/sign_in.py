"""Signing in, up and out: forms over the very handlers of `/auth/*`, so that limits and refusals are theirs.

Secrets: a password goes into the handler and is never put back into a page. The secret of an invitation, and
that of the link that a first start prints, stand in the address that was opened and in the form it shows.
"""

from __future__ import annotations

from typing import Any, Final

import attrs
import msgspec

from protocol.refusals import (
    BAD_EMAIL,
    EMAIL_TAKEN,
    SIGNUP_REFUSED,
    SSO_FAILED,
    SSO_UNREACHABLE,
    SSO_UNVERIFIED,
    TOO_MANY_TRIES,
    Refusal,
    Refused,
)
from protocol.rest.accounts import PASSWORD_MAX, PASSWORD_MIN, Mode, SignIn, SignUp
from protocol.sealed import Unlogged
from svc.front.api.accounts import auth
from svc.front.api.accounts.sso import path_here
from svc.front.api.routes import ApiReply
from svc.front.auth.calls import Call
from svc.store.accounts.projects import ProjectStore
from svc.store.reads.onboarding import OnboardingReads
from svc.web.account.invitation import invitation_page
from svc.web.account.kept_form import KeptForm, kept_again
from svc.web.shell.forms import NoFields
from svc.web.shell.page import Go, Html, PageRoute, Visit
from svc.web.shell.render import query

#: What a sign-in at the identity provider can be told, by the code that the callback sends back.
_FROM_PROVIDER: Final = {
    refusal.code: refusal
    for refusal in (
        SSO_FAILED,
        SSO_UNVERIFIED,
        SSO_UNREACHABLE,
        SIGNUP_REFUSED,
        EMAIL_TAKEN.saying("this address belongs to another identity, or looks like another account's"),
        TOO_MANY_TRIES,
    )
}

#: Who may sign up, in a sentence.
POLICY: Final = {
    "open": "Anyone who can reach this address can sign up.",
    "domain": "Addresses at the listed domains can sign up, and anyone who was invited.",
    "invite": "Only people who were invited can sign up, with the link from their invitation.",
}


class LoginForm(Unlogged):
    """The sign-in form. Secrets: never log one."""

    email: str = ""
    password: str = ""
    next: str = "/"
    #: A form that was sent after the session before had ended: where to, and what was typed.
    again: str = ""
    typed: str = ""


class SignupForm(LoginForm):
    """The sign-up form. Secrets: never log one."""

    invitation: str = ""
    owner: str = ""


async def _mode(visit: Visit) -> Mode:
    return await auth.mode(visit.call)


async def login(visit: Visit) -> Html | Go:
    """The sign-in page; whoever is signed in goes on."""
    going = path_here(visit.query.get("next", "/"))
    mode = await _mode(visit)
    login = await visit.means.callers.login(visit.call.headers, secure=visit.call.client.secure)
    if mode.auth == "disabled" or login is not None:
        return Go(going)
    refusal = _FROM_PROVIDER.get(visit.query.get("refused", ""))
    if not mode.has_accounts and mode.auth == "password" and refusal is None:
        return Go("/signup")
    return _login_page(mode, going, "", refusal)


async def post_login(visit: Visit) -> Html | Go:
    """Sign in and go where one was going."""
    form: LoginForm = visit.form
    going = path_here(form.next)
    kept = kept_again(form.again, form.typed)
    answer = await _answer(visit, auth.sign_in, SignIn, {"email": form.email, "password": form.password})
    if isinstance(answer, Refusal):
        return _login_page(await _mode(visit), going, form.email, answer, kept)
    if kept is not None:
        return Html("account/send_again", {"kept": kept, "going": going}, cookies=answer.cookies, secret=True)
    if answer.data.invitation and not going.startswith("/signup?"):
        going = "/invitation"
    return Go(going, cookies=answer.cookies)


def _login_page(
    mode: Mode, going: str, email: str, refusal: Refusal | None, kept: KeptForm | None = None
) -> Html:
    context = {
        "mode": mode,
        "kept": kept,
        "going": going,
        "email": email,
        "refusal": refusal,
        "policy": POLICY[mode.signup],
    }
    return Html(
        "account/login" if kept is None else "account/signed_out",
        context,
        status=refusal.status if refusal else 200,
        secret=True,
        retry_after_s=refusal.retry_after_s if refusal else None,
    )


async def signup(visit: Visit) -> Html | Go:
    """The sign-up page: who may, in a sentence."""
    mode = await _mode(visit)
    if mode.auth == "disabled":
        return Go("/")
    form = SignupForm(
        next=path_here(visit.query.get("next", "/")),
        invitation=visit.query.get("invitation", ""),
        owner=visit.query.get("owner", ""),
    )
    login = await visit.means.callers.login(visit.call.headers, secure=visit.call.client.secure)
    if login is not None and form.invitation:
        return await invitation_page(visit, login.account_id, form.invitation, None)
    return await _signup_page(visit, mode, form, None)


async def post_signup(visit: Visit) -> Html | Go:
    """Make an account and sign in; an owner is led to where a first program is connected, unless one is."""
    form: SignupForm = visit.form
    link = visit.process_view.owner_link
    owns = link.opens(form.owner)
    fields: dict[str, Any] = {"email": form.email, "password": form.password}
    if form.invitation:
        fields["invitation"] = form.invitation

    async def sign_up(call: Call[SignUp]) -> ApiReply | Refusal:
        return await auth.signed_up(call, owns=owns)

    answer = await _answer(visit, sign_up, SignUp, fields)
    if isinstance(answer, Refusal):
        return await _signup_page(visit, await _mode(visit), form, answer)
    if owns:
        link.spend()
    going = path_here(form.next)
    if going == "/" and any(membership.role == "owner" for membership in answer.data.organizations):
        org = await ProjectStore(visit.means.database).the_org()
        projects = await ProjectStore(visit.means.database).list(org.id)
        going = f"/orgs/{org.slug}/projects/{projects[0].slug}/connect" if projects else "/"
        if projects and (await OnboardingReads(visit.means.database).steps(projects[0].id)).done:
            # There is something to see already.
            going = "/"
    return Go(going, cookies=answer.cookies)


async def _signup_page(visit: Visit, mode: Mode, form: SignupForm, refusal: Refusal | None) -> Html:
    link = visit.process_view.owner_link
    refused = refusal is not None and refusal.code == SIGNUP_REFUSED.code
    going = query("/signup", invitation=form.invitation) if form.invitation else form.next
    context = {
        "mode": mode,
        "form": form,
        "owns": link.opens(form.owner),
        "spent": bool(form.owner) and not link.opens(form.owner),
        "refusal": refusal,
        "policy": POLICY[mode.signup],
        "shortest": PASSWORD_MIN,
        "longest": PASSWORD_MAX,
        "going": "" if going == "/" else going,
        "mails": refused and await visit.means.invitation_mail.can_send(),
    }
    return Html(
        "account/signup",
        context,
        status=refusal.status if refusal else 200,
        secret=True,
        retry_after_s=refusal.retry_after_s if refusal else None,
    )


async def _answer(visit: Visit, handler: Any, body: type[msgspec.Struct], fields: dict[str, Any]) -> Any:
    """What a handler of the REST API answers to these fields."""
    try:
        request_body = msgspec.convert(fields, body)
    except msgspec.ValidationError as error:
        return BAD_EMAIL.saying(_in_words(str(error)))
    try:
        return await handler(attrs.evolve(visit.call, body=request_body))
    except Refused as refused:
        return refused.refusal


def _in_words(error: str) -> str:
    """What is wrong with a field, without the words of the decoder."""
    if "password" in error:
        return f"the password must have {PASSWORD_MIN} to {PASSWORD_MAX} characters"
    return BAD_EMAIL.message if "email" in error else "the invitation of this link cannot be read"


async def post_logout(visit: Visit) -> Go:
    """End the session."""
    reply = await auth.sign_out(visit.call)
    return Go("/login", cookies=reply.cookies)


PAGES: Final = (
    PageRoute("GET", "/login", "PUBLIC", login),
    PageRoute("POST", "/login", "PUBLIC", post_login, form=LoginForm),
    PageRoute("GET", "/signup", "PUBLIC", signup),
    PageRoute("POST", "/signup", "PUBLIC", post_signup, form=SignupForm),
    PageRoute("POST", "/logout", "PUBLIC", post_logout, form=NoFields),
)
