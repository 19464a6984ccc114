"""Keys as people make and revoke them, on every page that lists some of them.

Called by the pages of keys and of MCP tokens; the handlers are those of the REST API.

Secrets: a plaintext stands in the answer to its making, which nobody stores, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from protocol.refusals import Refusal
from protocol.rest.keys import KeyShown
from svc.web.shell.forms import asked
from svc.web.shell.page import Go, Html, Visit


class KeyId(msgspec.Struct):
    """Which key."""

    id: str


class KeyPage(Protocol):
    """A page that lists keys: with one that was just made, or with what could not be done."""

    async def __call__(
        self, visit: Visit, *, plaintext: str | None = None, refusal: Refusal | None = None
    ) -> Html: ...


def by_state(listed: Sequence[KeyShown]) -> dict[str, list[KeyShown]]:
    """The keys that serve and those that do no more, each in the order given."""
    return {state: [key for key in listed if key.state == state] for state in ("active", "revoked")}


async def made(visit: Visit, page: KeyPage, handler: Any, *body: Any) -> Html:
    """The page with what a handler made of these fields (its body's class and they), or of a key's id."""
    path = {} if body else {"keyId": visit.form.id}
    answer = await asked(visit, handler, *body, path=path)
    if isinstance(answer, Refusal):
        return await page(visit, refusal=answer)
    return await page(visit, plaintext=answer.plaintext)


async def revoked(visit: Visit, page: KeyPage, handler: Any, location: str) -> Html | Go:
    """The list without a key."""
    answer = await asked(visit, handler, path={"keyId": visit.form.id})
    if isinstance(answer, Refusal):
        return await page(visit, refusal=answer)
    return Go(visit.base + location)
