"""A form that was sent after its session had ended: what was typed is kept in the page that asks to sign in.

Called by the site for a form of ours that nobody signed in sent, and by the sign-in after it. It never holds
one: the form travels through the two pages and is sent again by a button, as whoever signed in then.

Secrets: a form in which a secret was typed is not kept, for that would put the secret into a page.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Final
from urllib.parse import parse_qsl

import attrs

from protocol.refusals import API_UNAUTHORIZED
from svc.front.api.accounts import auth
from svc.front.api.accounts.sso import path_here
from svc.front.auth.calls import Call
from svc.web.shell.forms import sent_from
from svc.web.shell.page import Html

#: Fields of our forms that hold secrets.
SECRET_FIELDS: Final = frozenset({"password", "current_password", "new_password", "secret"})
#: What is kept at most, as it is sent. Nobody has to be signed in for it, and the event loop reads it:
#: 7 ms where each byte is escaped, 64 ms at four times as much (November 2026).
TYPED_BYTES: Final = 64 * 1024
_FIELDS: Final = 200


@attrs.frozen
class KeptForm:
    """Where it was sent to, and its fields in their order."""

    address: str
    fields: tuple[tuple[str, str], ...] = attrs.field(repr=False)
    #: The same as one word, for a field of the sign-in.
    typed: str = attrs.field(repr=False)


def kept_form(address: str, body: bytes) -> KeptForm | None:
    """The form as it can be kept; None where it is too long, no form, for nowhere here, or holds a secret."""
    if len(body) > TYPED_BYTES or path_here(address) == "/":
        return None
    try:
        fields = parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=_FIELDS)
    except ValueError:
        return None
    if any(value for name, value in fields if name in SECRET_FIELDS):
        return None
    return KeptForm(address, tuple(fields), urlsafe_b64encode(body).decode())


def kept_again(address: str, typed: str) -> KeptForm | None:
    """The form that the sign-in was given."""
    try:
        return kept_form(address, urlsafe_b64decode(typed)) if address else None
    except ValueError:
        return None


async def signed_out(call: Call[None], address: str, body: bytes) -> Html:
    """The page for whoever sent a form, with this body, after their session had ended."""
    mode = await auth.mode(call)
    kept = kept_form(address, body)
    context = {"mode": mode, "kept": kept, "going": came_from(call), "refusal": None, "email": ""}
    return Html("account/signed_out", context, status=API_UNAUTHORIZED.status, secret=True)


def came_from(call: Call[None]) -> str:
    """The page of ours that held the form, else the start page."""
    page = sent_from(call.headers)
    path = page.path.removeprefix(call.means.surroundings.base_path)
    return path_here(path + (f"?{page.query}" if page.query else ""))
