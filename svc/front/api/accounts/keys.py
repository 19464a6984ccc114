"""`{p}/api-keys` and `{p}/mcp-tokens`: one key store under two names, and its audit.

Ordering: an eviction in this process follows the commit in the same call; every other replica hears of it by
the notice that the commit sends (`svc/store/accounts/keys.py`).

Secrets: a plaintext leaves in the answer to its creation or rotation and is kept nowhere.
"""

from __future__ import annotations

from typing import Final

from protocol.refusals import (
    BLANK_NAME,
    FEEDBACK_KEY_WRITES,
    KEY_NOT_FOUND,
    KEYS_MINT_NO_KEYS,
    MCP_KEY_ADMIN,
    ROTATE_REVOKED,
    TOKENS_MINT_NO_TOKENS,
    UNKNOWN_SCOPE,
    Refusal,
)
from protocol.rest.keys import (
    AuditPage,
    AuditShown,
    KeyMinted,
    KeyNew,
    KeyShown,
    PageQuery,
    Revoked,
    TokenMinted,
    TokenNew,
)
from protocol.rest.query import timestamp, timestamp_or_none
from protocol.storage import Eviction
from protocol.tokens import FEEDBACK_PURPOSE, MCP_PURPOSE, SCOPES, Scope
from svc.front.api.routes import ORG, PROJECT, Route
from svc.front.auth.calls import Call
from svc.store.accounts.audit import PAGE, AuditRow, AuditStore
from svc.store.accounts.keys import AlreadyRevoked, Key, NoSuchKey, PostgresKeyStore
from svc.store.postgres.keyset import Keyset

#: What a key that people make may be for alone.
_PURPOSES: Final = (FEEDBACK_PURPOSE, MCP_PURPOSE)

_AUDIT: Final = Keyset("audit", (("id", "integer"),))


def _store(call: Call[object]) -> PostgresKeyStore:
    return PostgresKeyStore(call.means.database, call.means.accounts.hashers)


def _key_view(key: Key) -> KeyShown:
    return KeyShown(
        key.id,
        key.name,
        key.scope,
        key.token_prefix,
        timestamp(key.created_at),
        timestamp_or_none(key.last_used_at),
        timestamp_or_none(key.revoked_at),
        "active" if key.revoked_at is None else "revoked",
        key.minted_by,
        next((purpose for purpose in _PURPOSES if purpose == key.purpose), None),
    )


async def get_keys(call: Call[None]) -> list[KeyShown]:
    """The keys of the project, the newest first, revoked ones included."""
    return [_key_view(key) for key in await _store(call).list(call.project.id)]


async def post_key(call: Call[KeyNew]) -> KeyMinted | Refusal:
    """Make a key. Its plaintext is shown in this answer and never again."""
    name = call.body.name.strip()
    scope = next((scope for scope in SCOPES if scope == call.body.scope), None)
    if scope is None:
        return UNKNOWN_SCOPE.saying(
            UNKNOWN_SCOPE.message.format(value=call.body.scope[:100]), allowed=list(SCOPES)
        )
    if not name:
        return BLANK_NAME
    if call.body.only == FEEDBACK_PURPOSE and scope != "write":
        return FEEDBACK_KEY_WRITES
    if call.body.only == MCP_PURPOSE and scope != "admin":
        return MCP_KEY_ADMIN
    minted = await _store(call).create(
        call.project.id, name, scope, actor=call.caller.label, purpose=call.body.only
    )
    return KeyMinted(_key_view(minted.key), minted.plaintext)


async def rotate_key(call: Call[None]) -> KeyMinted | Refusal:
    """Give a key a new secret; the old one stops verifying at once."""
    rotated = await _store(call).rotate(call.project.id, call.path["keyId"], actor=call.caller.label)
    match rotated:
        case NoSuchKey():
            return KEY_NOT_FOUND
        case AlreadyRevoked():
            return ROTATE_REVOKED
        case minted:
            call.means.keys.evict(Eviction(key_id=minted.key.id))
            return KeyMinted(_key_view(minted.key), minted.plaintext)


async def revoke_key(call: Call[None]) -> Revoked | Refusal:
    """Revoke a key at once and for good; revoking it again changes nothing."""
    return await _revoked(call, None)


