"""TLS at the doors: outer contexts that never change, and the certificate that each handshake is given.

Owns the `SSLContext` objects of the HTTPS and the gRPC door. Each door has one outer context for the life of
the process; its callback hands every handshake to the inner context that is current. A new certificate is
loaded into a fresh inner context and becomes current only when that worked: `load_cert_chain` on a live
context raises over a wrong pair *and* breaks every later handshake. Never reads a file of the operator's.

Secrets: `ssl` loads keys from files only, so a key stands for a moment in a file that only we can read.
"""

from __future__ import annotations

import os
import ssl
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import trio

from protocol.certificates import ACME_TLS, BadPair, Pair

HTTPS_ALPN: Final = ("h2", "http/1.1")
GRPC_ALPN: Final = ("h2",)
#: A validation server sends its first message at once.
HELLO_TIMEOUT_S: Final = 5.0
_HELLO_BYTES: Final = 16 * 1024 + 5
_PEEK_PAUSE_S: Final = 0.02


class SwappedContext:
    """One door's outer context and the inner one that is current."""

    def __init__(self, alpn: Sequence[str]) -> None:
        self._alpn = tuple(alpn)
        self._current: ssl.SSLContext | None = None
        self.outer = _context(self._alpn)
        self.outer.sni_callback = self._hand_over

    def _hand_over(self, handshake: ssl.SSLObject, _name: str | None, _outer: ssl.SSLContext) -> int | None:
        if self._current is None:
            return ssl.ALERT_DESCRIPTION_INTERNAL_ERROR
        handshake.context = self._current
        return None

    def fresh(self, pair: Pair) -> ssl.SSLContext:
        """A context with this pair, not in use yet. Raises `BadPair`."""
        return loaded(pair, self._alpn)

    def adopt(self, context: ssl.SSLContext) -> None:
        """Every handshake from now on gets this one; connections that stand keep theirs."""
        self._current = context


class TlsDoors:
    """The certificate of both doors, and the answers to an authority that are waited for."""

    def __init__(self) -> None:
        self._https, self._grpc = SwappedContext(HTTPS_ALPN), SwappedContext(GRPC_ALPN)
        self._proof: ssl.SSLContext | None = None

    @property
    def https(self) -> ssl.SSLContext:
        """The context of the HTTPS door."""
        return self._https.outer

    @property
    def grpc(self) -> ssl.SSLContext:
        """The context of the gRPC door."""
        return self._grpc.outer

    def serve(self, pair: Pair) -> None:
        """Serve this pair from the next handshake on. Raises `BadPair`, and then serves what it did."""
        https, grpc = self._https.fresh(pair), self._grpc.fresh(pair)
        self._https.adopt(https)
        self._grpc.adopt(grpc)

    def prove(self, pair: Pair | None) -> None:
        """Show this to who asks by `acme-tls/1` alone; None when nothing is to be proven any more."""
        self._proof = None if pair is None else loaded(pair, (ACME_TLS,))

    async def proven(self, stream: trio.SSLStream[trio.SocketStream]) -> bool:
        """Whether this fresh connection was a validation server's, and was served.

        Looks at the first message only while a proof is waited for; everybody else pays nothing.
        """
        proof = self._proof
        if proof is None:
            return False
        transport = stream.transport_stream
        with trio.move_on_after(HELLO_TIMEOUT_S):
            if await _first_protocols(transport.socket) != [ACME_TLS]:
                return False
            handshake = trio.SSLStream(transport, proof, server_side=True, https_compatible=True)
            try:
                await handshake.do_handshake()
                await handshake.aclose()
            except trio.BrokenResourceError:
                # Whether it was content the authority says.
                return True
        return True


async def _first_protocols(socket: trio.socket.SocketType) -> list[str]:
    """The protocols (ALPN) of the first message of a client, which stays unread; none if it is not TLS."""
    while True:
        hello = await socket.recv(_HELLO_BYTES, trio.socket.MSG_PEEK)
        if not hello or hello[0] != 22:
            return []
        if len(hello) >= 5 and len(hello) >= 5 + int.from_bytes(hello[3:5], "big"):
            return hello_protocols(hello[5 : 5 + int.from_bytes(hello[3:5], "big")])
        # What was peeked at is there at once again: the rest is a moment away.
        await trio.sleep(_PEEK_PAUSE_S)


def hello_protocols(message: bytes) -> list[str]:
    """The protocols that a ClientHello offers (RFC 8446 §4.1.2, RFC 7301); none where it is no such thing."""
    try:
        reader = _Reader(message)
        if reader.number(1) != 1:
            return []
        reader = _Reader(reader.take(reader.number(3)))
        reader.take(2 + 32)
        for width in (1, 2, 1):
            reader.take(reader.number(width))
        extensions = _Reader(reader.take(reader.number(2)))
        while extensions.left:
            kind, body = extensions.number(2), extensions.take(extensions.number(2))
            if kind == 16:
                listed = _Reader(body)
                names, protocols = _Reader(listed.take(listed.number(2))), []
                while names.left:
                    protocols.append(names.take(names.number(1)).decode("ascii"))
                return protocols
    except (EOFError, UnicodeError):
        return []
    return []


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    @property
    def left(self) -> bool:
        return self._at < len(self._data)

    def take(self, size: int) -> bytes:
        if self._at + size > len(self._data):
            raise EOFError
        self._at += size
        return self._data[self._at - size : self._at]

    def number(self, width: int) -> int:
        return int.from_bytes(self.take(width), "big")


def loaded(pair: Pair, alpn: Sequence[str]) -> ssl.SSLContext:
    """A fresh server context with this pair. Raises `BadPair`."""
    context = _context(alpn)
    with tempfile.TemporaryDirectory(prefix="trace-svc-tls-") as folder:
        path = Path(folder) / "pair.pem"
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with open(descriptor, "wb") as file:
            file.write(pair.chain.rstrip() + b"\n" + pair.key)
        try:
            # Without a passphrase it would ask for one on the terminal.
            context.load_cert_chain(path, password=lambda: b"")
        except (ssl.SSLError, ValueError) as error:
            reason = error.reason if isinstance(error, ssl.SSLError) else None
            raise BadPair(f"OpenSSL refuses certificate and key ({reason or 'unreadable'})") from None
    return context


def _context(alpn: Sequence[str]) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # RFC 9113 §9.2: no compression, and for TLS 1.2 forward secrecy with authenticated encryption.
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    context.set_ciphers("ECDHE+AESGCM:ECDHE+CHACHA20")
    context.set_alpn_protocols(list(alpn))
    return context
