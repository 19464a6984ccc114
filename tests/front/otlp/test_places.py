"""The doors say from which place a token came, so that wrong ones count against it."""

from __future__ import annotations

from collections.abc import Collection
from ipaddress import ip_network

import attrs
import trio

from actors.keys import Grant
from svc.front.auth.client import Surroundings
from svc.front.otlp.grpc import OtlpGrpc
from svc.front.otlp.http import OtlpHttp
from svc.front.server.connection_limiter import ConnectionLimiter
from svc.runtime.asyncio_loop import asyncio_loop
from tests.e2e.hostile import http2
from tests.front.otlp.doors import CALLERS, GRANT, AnyKey, Sender, intake, opened, request
from tests.front.otlp.test_grpc_metadata import call

BEHIND_A_PROXY = Surroundings(proxies=(ip_network("127.0.0.0/8"),))


@attrs.define
class AskedKeys(AnyKey):
    """Keys of which none was verified of late."""

    places: list[str] = attrs.field(factory=list)

    async def verify(self, _token: str, *, purposes: Collection[str] = (), place: str = "") -> Grant:
        self.places.append(place)
        return GRANT

    def granted(self, _token: str) -> None:  # type: ignore[override]
        return None


async def test_over_http_it_is_the_address_or_the_one_behind_a_proxy_of_ours() -> None:
    keys = AskedKeys()
    for surroundings in (Surroundings(), BEHIND_A_PROXY):
        callers = attrs.evolve(CALLERS, surroundings=surroundings)
        door = OtlpHttp(intake(), keys, True, callers)  # type: ignore[arg-type]
        scope = request(x_forwarded_for="2001:db8::7") | {"client": ("127.0.0.1", 1)}
        sender = Sender.of([b"", b""])
        sender.may_end.set()
        await door(scope, sender.receive, sender.send)
    assert keys.places == ["127.0.0.1", "2001:db8::/64"]


async def test_over_grpc_it_is_the_same() -> None:
    keys = AskedKeys()

    def work(port: int) -> None:
        with http2(port) as client:
            assert call(client, (b"x-forwarded-for", b"2001:db8::7")) == (0, "")

    async with asyncio_loop(()):
        for surroundings in (Surroundings(), BEHIND_A_PROXY):
            door = OtlpGrpc(
                intake=intake(),
                keys=keys,  # type: ignore[arg-type]
                callers=attrs.evolve(CALLERS, surroundings=surroundings),
                limiter=ConnectionLimiter(lambda: 10),
            )
            port = await opened(door)
            try:
                await trio.to_thread.run_sync(work, port)
            finally:
                await door.close(1.0)
    assert keys.places == ["127.0.0.1", "2001:db8::/64"]
