"""The endpoint in this process, asked by a caller of one kind."""

from __future__ import annotations

import json
from typing import Any

import attrs
import trio

from actors.keys import Grant, Keys, Verdicts, Verify
from protocol.tokens import new_token
from svc.front.concurrency import ConcurrencyLimiter
from svc.front.mcp.endpoint import Mcp
from svc.front.mcp.reads import Reads
from svc.store.postgres.database import Database
from svc.store.reads.questions.query import QueryStore
from tests.e2e.mcp import envelope
from tests.front.mcp.test_protocol import messages
from tests.store.spans.test_writing import Clock


@attrs.frozen
class Asked:
    """An answer: status and body, and the two things a body may hold."""

    status: int
    body: Any

    @property
    def result(self) -> Any:
        """The result; fails on an error."""
        assert self.body.keys() == {"jsonrpc", "id", "result"}, self.body
        return self.body["result"]

    @property
    def code(self) -> int:
        """The code of the error; fails on a result."""
        assert self.body.keys() == {"jsonrpc", "id", "error"}, self.body
        return int(self.body["error"]["code"])

    @property
    def message(self) -> str:
        """The text of the error."""
        return str(self.body["error"]["message"])


@attrs.frozen
class Door:
    """An endpoint and a key to it."""

    handler: Mcp
    token: str

    @classmethod
    def of(
        cls, store: Database, *, extensions: bool = True, purpose: str | None = None, project_id: int = 1
    ) -> Door:
        """An endpoint over a database that knows one admin key."""
        token, verdicts = new_token("admin"), Verdicts()
        verdicts.put(token, Grant("a-key", project_id, "admin", purpose=purpose))
        send, _ = trio.open_memory_channel[Verify](1)
        reads = Reads.of(store, QueryStore(store), Clock(), extensions=extensions)
        return cls(Mcp(Keys(verdicts, send), reads, ConcurrencyLimiter(4)), token)

    async def send(self, body: Any, headers: dict[str, str] | None = None) -> Asked:
        """POST a body with the key."""
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        sent = {"authorization": f"Bearer {self.token}", **(headers or {})}
        start, end = await messages(self.handler, raw, **sent)
        return Asked(start["status"], json.loads(end["body"]) if end["body"] else None)

    async def ask(self, method: str, params: Any = None) -> Asked:
        """Call a method as clients of 2025-06-18 do."""
        return await self.send(envelope(method, params))
