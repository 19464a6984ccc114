"""Bodies and answers of key management and of the audit (contract §6).

Shapes and plain checks only. Instants are texts in our form (`protocol.rest.query.timestamp`).

Secrets: `plaintext` of `KeyMinted` and `TokenMinted` is a token, shown this once.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from protocol.rest.accounts import NAME_MAX, Instant
from protocol.tokens import Scope


class KeyNew(msgspec.Struct, forbid_unknown_fields=True):
    """A key to be made. An unknown scope is refused with a text of its own, so it is read as any text."""

    name: Annotated[str, Meta(max_length=NAME_MAX)]
    scope: Annotated[str, Meta(extra_json_schema={"enum": ["write", "query", "admin"]})]
    #: All that the key is good for: feedback (it may stand in a web page), or reading over MCP.
    only: Literal["feedback", "mcp"] | None = None


class TokenNew(msgspec.Struct, forbid_unknown_fields=True):
    """An MCP token to be issued: a key of scope admin, unless it is good for MCP only."""

    name: Annotated[str, Meta(max_length=NAME_MAX)]
    #: Whether it opens `/mcp` and nothing else: it neither sends nor queries.
    only: Literal["mcp"] | None = None


class KeyShown(msgspec.Struct, omit_defaults=True):
    """A key, never its secret."""

    id: str
    name: str
    scope: Scope
    token_prefix: str
    created_at: Instant
    last_used_at: Instant | None
    revoked_at: Instant | None
    state: Literal["active", "revoked"]
    #: Who saw its plaintext last, as the audit names them.
    minted_by: str
    #: All that it is good for, where it is less than its scope.
    only: Literal["feedback", "mcp"] | None = None


class KeyMinted(msgspec.Struct):
    """A key and its token, which is never shown again."""

    key: KeyShown
    plaintext: str

    def __repr__(self) -> str:
        return f"KeyMinted({self.key!r}, …)"


class TokenMinted(msgspec.Struct):
    """An MCP token's row and the token itself, which is never shown again."""

    token: KeyShown
    plaintext: str

    def __repr__(self) -> str:
        return f"TokenMinted({self.token!r}, …)"


class Revoked(msgspec.Struct):
    """The key is refused from the next request on."""

    revoked: Literal[True] = True


class PageQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Where a page begins; a cursor that cannot be read means the newest page."""

    cursor: str | None = None


class AuditShown(msgspec.Struct):
    """One row of the audit: who did what to what."""

    id: int
    action: str
    actor: str
    subject_kind: str
    subject_id: str
    details: dict[str, Any]
    occurred_at: Instant


class AuditPage(msgspec.Struct):
    """A page of the audit, newest first."""

    rows: list[AuditShown]
    next_cursor: str | None
