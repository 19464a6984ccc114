"""`/auth/*`: sign up, sign in, sign out, who am I, my sessions, my password.

Ordering: limits first, then exactly one bcrypt run for each sign-in and sign-up, whether or not the address
is known, so that the times do not tell.

Secrets: passwords go to the store and nowhere else.
"""

from __future__ import annotations

from typing import Final

import attrs
from msgspec import UNSET, UnsetType

from protocol.refusals import (
    API_UNAUTHORIZED,
    AUTH_DISABLED,
    BAD_CREDENTIALS,
    BAD_EMAIL,
    COMMON_PASSWORD,
    EMAIL_TAKEN,
    LOOKS_ALIKE,
    NO_SUCH_SESSION,
    PASSWORDS_OFF,
    SIGNUP_REFUSED,
    TOO_MANY_TRIES,
    Refusal,
    Refused,
)
from protocol.rest.accounts import (
    AccountShown,
    Belonging,
    Ended,
    InvitationOffered,
    Me,
    Mode,
    PasswordChange,
    SessionShown,
    SignedOut,
    SignedUp,
    SignIn,
    SignUp,
    email_key,
    email_written,
)
from protocol.rest.query import timestamp
from svc.domain.accounts.access import mode_of
from svc.domain.accounts.passwords import is_common
from svc.front.api.routes import ApiReply, Route
from svc.front.auth.callers import SingleUser
from svc.front.auth.calls import Call, Context
from svc.front.auth.cookies import clear_session, session_secret, set_session
from svc.store.accounts import admission
from svc.store.accounts.admission import Account
from svc.store.accounts.invitations import InvitationStore
from svc.store.accounts.orgs import OrgStore
from svc.store.accounts.projects import ProjectStore


def limited_place(call: Call[object]) -> Refusal | None:
    """Count one try of a client address; the seconds to wait when there were too many."""
    return told_to_wait(call.means, call.means.attempts.place(call.client.place))


def told_to_wait(means: Context, wait: int | None) -> Refusal | None:
    """The refusal of a try that has to wait so many seconds, counted."""
    if wait is None:
        return None
    means.attempts.refused += 1
    return TOO_MANY_TRIES.in_(wait)


async def _guess(call: Call[object], account: str, *, signed_in: bool = False) -> bool:
    """Count a guess at an account's password. Raises `Refused` with the seconds to wait after too many.

    Returns whether it goes on only because the account is known: `signed_in`, or it was so from this place.
    """
    means, address = call.means, call.client.place
    refusal = limited_place(call)
    if refusal is None:
        wait = means.attempts.guess(account, address)
        if wait is None:
            return False
        if signed_in or await means.callers.logins.known.is_known(account, address):
            wait = means.attempts.guess_known(account, address)
        refusal = told_to_wait(means, wait)
    if refusal is not None:
        raise Refused(refusal)
    return True


def refuse_passwords(means: Context) -> None:
    """Raises `Refused` where nobody signs in with a password."""
    if means.callers.disabled:
        raise Refused(AUTH_DISABLED)
    if not means.passwords:
        raise Refused(PASSWORDS_OFF)


async def signed_in(call: Call[object], account: Account) -> ApiReply:
    """The answer to somebody who just proved who they are: a fresh session, whatever their cookie was."""
    means = call.means
    secret = await means.callers.logins.open(
        account.id,
        address=call.client.address,
        place=call.client.place,
        user_agent=call.headers.get("user-agent", ""),
        replacing=session_secret(means.callers.seal, call.headers.get("cookie"), secure=call.client.secure),
    )
    cookie = set_session(means.callers.seal.close(secret), secure=call.client.secure)
    return ApiReply(await me_of(means, account), cookies=(cookie,))


async def me_of(means: Context, account: Account) -> Me:
    """An account, where it belongs, and where it is invited to."""
    places = await means.accounts.places(account.id)
    return Me(
        AccountShown(str(account.id), account.email, account.has_password, timestamp(account.created_at)),
        [Belonging(belonging.org.slug, belonging.org.name, belonging.role) for belonging in places],
        await _invitation(means, account),
    )


async def _invitation(means: Context, account: Account) -> InvitationOffered | UnsetType:
    offer = await InvitationStore(means.database).offer(account.id)
    if offer is None:
        return UNSET
    return InvitationOffered(
        offer.org_slug,
        offer.org_name,
        offer.role,
        offer.invited_by,
        timestamp(offer.expires_at),
        offer.needs_link,
    )


async def sign_up(call: Call[SignUp]) -> ApiReply | Refusal:
    """Make an account, if the sign-up policy admits it, and sign in. The first account owns the instance."""
    return await signed_up(call, owns=False)


async def signed_up(call: Call[SignUp], *, owns: bool) -> ApiReply | Refusal:
    """The answer to a sign-up; `owns`: by the link that only the operator has, whatever the policy."""
    means = call.means
    refuse_passwords(means)
    key = email_key(call.body.email)
    if key is None:
        return BAD_EMAIL
    if is_common(call.body.password):
        return COMMON_PASSWORD
    refusal = limited_place(call) or told_to_wait(means, means.attempts.sign_up(key, call.client.place))
    if refusal is not None:
        return refusal
    email, password, secret = email_written(call.body.email), call.body.password, call.body.invitation
    match await means.accounts.sign_up(email, key, password, secret, owns=owns):
        case admission.NotAdmitted():
            return SIGNUP_REFUSED
        case admission.EmailTaken():
            return EMAIL_TAKEN
        case admission.LooksAlike():
            return LOOKS_ALIKE
        case account:
            reply = await signed_in(call, account)
            return attrs.evolve(reply, data=await _sign_up_answer(means, reply.data))


