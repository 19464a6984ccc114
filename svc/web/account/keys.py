"""Settings: keys. Minted, rotated, revoked through the handlers of the REST API.

Secrets: a plaintext stands in the answer to its minting or rotation, which nobody stores, and nowhere else.
"""

from __future__ import annotations

from typing import Final

import msgspec

from protocol.refusals import Refusal
from protocol.rest.keys import KeyNew, PageQuery
from protocol.tokens import FEEDBACK_PURPOSE, MCP_PURPOSE
from svc.front.api.accounts import keys
from svc.web.account import key_forms
from svc.web.account.key_forms import KeyId
from svc.web.shell.forms import asked
from svc.web.shell.page import PROJECT, Go, Html, PageRoute, Visit
from svc.web.shell.render import query

#: What each scope is for, in the words of whoever needs one.
SCOPES: Final = (
    ("write", "sends traces", "for exporters"),
    ("query", "asks the query API", "for dashboards and scripts"),
    ("feedback", "gives feedback, nothing else", "for web pages: whoever reads it can do no more"),
    ("mcp", "reads over MCP, nothing else", "for agents and editors: an MCP token"),
    ("admin", "all of it, and MCP", "for programs that send and ask"),
)

#: Which scope a key has that is good for one thing alone.
_SCOPE_OF_PURPOSE: Final = {FEEDBACK_PURPOSE: "write", MCP_PURPOSE: "admin"}


class KeyForm(msgspec.Struct):
    """A key to be made."""

    name: str = ""
    scope: str = "write"


async def page(visit: Visit) -> Html:
    """The keys of the project."""
    return await _page(visit)


async def _page(visit: Visit, *, plaintext: str | None = None, refusal: Refusal | None = None) -> Html:
    prefix = visit.query.get("prefix", "")
    context = {
        "tab": "keys",
        **key_forms.by_state(await keys.get_keys(visit.call)),
        "scopes": SCOPES,
        "plaintext": plaintext,
        "refusal": refusal,
        "prefix": prefix,
    }
    status = refusal.status if refusal else 200
    return Html("account/keys", context, status=status, secret=plaintext is not None)


async def mint(visit: Visit) -> Html:
    """Make a key."""
    scope = _SCOPE_OF_PURPOSE.get(visit.form.scope)
    fields = {
        "name": visit.form.name,
        "scope": scope or visit.form.scope,
        "only": visit.form.scope if scope else None,
    }
    return await key_forms.made(visit, _page, keys.post_key, KeyNew, fields)


async def rotate(visit: Visit) -> Html:
    """Give a key a new secret."""
    return await key_forms.made(visit, _page, keys.rotate_key)


async def revoke(visit: Visit) -> Html | Go:
    """Revoke a key."""
    return await key_forms.revoked(visit, _page, keys.revoke_key, "/settings/keys")


async def audit(visit: Visit) -> Html:
    """Who did what in this project; for those who administer it, in the whole organization too."""
    asks = PageQuery(visit.query.get("cursor"))
    is_org_audit = visit.administers and visit.query.get("of") == "organization"
    audit_page = await asked(
        visit, keys.get_org_audit if is_org_audit else keys.get_project_audit, query=asks
    )
    address = visit.base + "/settings/audit"
    scope = "organization" if is_org_audit else None
    context = {
        "tab": "audit",
        "page": audit_page,
        "whole": is_org_audit,
        "administers": visit.administers,
        "more": query(address, of=scope, cursor=audit_page.next_cursor) if audit_page.next_cursor else None,
    }
    return Html("account/audit", context)


PAGES: Final = (
    PageRoute("GET", PROJECT + "/settings/keys", "ORG_VIEW", page),
    PageRoute("POST", PROJECT + "/settings/keys", "ORG_MANAGE", mint, form=KeyForm),
    PageRoute("POST", PROJECT + "/settings/keys/rotate", "ORG_MANAGE", rotate, form=KeyId),
    PageRoute("POST", PROJECT + "/settings/keys/revoke", "ORG_MANAGE", revoke, form=KeyId),
    PageRoute("GET", PROJECT + "/settings/audit", "ORG_VIEW", audit),
)
