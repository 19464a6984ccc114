"""The body of one HTTP/2 request between its connection and its handler: what has come and is not read yet.

Owns the queue of one request; `Streams` puts into it what comes, and tells the client of it only once the
handler has read it. So what waits on a connection is bounded by its windows, and whoever reads the connection
never waits for a handler. Messages of WebSockets are dropped, for the door refuses those unheard. Never looks
into a body.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Final

import attrs
import trio

#: A piece that is smaller is joined with the next one: a client may send a body byte by byte.
SMALL_BYTES: Final = 4 * 1024


@attrs.define(eq=False)
class UnreadBody:
    """Pieces of a body, each of `SMALL_BYTES` or more but for the last, and whether it has ended.

    Cancellation: `receive` may be cancelled while it waits; nothing is taken then.
    """

    #: What the handler has not read.
    waiting_bytes: int = 0
    _pieces: deque[bytes] = attrs.field(factory=deque)
    _has_ended: bool = False
    _is_read: bool = False
    _is_left: bool = False
    _news: trio.Event = attrs.field(factory=trio.Event)

    def put(self, message: dict[str, Any]) -> None:
        """A message of ASGI for the handler; nothing once that has ended, or the client has left."""
        if self._is_left:
            return
        if message["type"] == "http.request":
            self._add(message["body"])
            self._has_ended = not message["more_body"]
        elif message["type"] == "http.disconnect":
            self._is_left = True
        self._news.set()

    def _add(self, piece: bytes) -> None:
        self.waiting_bytes += len(piece)
        if self._pieces and len(self._pieces[-1]) < SMALL_BYTES:
            self._pieces[-1] += piece
        elif piece:
            self._pieces.append(piece)

    async def receive(self) -> dict[str, Any]:
        """The next piece, the end of the body, or that the client has left or has its answer."""
        while True:
            if self._pieces or (self._has_ended and not self._is_read):
                piece = self._pieces.popleft() if self._pieces else b""
                self.waiting_bytes -= len(piece)
                self._is_read = self._has_ended and not self._pieces
                return {"type": "http.request", "body": piece, "more_body": not self._is_read}
            if self._is_left:
                return {"type": "http.disconnect"}
            if self._news.is_set():
                self._news = trio.Event()
            await self._news.wait()

    def close(self) -> int:
        """The handler has ended. Returns the bytes that it has not read, and never will."""
        unread_bytes, self.waiting_bytes = self.waiting_bytes, 0
        self._pieces.clear()
        self._is_read = self._is_left = True
        self._news.set()
        return unread_bytes