async def _sign_up_answer(means: Context, me: Me) -> SignedUp:
    """Who signed up; an owner, while nobody has decided it, is asked who else may join."""
    undecided = None
    for membership in me.organizations:
        if membership.role == "owner":
            joining = await OrgStore(means.database).joining()
            undecided = joining.undecided(membership.slug, reachable=means.reachable)
    return SignedUp(me.account, me.organizations, signup_undecided=undecided or UNSET)


async def sign_in(call: Call[SignIn]) -> ApiReply | Refusal:
    """Sign in with an address and a password."""
    means = call.means
    refuse_passwords(means)
    key = email_key(call.body.email) or call.body.email.strip().lower()
    login = await means.callers.login(call.headers, secure=call.client.secure)
    is_known = await _guess(call, key, signed_in=login is not None and login.email_key == key)
    account = await means.accounts.sign_in(key, call.body.password)
    if account is None:
        return BAD_CREDENTIALS
    means.attempts.succeeded(key, call.client.place, as_known=is_known)
    return await signed_in(call, account)


async def sign_out(call: Call[None]) -> ApiReply:
    """End the session of the cookie. Without one it does nothing."""
    login = await call.means.callers.login(call.headers, secure=call.client.secure)
    if login is not None:
        await call.means.callers.logins.end(login.account_id, login.id)
    return ApiReply(SignedOut(), cookies=(clear_session(secure=call.client.secure),))


async def me(call: Call[object]) -> Me | Refusal:
    """Who is signed in, and where they belong."""
    if isinstance(call.caller, SingleUser):
        org = await ProjectStore(call.means.database).the_org()
        return Me(
            AccountShown(None, call.caller.label, False, None), [Belonging(org.slug, org.name, "owner")]
        )
    account = await call.means.accounts.find(call.person.login.account_id)
    return API_UNAUTHORIZED if account is None else await me_of(call.means, account)


async def mode(call: Call[None]) -> Mode:
    """How one signs in here, and whether anybody may make an account."""
    joining = await OrgStore(call.means.database).joining()
    return Mode(
        "disabled" if call.means.callers.disabled else "password" if call.means.passwords else "sso",
        call.means.sso is not None,
        mode_of(joining.policy),
        await call.means.accounts.any(),
    )


async def sessions(call: Call[None]) -> list[SessionShown]:
    """My living sessions, newest first."""
    login = call.person.login
    return [
        SessionShown(
            str(row.id),
            timestamp(row.created_at),
            timestamp(row.last_seen_at),
            timestamp(row.expires_at),
            row.address,
            row.user_agent,
            row.id == login.id,
        )
        for row in await call.means.callers.logins.list(login.account_id)
    ]


async def end_session(call: Call[None]) -> Ended | Refusal:
    """End one of my sessions; it is refused from its next request on."""
    session_id = call.id_of("sessionId", NO_SUCH_SESSION)
    was_live = await call.means.callers.logins.end(call.person.login.account_id, session_id)
    return Ended(1) if was_live else NO_SUCH_SESSION


async def end_others(call: Call[None]) -> Ended:
    """End all my sessions but this one."""
    login = call.person.login
    return Ended(await call.means.callers.logins.end_others(login.account_id, login.id))


async def change_password(call: Call[PasswordChange]) -> Ended | Refusal:
    """Change my password; all my other sessions end."""
    login = call.person.login
    refuse_passwords(call.means)
    if is_common(call.body.new_password):
        return COMMON_PASSWORD
    is_known = await _guess(call, login.email_key, signed_in=True)
    ended_count = await call.means.accounts.change_password(
        login.account_id, call.body.current_password, call.body.new_password, keep=login.id
    )
    if ended_count is None:
        return BAD_CREDENTIALS.saying("the current password is wrong")
    call.means.attempts.succeeded(login.email_key, call.client.place, as_known=is_known)
    return Ended(ended_count)


_TRIES: Final = (TOO_MANY_TRIES, AUTH_DISABLED, PASSWORDS_OFF)

ROUTES: Final = (
    Route(
        "POST", "/auth/signup", "PUBLIC", sign_up, SignedUp, body=SignUp, status=201,
        refusals=(SIGNUP_REFUSED, EMAIL_TAKEN, LOOKS_ALIKE, BAD_EMAIL, COMMON_PASSWORD, *_TRIES),
    ),
    Route(
        "POST", "/auth/login", "PUBLIC", sign_in, Me, body=SignIn, refusals=(BAD_CREDENTIALS, *_TRIES)
    ),
    Route("POST", "/auth/logout", "PUBLIC", sign_out, SignedOut),
    Route("GET", "/auth/me", "SIGNED_IN", me, Me),
    Route("GET", "/auth/mode", "PUBLIC", mode, Mode),
    Route("GET", "/auth/sessions", "SIGNED_IN", sessions, list[SessionShown]),
    Route("DELETE", "/auth/sessions", "SIGNED_IN", end_others, Ended),
    Route(
        "DELETE", "/auth/sessions/{sessionId}", "SIGNED_IN", end_session, Ended, refusals=(NO_SUCH_SESSION,)
    ),
    Route(
        "POST", "/auth/password", "SIGNED_IN", change_password, Ended, body=PasswordChange,
        refusals=(TOO_MANY_TRIES, BAD_CREDENTIALS, COMMON_PASSWORD, PASSWORDS_OFF),
    ),
)  # fmt: skip
