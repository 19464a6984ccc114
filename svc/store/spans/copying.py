"""Copying rows of `span`: the rows that `svc.store.spans.encoding` makes, within the writer's transaction.

The writer of spans calls `copy_spans`; every other table is copied by asyncpg. Never encodes a value.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator

from svc.store.postgres.database import Connection
from svc.store.spans.encoding import COLUMNS, Copied, encode


async def copy_spans(connection: Connection, rows: Iterable[Copied]) -> None:
    """Copy rows, each with its project, its `created_at`, its frame and its digest."""
    await connection.copy_to_table("span", source=_Pieces(encode(rows)), columns=COLUMNS, format="binary")


class _Pieces:
    """What is copied, piece by piece. No generator: one that is left unread when the server refuses a row is
    closed by whichever event loop finds it.
    """

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        for piece in self._pieces:
            return piece
        raise StopAsyncIteration