async def get_tokens(call: Call[None]) -> list[KeyShown]:
    """The MCP tokens of the project: its keys of scope admin."""
    return [_key_view(key) for key in await _store(call).list(call.project.id) if key.scope == "admin"]


async def post_token(call: Call[TokenNew]) -> TokenMinted | Refusal:
    """Issue an MCP token. Its plaintext is shown in this answer and never again."""
    name = call.body.name.strip()
    if not name:
        return BLANK_NAME
    minted = await _store(call).create(
        call.project.id, name, "admin", actor=call.caller.label, purpose=call.body.only
    )
    return TokenMinted(_key_view(minted.key), minted.plaintext)


async def revoke_token(call: Call[None]) -> Revoked | Refusal:
    """Revoke an MCP token at once and for good."""
    return await _revoked(call, "admin")


async def _revoked(call: Call[None], scope: Scope | None) -> Revoked | Refusal:
    revoked = await _store(call).revoke(
        call.project.id, call.path["keyId"], actor=call.caller.label, scope=scope
    )
    if isinstance(revoked, NoSuchKey):
        return KEY_NOT_FOUND
    call.means.keys.evict(Eviction(key_id=revoked.id))
    return Revoked()


async def get_project_audit(call: Call[None]) -> AuditPage:
    """Who did what in this project, the newest first: 200 rows a page."""
    position = _AUDIT.place(call.query.cursor)
    store = AuditStore(call.means.database)
    return _page(await store.page(project_id=call.project.id, before=position[0] if position else None))


async def get_org_audit(call: Call[None]) -> AuditPage:
    """Who did what in the organization and its projects, the newest first: 200 rows a page."""
    position = _AUDIT.place(call.query.cursor)
    store = AuditStore(call.means.database)
    return _page(await store.page(org_id=call.org.id, before=position[0] if position else None))


def _page(rows: list[AuditRow]) -> AuditPage:
    entries = [
        AuditShown(
            row.id,
            row.action,
            row.actor,
            row.subject_kind,
            row.subject_id,
            dict(row.details),
            timestamp(row.occurred_at),
        )
        for row in rows[:PAGE]
    ]
    return AuditPage(entries, _AUDIT.cursor({"id": entries[-1].id}) if len(rows) > PAGE else None)


_KEYS: Final = PROJECT + "/api-keys"
_TOKENS: Final = PROJECT + "/mcp-tokens"

ROUTES: Final = (
    Route("GET", _KEYS, "ORG_VIEW", get_keys, list[KeyShown]),
    Route(
        "POST", _KEYS, "ORG_MANAGE", post_key, KeyMinted, body=KeyNew, status=201,
        refusals=(UNKNOWN_SCOPE, BLANK_NAME, FEEDBACK_KEY_WRITES, MCP_KEY_ADMIN, KEYS_MINT_NO_KEYS),
        keys=KEYS_MINT_NO_KEYS,
    ),
    Route("GET", _KEYS + "/audit", "ORG_VIEW", get_project_audit, AuditPage, query=PageQuery),
    Route(
        "POST", _KEYS + "/{keyId}/rotate", "ORG_MANAGE", rotate_key, KeyMinted,
        refusals=(KEY_NOT_FOUND, ROTATE_REVOKED),
    ),
    Route("DELETE", _KEYS + "/{keyId}", "ORG_MANAGE", revoke_key, Revoked, refusals=(KEY_NOT_FOUND,)),
    Route("GET", _TOKENS, "ORG_VIEW", get_tokens, list[KeyShown]),
    Route(
        "POST", _TOKENS, "ORG_MANAGE", post_token, TokenMinted, body=TokenNew, status=201,
        refusals=(BLANK_NAME, TOKENS_MINT_NO_TOKENS), keys=TOKENS_MINT_NO_TOKENS,
    ),
    Route("DELETE", _TOKENS + "/{keyId}", "ORG_MANAGE", revoke_token, Revoked, refusals=(KEY_NOT_FOUND,)),
    Route("GET", ORG + "/audit", "ORG_ADMIN", get_org_audit, AuditPage, query=PageQuery),
)  # fmt: skip
