"""A server that ends its connection in the middle of an answer: at its first statement, its second, …"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import attrs
import pytest

from protocol.storage import Outage
from svc.store.postgres.database import Connection, Database

T = TypeVar("T")


@attrs.define
class _Ending:
    """A connection that its server ends at the n-th statement of all."""

    connection: Connection
    left: list[int]

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.connection, name)
        if name not in ("execute", "fetch", "fetchval", "fetchrow"):
            return found

        async def counted(*arguments: Any, **options: Any) -> Any:
            self.left[0] -= 1
            if self.left[0] == 0:
                await self.connection.execute("select pg_terminate_backend(pg_backend_pid())")
            return await found(*arguments, **options)

        return counted


async def through_outages(
    store: Database, monkeypatch: pytest.MonkeyPatch, ask: Callable[[], Awaitable[T]]
) -> tuple[T, int]:
    """The first answer that no outage ends, and how many did end in one."""
    run, ended = store.run, 0
    while True:
        left = [ended + 1]

        async def ending(work: Any, left: list[int] = left, **options: Any) -> Any:
            return await run(lambda connection: work(_Ending(connection, left)), **options)

        with monkeypatch.context() as patched:
            patched.setattr(store, "run", ending)
            try:
                return await ask(), ended
            except Outage:
                ended += 1
