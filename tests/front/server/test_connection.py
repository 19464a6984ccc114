"""Connections of the HTTP door: the keep-alive time, which one task keeps, and how they end."""

from __future__ import annotations

import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import attrs
import hypercorn.protocol
import pytest
import trio
from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.config import Config
from hypercorn.trio.task_group import TaskGroup
from hypercorn.trio.worker_context import EventWrapper, WorkerContext
from trio.testing import MockClock, wait_all_tasks_blocked

from svc.front.server.connection import Connection, KeepAlive
from svc.front.server.connection_limiter import ConnectionLimiter
from svc.front.server.http1 import Http1

TIMEOUT_S = 75.0


@attrs.define(eq=False)
class Held:
    """A connection as far as its keep-alive time is concerned: when it was closed, on Trio's clock."""

    closed_s: list[float] = attrs.field(factory=list)
    terminated: EventWrapper = attrs.field(factory=EventWrapper)

    connection_limiter: ConnectionLimiter = attrs.field(factory=lambda: ConnectionLimiter(lambda: 1))

    def leave(self) -> None:
        raise AssertionError("nobody was to be shed")

    @property
    def config(self) -> Any:
        return SimpleNamespace(keep_alive_timeout=TIMEOUT_S)

    @property
    def context(self) -> Any:
        return SimpleNamespace(terminated=self.terminated)

    async def _initiate_server_close(self) -> None:
        self.closed_s.append(trio.current_time())


@asynccontextmanager
async def idle() -> AsyncIterator[tuple[Held, KeepAlive, TaskGroup]]:
    """A connection that begins to be idle; every task of it must have ended when it is left."""
    held = Held()
    keep_alive = KeepAlive(held)  # type: ignore[arg-type]
    with trio.fail_after(10 * TIMEOUT_S):
        async with TaskGroup() as group:
            await keep_alive.restart(group, None)
            await wait_all_tasks_blocked()
            yield held, keep_alive, group


async def test_a_connection_that_is_idle_for_too_long_is_closed_once(autojump_clock: MockClock) -> None:
    start_s = trio.current_time()
    async with idle() as (held, _, _):
        pass
    assert held.closed_s == [start_s + TIMEOUT_S]


async def test_the_time_counts_from_the_last_answer_and_not_while_one_is_due(
    autojump_clock: MockClock,
) -> None:
    start_s = trio.current_time()
    async with idle() as (held, keep_alive, group):
        for _ in range(3):
            await trio.sleep(TIMEOUT_S - 1)
            await keep_alive.stop()
            await trio.sleep(2 * TIMEOUT_S)
            await keep_alive.restart(group, None)
    assert held.closed_s == [start_s + 3 * (3 * TIMEOUT_S - 1) + TIMEOUT_S]


async def test_a_stop_of_the_service_closes_an_idle_connection_at_once(autojump_clock: MockClock) -> None:
    start_s = trio.current_time()
    async with idle() as (held, _, _):
        await held.terminated.set()
    assert held.closed_s == [start_s]


@pytest.mark.parametrize("answered", [True, False])
async def test_a_stop_of_the_service_leaves_a_busy_connection_its_answer(
    autojump_clock: MockClock, answered: bool
) -> None:
    async with idle() as (held, keep_alive, group):
        await keep_alive.stop()
        await held.terminated.set()
        await trio.sleep(1)
        assert held.closed_s == []
        if answered:
            await keep_alive.restart(group, None)
    assert len(held.closed_s) == answered


async def test_a_request_in_the_moment_the_time_is_over_keeps_the_connection(
    autojump_clock: MockClock,
) -> None:
    async with idle() as (held, keep_alive, group):
        assert keep_alive._patience is not None
        # As its deadline does, before the task that waits has had its turn.
        keep_alive._patience.cancel()
        await keep_alive.stop()
        await wait_all_tasks_blocked()
        assert held.closed_s == []
        await keep_alive.restart(group, None)
        again_s = trio.current_time()
    assert held.closed_s == [again_s + TIMEOUT_S]


@pytest.mark.parametrize("more", [b"", b"TE: trailers\r\n"], ids=["plain", "h11"])
async def test_a_client_that_leaves_with_requests_in_line_leaves_nothing_behind(
    more: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hypercorn.protocol, "H11Protocol", Http1)
    monkeypatch.setattr(Connection, "connection_limiter", ConnectionLimiter(lambda: 100), raising=False)
    request = b"POST / HTTP/1.1\r\nHost: here\r\n" + more + b"Content-Length: 2\r\n\r\nok"
    broken_off, over = trio.Event(), trio.Event()

    async def streams(scope: Any, receive: Any, send: Any) -> None:
        """Answers piece by piece, until it hears that nobody listens."""
        while (await receive()).get("more_body"):
            pass
        await broken_off.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(2):
            await send({"type": "http.response.body", "body": b"piece" * 20_000, "more_body": True})
        assert (await receive())["type"] == "http.disconnect"

    async def serve(stream: Any) -> None:
        await Connection(ASGIWrapper(streams), Config(), WorkerContext(None), {}, stream).run()
        over.set()

    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
            nursery.start_soon(trio.serve_listeners, serve, [listener])
            client = await trio.open_tcp_stream(*listener.socket.getsockname())
            await client.send_all(3 * request)
            await wait_all_tasks_blocked(0.01)
            # It ends with a reset, as of a process that was killed.
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            await client.aclose()
            broken_off.set()
            await over.wait()
            nursery.cancel_scope.cancel()
    assert len(Connection.connection_limiter) == 0


async def test_a_connection_that_is_gone_is_waited_for_no_more(autojump_clock: MockClock) -> None:
    start_s = trio.current_time()
    async with idle() as (held, keep_alive, _):
        keep_alive.end()
    assert (held.closed_s, trio.current_time()) == ([], start_s)
