"""Settings: MCP tokens, and the lines that connect an agent with one.

Those that are made here open `/mcp` and nothing else; keys of the scope admin are listed too, since they do
as well. Both are made and revoked by the handlers of the REST API.

Secrets: a plaintext stands in the answer to its making, which nobody stores, and nowhere else.
"""

from __future__ import annotations

from typing import Final

import msgspec

from protocol.refusals import Refusal
from protocol.rest.keys import TokenNew
from protocol.storage import Eviction
from protocol.tokens import MCP_PURPOSE
from svc.domain.accounts.oauth import redirect_host
from svc.front.api.accounts import keys
from svc.store.accounts.oauth import OAuthStore
from svc.web.account import key_forms
from svc.web.account.key_forms import KeyId
from svc.web.shell.page import PROJECT, Go, Html, PageRoute, Visit

#: How the service is called in the settings of an agent.
SERVER: Final = "traces"
#: What stands in the lines while there is no fresh token.
PLACEHOLDER: Final = "svc_a_…"


class TokenForm(msgspec.Struct):
    """A token to be made."""

    name: str = ""


def lines(url: str, token: str) -> dict[str, tuple[str, str]]:
    """What to paste, by agent: where it goes, and the text."""
    header = {"Authorization": f"Bearer {token}"}

    def as_json(value: object) -> str:
        return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()

    return {
        "Claude Code": (
            "In a terminal, in your project:",
            f'claude mcp add --transport http {SERVER} {url} --header "Authorization: Bearer {token}"',
        ),
        "Cursor": (
            "In .cursor/mcp.json, or ~/.cursor/mcp.json for all projects:",
            as_json({"mcpServers": {SERVER: {"url": url, "headers": header}}}),
        ),
        "VS Code": (
            "In .vscode/mcp.json:",
            as_json({"servers": {SERVER: {"type": "http", "url": url, "headers": header}}}),
        ),
        "Codex": (
            "In ~/.codex/config.toml:",
            f'[mcp_servers.{SERVER}]\nurl = "{url}"\nhttp_headers = {{ "Authorization" = "Bearer {token}" }}',
        ),
    }


async def page(visit: Visit) -> Html:
    """The tokens of the project."""
    return await _page(visit)


async def _page(visit: Visit, *, plaintext: str | None = None, refusal: Refusal | None = None) -> Html:
    url = visit.origin + "/mcp"
    context = {
        "tab": "mcp",
        **key_forms.by_state(await keys.get_tokens(visit.call)),
        "plaintext": plaintext,
        "refusal": refusal,
        "lines": lines(url, plaintext or PLACEHOLDER),
        "url": url,
        "manages": visit.manages,
        "connects": visit.means.client_documents is not None,
        "connected": [
            (grant, redirect_host(grant.redirect_uri))
            for grant in await OAuthStore(visit.means.database).grants(visit.project.id)
        ],
    }
    status = refusal.status if refusal else 200
    return Html("account/mcp", context, status=status, secret=plaintext is not None)


async def issue(visit: Visit) -> Html:
    """Make a token: it stands in the lines, this once."""
    fields = {"name": visit.form.name, "only": MCP_PURPOSE}
    return await key_forms.made(visit, _page, keys.post_token, TokenNew, fields)


async def revoke(visit: Visit) -> Html | Go:
    """Revoke a token."""
    return await key_forms.revoked(visit, _page, keys.revoke_token, "/settings/mcp")


async def disconnect(visit: Visit) -> Go:
    """End what an application was let do; one that is over already stays so."""
    grant_end = await OAuthStore(visit.means.database).end(
        visit.project.id, visit.form.id, actor=visit.call.caller.label
    )
    for key_id in () if grant_end is None else grant_end.key_ids:
        visit.means.keys.evict(Eviction(key_id=key_id))
    return Go(visit.base + "/settings/mcp")


_MCP: Final = PROJECT + "/settings/mcp"

PAGES: Final = (
    PageRoute("GET", _MCP, "ORG_VIEW", page),
    PageRoute("POST", _MCP, "ORG_MANAGE", issue, form=TokenForm),
    PageRoute("POST", _MCP + "/revoke", "ORG_MANAGE", revoke, form=KeyId),
    PageRoute("POST", _MCP + "/disconnect", "ORG_MANAGE", disconnect, form=KeyId),
)
