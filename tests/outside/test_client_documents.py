"""What an application publishes is read by the rule for outside addresses, within its bounds."""

from __future__ import annotations

from collections.abc import AsyncIterator
from ipaddress import ip_network

import attrs
import pytest
import trio

from svc.outside import client_documents
from svc.outside.addresses import AddressRule
from svc.outside.client_documents import HttpClientDocuments
from svc.outside.http import HttpClient

LOOPBACK = AddressRule((ip_network("127.0.0.0/8"),))


@attrs.define
class Publisher:
    """A server that answers each connection with these bytes."""

    port: int = 0
    connections: int = 0
    answer: bytes = b""

    def body(self, body: bytes, status: bytes = b"200 OK", headers: bytes = b"") -> None:
        length = b"Content-Length: %d\r\n" % len(body)
        self.answer = b"HTTP/1.1 " + status + b"\r\n" + length + headers + b"\r\n" + body

    async def serve(self, stream: trio.SocketStream) -> None:
        self.connections += 1
        async with stream:
            await stream.receive_some(65536)
            try:
                await stream.send_all(self.answer)
            except trio.BrokenResourceError:
                # Whoever asked has read enough.
                return


@pytest.fixture
async def publisher() -> AsyncIterator[Publisher]:
    server = Publisher()
    async with trio.open_nursery() as nursery:
        [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
        server.port = listener.socket.getsockname()[1]
        nursery.start_soon(trio.serve_listeners, server.serve, [listener])
        yield server
        nursery.cancel_scope.cancel()


async def read(server: Publisher, rule: AddressRule) -> bytes | None:
    return await HttpClientDocuments(HttpClient(rule)).read(f"http://127.0.0.1:{server.port}/app.json")


async def test_a_document_is_read_where_the_rule_lets_it(publisher: Publisher) -> None:
    publisher.body(b"{}")
    assert (await read(publisher, LOOPBACK), publisher.connections) == (b"{}", 1)


async def test_no_connection_is_made_to_an_address_of_this_network(publisher: Publisher) -> None:
    publisher.body(b"{}")
    assert (await read(publisher, AddressRule()), publisher.connections) == (None, 0)


async def test_no_redirect_is_followed(publisher: Publisher) -> None:
    location = f"Location: http://127.0.0.1:{publisher.port}/other\r\n".encode()
    publisher.body(b"{}", b"302 Found", location)
    assert (await read(publisher, LOOPBACK), publisher.connections) == (None, 1)


async def test_a_document_above_its_bound_is_none(publisher: Publisher) -> None:
    publisher.body(b" " * (client_documents.DOCUMENT_BYTES + 1))
    assert await read(publisher, LOOPBACK) is None
    publisher.body(b" " * client_documents.DOCUMENT_BYTES)
    assert await read(publisher, LOOPBACK) == b" " * client_documents.DOCUMENT_BYTES
