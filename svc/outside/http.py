"""The one HTTP client for other systems: bounded answers, a deadline, and no address that is refused.

Every other file here that speaks HTTP goes through `HttpClient`. It follows no redirect, keeps no cookie,
knows no proxy, and never quotes what the other side said.

Danger: a name can resolve to an address of this machine, of its network or of its cloud. A name is resolved
once, every address it has is checked (`AddressRule`), and the connection goes to what was checked (TLS still
asks for the name).
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import aclosing, asynccontextmanager, contextmanager
from functools import cache
from math import inf
from typing import Any, Final

import attrs
import httpcore2
import httpx2
import trio

from svc.outside.addresses import AddressRule

TIMEOUT_S: Final = 10.0
ANSWER_BYTES: Final = 64 * 1024


class Unreached(Exception):
    """No answer to use; the text says why and quotes nothing of the other side."""


class NeverSent(Unreached):
    """Not a byte of the request has left: no name, no connection, no handshake."""


class AddressRefused(NeverSent):
    """The name leads to an address that may not be connected to."""


class AnswerTooLarge(Unreached):
    """The answer is larger than it may be; none of it is kept."""


@attrs.frozen
class HttpAnswer:
    """What came back: status, headers by lower-case name, and the body where it was asked for."""

    status: int
    headers: Mapping[str, str] = attrs.field(repr=False)
    body: bytes = attrs.field(repr=False)


@attrs.frozen
class HttpClient:
    """Asks one question on one connection. `rule` is None for addresses that only the operator can name."""

    rule: AddressRule | None = None
    timeout_s: float = TIMEOUT_S
    answer_bytes: int = ANSWER_BYTES

    async def ask(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
        read: bool = True,
        sent: Callable[[], None] | None = None,
    ) -> HttpAnswer:
        """The answer, its body read when `read`. Raises `Unreached`, also for a body above the bound.

        `sent` is called before the first byte of the request leaves; without that it is `NeverSent`.
        """
        gate = _Gate(self.rule, sent)
        with _as_unreached(gate):
            try:
                with trio.fail_after(self.timeout_s):
                    async with self._opened(gate, method, url, headers, body) as response:
                        return HttpAnswer(
                            response.status,
                            {
                                name.decode("latin1").lower(): text.decode("latin1")
                                for name, text in response.headers
                            },
                            await self._body(response) if read else b"",
                        )
            except trio.TooSlowError:
                raise gate.unreached(f"no answer within {self.timeout_s:g} s") from None
        raise AssertionError("what is told is raised")

    @asynccontextmanager
    async def stream(
        self, method: str, url: str, *, headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> AsyncIterator[tuple[int, AsyncIterator[bytes]]]:
        """The status and the body as it comes. Raises `Unreached`.

        Neither bounded nor timed here: whoever reads bounds what they keep and holds a deadline.
        """
        gate = _Gate(self.rule)
        with _as_unreached(gate):
            async with (
                self._opened(gate, method, url, headers, body) as response,
                aclosing(response.aiter_stream()) as pieces,
            ):
                yield response.status, pieces

    @asynccontextmanager
    async def _opened(
        self, gate: _Gate, method: str, url: str, headers: Mapping[str, str] | None, body: bytes
    ) -> AsyncIterator[httpcore2.Response]:
        all_headers = {"user-agent": "trace-svc", "accept-encoding": "identity", **(headers or {})}
        async with (
            httpcore2.AsyncConnectionPool(
                ssl_context=_tls(), network_backend=gate, max_connections=1
            ) as pool,
            pool.stream(method, url, headers=list(all_headers.items()), content=body) as response,
        ):
            yield response

    async def _body(self, response: httpcore2.Response) -> bytes:
        body = bytearray()
        async with aclosing(response.aiter_stream()) as pieces:
            async for piece in pieces:
                body += piece
                if len(body) > self.answer_bytes:
                    raise AnswerTooLarge(f"its answer is larger than {self.answer_bytes} bytes")
        return bytes(body)


@contextmanager
def _as_unreached(gate: _Gate) -> Iterator[None]:
    """Whatever keeps a request from its answer, as `Unreached`."""
    try:
        yield
    except (httpcore2.NetworkError, httpcore2.TimeoutException, httpcore2.ProtocolError) as error:
        raise gate.unreached(f"cannot be reached ({type(error).__name__})") from None
    except (httpcore2.UnsupportedProtocol, OSError, ValueError) as error:
        raise gate.unreached(f"cannot be reached ({type(error).__name__})") from None


@cache
def _tls() -> ssl.SSLContext:
    return httpx2.create_ssl_context()


class _Gate(httpcore2.AsyncNetworkBackend):
    """Connects to addresses that the rule lets pass, never to a name, and knows whether anything was sent."""

    def __init__(self, rule: AddressRule | None, on_sent: Callable[[], None] | None = None) -> None:
        self._rule, self._trio = rule, httpcore2.TrioBackend()
        self._sent, self._on_sent = False, on_sent

    def sending(self) -> None:
        """The first byte of the request leaves now."""
        if not self._sent:
            self._sent = True
            if self._on_sent is not None:
                self._on_sent()

    def unreached(self, reason: str) -> Unreached:
        """What to raise: whether the other side may have heard makes the difference."""
        return Unreached(reason) if self._sent else NeverSent(reason)

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - the signature is httpcore's
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        address = host if self._rule is None else await self._checked(self._rule, host, port, timeout)
        stream = await self._trio.connect_tcp(address, port, timeout, local_address, socket_options or ())
        return _Watched(stream, self)

    async def _checked(self, rule: AddressRule, host: str, port: int, timeout_s: float | None) -> str:
        try:
            with trio.fail_after(inf if timeout_s is None else timeout_s):
                rows = await trio.socket.getaddrinfo(host, port, type=trio.socket.SOCK_STREAM)
        except (OSError, UnicodeError):
            raise httpcore2.ConnectError from None
        addresses = [str(row[4][0]) for row in rows]
        for why_not in map(rule.why_not, addresses):
            if why_not is not None:
                raise AddressRefused(why_not)
        return addresses[0]

    async def sleep(self, seconds: float) -> None:
        await trio.sleep(seconds)


@attrs.frozen
class _Watched(httpcore2.AsyncNetworkStream):
    """A connection that tells its gate when something is written on it; a handshake does not count."""

    _stream: httpcore2.AsyncNetworkStream
    _gate: _Gate

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109
        return await self._stream.read(max_bytes, timeout)

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109
        self._gate.sending()
        await self._stream.write(buffer, timeout)

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - the signature is httpcore's
    ) -> httpcore2.AsyncNetworkStream:
        try:
            stream = await self._stream.start_tls(ssl_context, server_hostname, timeout)
        except trio.Cancelled:
            # The backend closes it after an error, and not when it is cancelled.
            with trio.CancelScope(shield=True):
                await self._stream.aclose()
            raise
        return _Watched(stream, self._gate)

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)
