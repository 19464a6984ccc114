"""`/auth/sso/*`: sign in through an external OpenID Connect provider.

`login` sends the browser away with a sealed cookie that says what must come back; `callback` takes who came
back for an account, under the same sign-up policy as a password.

Ordering: the cookie of an attempt is taken back by the callback whatever comes of it, so it serves once in
the browser; the code it belongs to serves once at the provider.
"""

from __future__ import annotations

import re
from hmac import compare_digest
from typing import Final

import attrs
import msgspec

from protocol.refusals import (
    EMAIL_TAKEN,
    LOOKS_ALIKE,
    SIGNUP_REFUSED,
    SSO_FAILED,
    SSO_OFF,
    SSO_UNREACHABLE,
    SSO_UNVERIFIED,
    TOO_MANY_TRIES,
    Refusal,
)
from protocol.rest.accounts import SSO_CALLBACK, email_key, email_written
from protocol.sign_on import Attempt, SsoFailed
from protocol.storage import Outage
from svc.front.api.accounts.auth import limited_place, signed_in
from svc.front.api.routes import ApiReply, Route
from svc.front.auth.calls import Call
from svc.front.auth.cookies import attempts, clear_attempt, set_attempt
from svc.front.ports import SignOn
from svc.store.accounts import admission

#: How long somebody may take at the provider.
ATTEMPT_S: Final = 600

_PATH: Final = re.compile(r"/(?!/)[\x21-\x5b\x5d-\x7e]*")


class LoginQuery(msgspec.Struct):
    """Where to go once signed in: a path here. Anything else means the start page."""

    next: str = "/"


class CallbackQuery(msgspec.Struct):
    """What the provider sends back. It may send more."""

    state: str = ""
    code: str = ""
    error: str = ""


class _Kept(msgspec.Struct, array_like=True):
    """What the sealed cookie of an attempt holds."""

    state: str
    nonce: str
    verifier: str
    next: str
    until: float


def path_here(path: str) -> str:
    """A path on this very origin; what could lead elsewhere becomes the start page."""
    return path if len(path) <= 2000 and _PATH.fullmatch(path) else "/"


async def login(call: Call[None]) -> ApiReply | Refusal:
    """Go to the identity provider to sign in there."""
    provider = call.means.sso
    if provider is None:
        return SSO_OFF
    attempt = Attempt.fresh()
    try:
        url = await provider.authorization_url(attempt)
    except Outage:
        return SSO_UNREACHABLE
    except SsoFailed as failed:
        return SSO_FAILED.saying(str(failed))
    until = call.means.now().timestamp() + ATTEMPT_S
    state = _Kept(attempt.state, attempt.nonce, attempt.verifier, path_here(call.query.next), until)
    sealed = call.means.sso_seal.close(msgspec.msgpack.encode(state))
    return ApiReply(location=url, cookies=(set_attempt(sealed, ATTEMPT_S, secure=call.client.secure),))


async def callback(call: Call[None]) -> ApiReply | Refusal:
    """Come back from the identity provider, signed in."""
    if call.means.sso is None:
        return SSO_OFF
    reply = await _came_back(call, call.means.sso)
    cleared = clear_attempt(secure=call.client.secure)
    if isinstance(reply, Refusal):
        if "text/html" in call.headers.get("accept", ""):
            # A person: the page where they began says why.
            return ApiReply(location=f"/login?refused={reply.code}", cookies=(cleared,))
        return ApiReply(reply, cookies=(cleared,))
    return attrs.evolve(reply, cookies=(*reply.cookies, cleared))


async def _came_back(call: Call[None], provider: SignOn) -> ApiReply | Refusal:
    state = _open_attempt(call)
    if state is None or not compare_digest(state.state.encode(), call.query.state.encode()):
        return SSO_FAILED.saying("this sign-in was not begun in this browser, or too long ago; begin again")
    if call.query.error or not call.query.code:
        return SSO_FAILED.saying("the identity provider did not sign you in")
    refusal = limited_place(call)
    if refusal is not None:
        return refusal
    try:
        identity = await provider.identity(Attempt(state.state, state.nonce, state.verifier), call.query.code)
    except Outage:
        return SSO_UNREACHABLE
    except SsoFailed as failed:
        return SSO_FAILED.saying(str(failed))
    key = None if identity.email is None else email_key(identity.email)
    sign_in = await call.means.accounts.sign_in_by_sso(
        (identity.issuer, identity.subject),
        (email_written(identity.email), key) if identity.verified and identity.email and key else None,
    )
    match sign_in:
        case admission.Unverified():
            return SSO_UNVERIFIED
        case admission.NotAdmitted():
            return SIGNUP_REFUSED
        case admission.EmailTaken():
            return EMAIL_TAKEN.saying("this address belongs to another identity at the provider")
        case admission.LooksAlike():
            return LOOKS_ALIKE
        case account:
            reply = await signed_in(call, account)
    going = "/invitation" if reply.data.invitation else state.next
    return ApiReply(location=call.means.landing + going, cookies=reply.cookies)


def _open_attempt(call: Call[None]) -> _Kept | None:
    for value in attempts(call.headers.get("cookie"), secure=call.client.secure):
        opened = call.means.sso_seal.open(value)
        if opened is not None:
            state = msgspec.msgpack.decode(opened, type=_Kept)
            return state if state.until > call.means.now().timestamp() else None
    return None


_REFUSALS: Final = (SSO_OFF, SSO_FAILED, SSO_UNREACHABLE)

ROUTES: Final = (
    Route("GET", "/auth/sso/login", "PUBLIC", login, None, query=LoginQuery, status=303, refusals=_REFUSALS),
    Route(
        "GET", SSO_CALLBACK, "PUBLIC", callback, None, query=CallbackQuery, status=303,
        refusals=(*_REFUSALS, SSO_UNVERIFIED, SIGNUP_REFUSED, EMAIL_TAKEN, LOOKS_ALIKE, TOO_MANY_TRIES),
    ),
)  # fmt: skip
