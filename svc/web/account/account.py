"""One's own account: how pages look, the password, where one is signed in; in single-user mode the look."""

from __future__ import annotations

from typing import Final

import attrs
import msgspec

from protocol.refusals import BAD_REQUEST, NO_SUCH_SESSION, Refusal, Refused
from protocol.rest.accounts import PASSWORD_MAX, PASSWORD_MIN, PasswordChange
from protocol.sealed import Unlogged
from svc.front.api.accounts import auth
from svc.front.auth.callers import Person
from svc.web.shell.forms import NoFields
from svc.web.shell.page import Go, Html, PageRoute, Visit
from svc.web.shell.preferences import (
    KEYS_COOKIE,
    THEME_COOKIE,
    THEMES,
    ZONE_COOKIE,
    is_zone,
    preference_cookie,
)

_DONE: Final = {
    "look": "Saved in this browser.",
    "password": "Password changed. You are signed out everywhere else.",
    "session": "Session ended.",
    "sessions": "All other sessions ended.",
}


class LookForm(msgspec.Struct):
    """How pages look in this browser."""

    theme: str = "system"
    zone: str = "UTC"
    keys: str = ""


class PasswordForm(Unlogged):
    """A change of the password. Secrets: never log one."""

    current_password: str = ""
    new_password: str = ""


class SessionForm(msgspec.Struct):
    """Which session to end."""

    id: str


async def account(visit: Visit) -> Html:
    """The account page."""
    return await _page(visit)


async def _page(visit: Visit, section: str = "", refusal: Refusal | None = None) -> Html:
    person = isinstance(visit.call.caller, Person)
    me = await auth.me(visit.call)
    context = {
        "me": None if isinstance(me, Refusal) else me,
        "sessions": await auth.sessions(visit.call) if person else [],
        "themes": THEMES,
        "section": section,
        "refusal": refusal,
        "done": _DONE.get(visit.query.get("done", "")) if refusal is None else None,
        "shortest": PASSWORD_MIN,
        "longest": PASSWORD_MAX,
        "wide": True,
    }
    return Html("account/account", context, status=refusal.status if refusal else 200)


async def post_look(visit: Visit) -> Html | Go:
    """Keep theme, zone and keys in cookies of this browser."""
    form: LookForm = visit.form
    zone = form.zone.strip() or "UTC"
    if form.theme not in THEMES or not is_zone(zone):
        wrong = BAD_REQUEST.saying(f"{zone[:64]!r} is no zone; give one such as Europe/Berlin, or UTC")
        return await _page(visit, "look", wrong)
    return Go(
        "/account?done=look",
        cookies=(
            preference_cookie(THEME_COOKIE, "" if form.theme == "system" else form.theme),
            preference_cookie(ZONE_COOKIE, "" if zone == "UTC" else zone),
            preference_cookie(KEYS_COOKIE, "" if form.keys else "off"),
        ),
    )


async def post_password(visit: Visit) -> Html | Go:
    """Change the password; all other sessions end."""
    form: PasswordForm = visit.form
    try:
        body = msgspec.convert(msgspec.to_builtins(form), PasswordChange)
    except msgspec.ValidationError:
        return await _page(visit, "password", BAD_REQUEST.saying(_LENGTH))
    try:
        answer = await auth.change_password(attrs.evolve(visit.call, body=body))
    except Refused as refused:
        answer = refused.refusal
    if isinstance(answer, Refusal):
        return await _page(visit, "password", answer)
    return Go("/account?done=password")


_LENGTH: Final = f"the new password must have {PASSWORD_MIN} to {PASSWORD_MAX} characters"


async def post_session(visit: Visit) -> Go | Refusal:
    """End one session."""
    form: SessionForm = visit.form
    answer = await auth.end_session(attrs.evolve(visit.call, path={"sessionId": form.id}))
    return NO_SUCH_SESSION if isinstance(answer, Refusal) else Go("/account?done=session")


async def post_sessions(visit: Visit) -> Go:
    """End all sessions but this one."""
    await auth.end_others(visit.call)
    return Go("/account?done=sessions")


PAGES: Final = (
    PageRoute("GET", "/account", "SIGNED_IN", account),
    PageRoute("POST", "/account/look", "SIGNED_IN", post_look, form=LookForm),
    PageRoute("POST", "/account/password", "SIGNED_IN", post_password, form=PasswordForm),
    PageRoute("POST", "/account/session", "SIGNED_IN", post_session, form=SessionForm),
    PageRoute("POST", "/account/sessions", "SIGNED_IN", post_sessions, form=NoFields),
)
