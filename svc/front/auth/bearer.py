"""Who may pass a bearer-only door: the token of the request, its grant, its scope.

Called by the OTLP doors and the query API. Every credential check refuses before any work runs (spec).
"""

from __future__ import annotations

from collections.abc import Collection

from actors.keys import Busy, Grant, Keys, WasRevoked
from protocol.refusals import NO_TENANT, OTHER_USE, REVOKED_KEY, UNAVAILABLE, UNKNOWN_KEY, Refusal
from protocol.tokens import Scope, bearer


async def authorize(
    keys: Keys,
    authorization: str | None,
    allowed: Collection[Scope],
    wrong_scope: Refusal,
    *,
    purposes: Collection[str] = (),
    place: str,
) -> Grant | Refusal:
    """The grant of a request, or why it is refused: 401 without a living key, `wrong_scope` otherwise.

    A key that was made for a purpose opens only a door that names it in `purposes`. `place` is the client's.
    """
    token = bearer(authorization)
    if token is None:
        return NO_TENANT
    # Keys that people make for one use are told from unknown ones, and open nothing more for it.
    match await keys.verify(token, purposes={*purposes, *OTHER_USE}, place=place):
        case None:
            return UNKNOWN_KEY
        case WasRevoked():
            return REVOKED_KEY
        case Busy():
            return UNAVAILABLE
        case Grant(purpose=str() as purpose) if purpose not in purposes:
            return OTHER_USE.get(purpose, UNKNOWN_KEY)
        case Grant() as grant:
            return grant if grant.scope in allowed else wrong_scope
