"""How Hypercorn is set up: its bounds, the sockets it is given, and TLS by a context of ours.

Called once, by `svc.serve`. Its own way to TLS reads files and loses what `ssl` sets by itself; ours gives it
a context that is ready.
"""

from __future__ import annotations

import logging
import os
import socket
import ssl
from typing import Final

import trio
from hypercorn.config import Config

from svc.front.server.streams import MOST_STREAMS

#: What Hypercorn may take beyond the doors' own drain; its idle connections are of no interest by then.
HTTP_GRACE_S: Final = 1.0
#: Longest handshake of a client.
HANDSHAKE_TIMEOUT_S: Final = 10.0
#: Nothing that we answer is to be taken for another type than it says.
NO_SNIFFING: Final = (b"x-content-type-options", b"nosniff")
CLOSING: Final = (b"connection", b"close")
#: How long clients are sent away with their answers before a successor accepts the next.
MOMENT_S: Final = 1.0


class HttpConfig(Config):
    """Hypercorn's configuration with a TLS context that somebody else keeps.

    `leave` ends what it serves without refusing anything, in favour of a successor on the same sockets.
    """

    #: Each answer over HTTP/1.1 tells the client to connect anew.
    _leaving = False

    def __init__(self, plain: socket.socket, tls: tuple[socket.socket, ssl.SSLContext] | None) -> None:
        super().__init__()
        self._context = None if tls is None else tls[1]
        #: No more is accepted from then on.
        self.shut = trio.Event()
        # Hypercorn closes what it is given, and so do we.
        inherited = [f"fd://{os.dup(plain.fileno())}"]
        if tls is None:
            self.bind = inherited
        else:
            self.bind, self.insecure_bind = [f"fd://{os.dup(tls[0].fileno())}"], inherited
        self.ssl_handshake_timeout = HANDSHAKE_TIMEOUT_S
        self.h2_max_concurrent_streams = MOST_STREAMS
        self.graceful_timeout = HTTP_GRACE_S
        self.backlog = 1024
        self.include_server_header = False
        self.accesslog = None
        self.errorlog = logging.getLogger("hypercorn.error")
        self.loglevel = "WARNING"
        self.h11_max_incomplete_size = 64 * 1024
        self.keep_alive_timeout = 75.0
        # An exporter keeps one connection for its whole life.
        self.keep_alive_max_requests = 1_000_000

    def response_headers(self, protocol: str) -> list[tuple[bytes, bytes]]:
        """What goes with every answer, Hypercorn's own refusals included."""
        headers = [*super().response_headers(protocol), NO_SNIFFING]
        return [*headers, CLOSING] if self._leaving and protocol == "h11" else headers

    async def leave(self, timeout_s: float) -> None:
        """Send clients away with their answers for a moment, then accept no more. What is inside has so long.

        A connection that is used within the moment is closed by its client, after an answer. One that is not
        is closed here while it is idle.
        """
        self._leaving, self.graceful_timeout = True, timeout_s
        await trio.sleep(MOMENT_S)
        self.shut.set()

    @property
    def ssl_enabled(self) -> bool:
        """Whether the first of the sockets speaks TLS."""
        return self._context is not None

    def create_ssl_context(self) -> ssl.SSLContext | None:
        """The context that lives as long as the process."""
        return self._context
