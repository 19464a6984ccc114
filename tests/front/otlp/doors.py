"""The OTLP doors without a network: keys that say yes, and clients that send what they are told to."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Collection, Iterable
from datetime import UTC, datetime
from typing import Any, TypeVar

import attrs
import trio

from actors.keys import Grant
from actors.spool.memory import MemorySpool, Spool
from svc.front.auth.callers import Callers
from svc.front.otlp.grpc import OtlpGrpc
from svc.front.otlp.http import OtlpHttp
from svc.front.otlp.intake import Intake
from svc.front.server.connection_limiter import ConnectionLimiter
from svc.runtime.asyncio_loop import asyncio_loop

T = TypeVar("T")
TOKEN = "svc_" + "x" * 40
GRANT = Grant("key", 1, "write")


class AnyKey:
    """Keys as the doors ask for them: every token may write."""

    async def verify(self, _token: str, *, purposes: Collection[str] = (), place: str = "") -> Grant:
        return GRANT

    def granted(self, _token: str) -> Grant:
        return GRANT


#: Callers as the doors ask for them where every token is known.
CALLERS = Callers(keys=AnyKey(), logins=None, seal=None)  # type: ignore[arg-type]


def intake(spool: Spool | None = None, *, max_body_bytes: int = 1_000_000, **options: Any) -> Intake:
    """An intake in front of a spool in memory."""
    spool = MemorySpool(1_000_000) if spool is None else spool
    return Intake(spool, max_body_bytes, lambda: datetime.now(UTC), trio.current_time, **options)


def http_door(taken: Intake) -> Any:
    """The HTTP door in front of it."""
    return OtlpHttp(taken, AnyKey(), True, CALLERS)  # type: ignore[arg-type]


def grpc_door(taken: Intake, limiter: ConnectionLimiter | None = None) -> OtlpGrpc:
    """The gRPC door in front of it."""
    limiter = ConnectionLimiter(lambda: 1_000) if limiter is None else limiter
    return OtlpGrpc(intake=taken, keys=AnyKey(), callers=CALLERS, limiter=limiter)  # type: ignore[arg-type]


def request(**headers: str) -> dict[str, Any]:
    """The ASGI scope of an export."""
    named = {"authorization": f"Bearer {TOKEN}", "content-type": "application/x-protobuf"} | {
        name.replace("_", "-"): value for name, value in headers.items()
    }
    return {
        "type": "http",
        "method": "POST",
        "path": "/v1/traces",
        "headers": [(name.encode(), value.encode()) for name, value in named.items()],
    }


@attrs.define(eq=False)
class Sender:
    """Sends its pieces, waits before the last until it may, and hears the answer. `hangs_up` leaves there."""

    pieces: list[bytes]
    may_end: trio.Event = attrs.field(factory=trio.Event)
    hangs_up: bool = False
    waiting: trio.Event = attrs.field(factory=trio.Event)
    heard: list[Any] = attrs.field(factory=list)

    @classmethod
    def of(cls, pieces: Iterable[bytes], *, hangs_up: bool = False) -> Sender:
        return cls(list(pieces), hangs_up=hangs_up)

    async def receive(self) -> Any:
        """The next message of the request."""
        if len(self.pieces) == 1:
            self.waiting.set()
            await self.may_end.wait()
            if self.hangs_up:
                return {"type": "http.disconnect"}
        piece = self.pieces.pop(0) if self.pieces else b""
        return {"type": "http.request", "body": piece, "more_body": bool(self.pieces)}

    async def send(self, message: Any) -> None:
        """The next message of the answer."""
        self.heard.append(message)

    @property
    def status(self) -> int | None:
        """What the answer says, None before there is one."""
        return self.heard[0]["status"] if self.heard else None

    @property
    def headers(self) -> dict[bytes, bytes]:
        """The headers of the answer."""
        return dict(self.heard[0]["headers"])

    @property
    def body(self) -> bytes:
        """The body of the answer."""
        return b"".join(message.get("body", b"") for message in self.heard)


async def opened(door: OtlpGrpc, tls: ssl.SSLContext | None = None) -> int:
    """Have a gRPC door listen on a port of its own, which is returned."""
    with socket.create_server(("127.0.0.1", 0)) as sock:
        await door.open(sock, tls)
        port: int = sock.getsockname()[1]
        return port


#: What the head of a call says beside its method.
GRPC_HEADERS: tuple[tuple[bytes, bytes], ...] = (
    (b"te", b"trailers"),
    (b"content-type", b"application/grpc"),
    (b"authorization", b"Bearer " + TOKEN.encode()),
)


async def with_grpc(
    work: Callable[[int], T],
    *,
    budget_bytes: int = 1_000_000,
    tls: ssl.SSLContext | None = None,
    limiter: ConnectionLimiter | None = None,
) -> T:
    """What work comes to, in a thread, with the port of a gRPC door that is there meanwhile."""
    async with asyncio_loop(()):
        door = grpc_door(intake(MemorySpool(budget_bytes)), limiter)
        port = await opened(door, tls)
        try:
            return await trio.to_thread.run_sync(work, port)
        finally:
            await door.close(1.0)
