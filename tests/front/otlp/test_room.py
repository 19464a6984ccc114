"""Bodies on their way in count in the memory budget of the spool, and what they held is always given back."""

from __future__ import annotations

import gzip
import json

import h2.events
import pytest
import trio

from actors.spool.memory import MemorySpool
from protocol.refusals import NEVER_FITS, SPOOL_FULL
from svc.front.server.door import HungUp
from svc.runtime.asyncio_loop import asyncio_loop
from tests import wire
from tests.e2e.hostile import EXPORT, http2, pseudo
from tests.front.otlp.doors import TOKEN, Sender, grpc_door, http_door, intake, opened, request
from tests.service import until

BUDGET = 100_000


def body(size: int) -> bytes:
    """A request of about this size."""
    return wire.request(wire.span(attributes={"text": "x" * size})).SerializeToString()


@pytest.mark.parametrize("declared", [True, False])
async def test_eight_bodies_at_once_are_held_within_the_budget_and_the_rest_is_told_to_come_again(
    declared: bool,
) -> None:
    spool = MemorySpool(BUDGET)
    door = http_door(intake(spool))
    sent = body(40_000)
    senders = [Sender.of([sent[:30_000], sent[30_000:39_000], sent[39_000:]]) for _ in range(8)]
    scope = request(content_length=str(len(sent))) if declared else request()
    async with trio.open_nursery() as nursery:
        for sender in senders:
            nursery.start_soon(door, scope, sender.receive, sender.send)
        for sender in senders:
            # Those refused are drained to the same point.
            await sender.waiting.wait()
        assert 2 * 39_000 <= spool.state().reserved_bytes <= BUDGET
        for sender in senders:
            sender.may_end.set()
    assert sorted(sender.status or 0 for sender in senders) == [200] * 2 + [503] * 6
    refused = next(sender for sender in senders if sender.status == 503)
    assert 1 <= int(refused.headers[b"retry-after"]) <= 5
    assert json.loads(refused.body)["error"]["message"] == SPOOL_FULL.message
    assert spool.state().reserved_bytes == 0
    assert spool.state().depth == 2
    assert spool.state().refused_full == 6


@pytest.mark.parametrize("end", ["hang-up", "cancellation", "damage"])
async def test_room_is_given_back_however_a_request_ends(end: str) -> None:
    spool = MemorySpool(BUDGET)
    door = http_door(intake(spool))
    sender = Sender.of([b"\xff" * 20_000, b"\xff"], hangs_up=end == "hang-up")
    async with trio.open_nursery() as nursery:

        async def ask() -> None:
            try:
                await door(request(content_length="20001"), sender.receive, sender.send)
            except HungUp:
                assert end == "hang-up"

        nursery.start_soon(ask)
        await sender.waiting.wait()
        assert spool.state().reserved_bytes == 20_001
        if end == "cancellation":
            nursery.cancel_scope.cancel()
        sender.may_end.set()
    assert spool.state().reserved_bytes == 0
    assert spool.state().depth == 0
    assert sender.status == (400 if end == "damage" else None)


async def test_a_body_larger_than_the_whole_budget_is_never_waited_for() -> None:
    spool = MemorySpool(BUDGET)
    sender = Sender.of([b"", b""])
    sender.may_end.set()
    await http_door(intake(spool))(request(content_length=str(BUDGET + 1)), sender.receive, sender.send)
    assert sender.status == 413
    assert json.loads(sender.body)["error"]["message"] == NEVER_FITS.message


async def test_inflated_bytes_count_too() -> None:
    spool = MemorySpool(BUDGET)
    door = http_door(intake(spool))
    waiting = Sender.of([b"\0" * 60_000, b""])
    bomb = Sender.of([gzip.compress(body(60_000)), b""])
    bomb.may_end.set()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(door, request(content_length="60001"), waiting.receive, waiting.send)
        await waiting.waiting.wait()
        await door(request(content_encoding="gzip"), bomb.receive, bomb.send)
        assert bomb.status == 503
        nursery.cancel_scope.cancel()
    assert spool.state().reserved_bytes == 0


async def test_a_message_over_grpc_counts_before_it_is_read_and_gives_its_room_back() -> None:
    spool = MemorySpool(BUDGET, clock=lambda: 0.0)
    door = grpc_door(intake(spool))

    def call(port: int) -> tuple[int, bytes]:
        headers = (
            (b"te", b"trailers"),
            (b"content-type", b"application/grpc"),
            (b"authorization", b"Bearer " + TOKEN.encode()),
        )
        with http2(port) as client:
            client.state.send_headers(1, pseudo(EXPORT.encode(), b"POST", *headers))
            client.state.send_data(1, b"\0" + (60_000).to_bytes(4, "big") + b"half")
            client.flush()
            until(lambda: spool.state().reserved_bytes)
            held = spool.state().reserved_bytes
            client.state.send_headers(3, pseudo(EXPORT.encode(), b"POST", *headers))
            client.state.send_data(3, b"\0" + (60_000).to_bytes(4, "big") + b"half")
            client.flush()
            answer = client.receive(h2.events.ResponseReceived, 3)
            assert isinstance(answer, h2.events.ResponseReceived)
            client.state.reset_stream(1)
            client.flush()
            until(lambda: not spool.state().reserved_bytes)
            return held, dict(answer.headers)[b"grpc-status"]

    async with asyncio_loop(()):
        port = await opened(door)
        held, status = await trio.to_thread.run_sync(call, port)
        await door.close(1.0)
    assert (held, status) == (60_000, b"14")
    assert spool.state().reserved_bytes == 0
