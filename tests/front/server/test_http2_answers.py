"""Laws of answers over HTTP/2: whole ones go in one piece, others as they come, none beyond its window."""

from __future__ import annotations

import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import attrs
import h2.config
import h2.connection
import h2.events
import h2.settings
import hypercorn.protocol
import pytest
import trio
import trio.testing
from h2.errors import ErrorCodes
from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.config import Config
from hypercorn.trio.worker_context import WorkerContext

from svc.front.server.connection import Connection
from svc.front.server.connection_limiter import ConnectionLimiter
from svc.front.server.frame_steps import MOST_FRAME_BYTES
from svc.front.server.streams import CONNECTION_WINDOW_BYTES, MOST_HANDLERS, STREAM_WINDOW_BYTES, Streams

WINDOW_BYTES = 65_535
App = Callable[[Any, Any, Any], Awaitable[None]]
E = TypeVar("E", bound=h2.events.Event)


@attrs.define
class Client:
    """One client, and what each read of its socket brought."""

    stream: trio.SocketStream
    state: h2.connection.H2Connection = attrs.field(
        factory=lambda: h2.connection.H2Connection(h2.config.H2Configuration(header_encoding="utf-8"))
    )
    reads: list[list[h2.events.Event]] = attrs.field(factory=list)

    async def flush(self) -> None:
        await self.stream.send_all(self.state.data_to_send())

    def begin(
        self, stream_id: int, *headers: tuple[str, str], method: str = "GET", ends: bool = True
    ) -> None:
        """Ask with what is flushed next."""
        head = [(":method", method), (":path", "/"), (":scheme", "http"), (":authority", "here")]
        self.state.send_headers(stream_id, [*head, ("te", "trailers"), *headers], end_stream=ends)

    async def ask(self, stream_id: int = 1, *, method: str = "GET", ends: bool = True) -> None:
        self.begin(stream_id, method=method, ends=ends)
        await self.flush()

    def came(self, kind: type[E]) -> list[E]:
        return [event for events in self.reads for event in events if isinstance(event, kind)]

    async def until(self, kind: type[h2.events.Event], count: int = 1) -> None:
        while len(self.came(kind)) < count:
            self.reads.append(self.state.receive_data(await self.stream.receive_some()))
            await self.flush()

    @property
    def body_bytes(self) -> int:
        return sum(len(event.data) for event in self.came(h2.events.DataReceived))


@asynccontextmanager
async def asked(app: App, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Client]:
    """A client of this application that has asked over one connection."""
    monkeypatch.setattr(hypercorn.protocol, "H2Protocol", Streams)
    monkeypatch.setattr(Connection, "connection_limiter", ConnectionLimiter(lambda: 100), raising=False)

    async def serve(stream: Any) -> None:
        await Connection(ASGIWrapper(app), Config(), WorkerContext(None), {}, stream).run()

    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
            nursery.start_soon(trio.serve_listeners, serve, [listener])
            async with await trio.open_tcp_stream(*listener.socket.getsockname()) as stream:
                client = Client(stream)
                client.state.initiate_connection()
                await client.flush()
                await client.until(h2.events.SettingsAcknowledged)
                await client.ask()
                yield client
            nursery.cancel_scope.cancel()


async def test_an_answer_that_is_whole_comes_in_one_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    async def app(_scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"stored"})

    async with asked(app, monkeypatch) as client:
        await client.until(h2.events.StreamEnded)
    kinds = {type(event) for event in client.reads[-1]}
    assert kinds >= {h2.events.ResponseReceived, h2.events.DataReceived, h2.events.StreamEnded}


async def test_the_head_of_an_answer_does_not_wait_for_a_body_that_comes_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    heard = trio.Event()

    async def app(_scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await heard.wait()
        await send({"type": "http.response.body", "body": b"later", "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    async with asked(app, monkeypatch) as client:
        await client.until(h2.events.ResponseReceived)
        assert not client.came(h2.events.DataReceived)
        heard.set()
        await client.until(h2.events.StreamEnded)
    assert client.body_bytes == len(b"later")


@pytest.mark.parametrize("size", [0, 1, WINDOW_BYTES + 1])
async def test_trailers_come_behind_the_head_and_the_body(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the client opened its windows before there was any answer, as gRPC does (November 2026)."""

    async def app(_scope: Any, receive: Any, send: Any) -> None:
        while (await receive())["more_body"]:
            pass
        await send({"type": "http.response.start", "status": 200, "headers": [], "trailers": True})
        await send({"type": "http.response.body", "body": bytes(size)})
        await send({"type": "http.response.trailers", "headers": [(b"grpc-status", b"12")]})

    async with asked(app, monkeypatch) as client:
        client.state.increment_flow_control_window(2**30)
        client.state.increment_flow_control_window(2**20, stream_id=1)
        # Whoever came first was chance: half of these had their trailers before their head.
        for answers, stream_id in enumerate(range(3, 23, 2), start=1):
            await client.until(h2.events.StreamEnded, answers)
            await client.ask(stream_id, ends=False)
            client.state.increment_flow_control_window(2**20, stream_id=stream_id)
            client.state.ping(b"are you ")
            await client.flush()
            await client.until(h2.events.PingAckReceived, answers)
            client.state.end_stream(stream_id)
            await client.flush()
        await client.until(h2.events.StreamEnded, answers + 1)
    for stream_id in range(1, 23, 2):
        answer = [event for events in client.reads for event in events if _is_of(event, stream_id)]
        assert [type(event) for event in answer if not isinstance(event, h2.events.DataReceived)] == [
            h2.events.ResponseReceived,
            h2.events.TrailersReceived,
            h2.events.StreamEnded,
        ]
        assert sum(len(event.data) for event in answer[1:-2]) == size
        assert answer[-2].headers == [("grpc-status", "12")]


async def answer(send: Any) -> None:
    """One that is whole."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"answered"})


def reading_nothing(wait: Callable[[], Awaitable[object]]) -> App:
    """Answers at once, a PUT when the wait is over; reads no body."""

    async def app(scope: Any, _receive: Any, send: Any) -> None:
        if scope["method"] == "PUT":
            await wait()
        await answer(send)

    return app


async def test_a_body_that_nobody_reads_holds_up_no_other_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as that of a request whose handler fails before it comes to it."""
    came = trio.Event()
    async with asked(reading_nothing(came.wait), monkeypatch) as client:
        await client.until(h2.events.StreamEnded)
        await client.ask(3, method="PUT", ends=False)
        for piece in range(4):
            client.state.send_data(3, b"piece", end_stream=piece == 3)
            await client.flush()
            # So that each comes by itself.
            await trio.testing.wait_all_tasks_blocked(0.01)
        came.set()
        await client.until(h2.events.StreamEnded, 2)
        await client.ask(5)
        await client.until(h2.events.StreamEnded, 3)


async def test_a_small_request_that_is_reset_while_its_handler_waits_holds_up_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with asked(reading_nothing(trio.sleep_forever), monkeypatch) as client:
        await client.until(h2.events.StreamEnded)
        await client.ask(3, method="PUT", ends=False)
        client.state.send_data(3, b"small", end_stream=True)
        await client.flush()
        await trio.testing.wait_all_tasks_blocked(0.01)
        await client.ask(5)
        await client.until(h2.events.StreamEnded, 2)
        client.state.reset_stream(3)
        await client.flush()
        await client.ask(7)
        await client.until(h2.events.StreamEnded, 3)


def _is_of(event: h2.events.Event, stream_id: int) -> bool:
    """Whether it belongs to the answer on a stream."""
    return getattr(event, "stream_id", 0) == stream_id and not isinstance(event, h2.events.WindowUpdated)


@pytest.mark.parametrize("size", [0, 1, WINDOW_BYTES, WINDOW_BYTES + 1, 300_000])
async def test_a_body_of_any_size_comes_whole_and_waits_for_the_window(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def app(_scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": bytes(size)})

    async with asked(app, monkeypatch) as client:
        first_bytes = min(size, WINDOW_BYTES)
        while client.body_bytes < first_bytes:
            await client.until(h2.events.DataReceived, len(client.came(h2.events.DataReceived)) + 1)
        assert client.body_bytes == first_bytes
        if size > WINDOW_BYTES:
            # From now on as much as there is.
            client.state.increment_flow_control_window(size)
            client.state.increment_flow_control_window(size, stream_id=1)
            await client.flush()
        await client.until(h2.events.StreamEnded)
    assert client.body_bytes == size


async def test_a_stream_that_is_reset_leaves_the_others_their_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    go_on = trio.Event()

    async def app(_scope: Any, _receive: Any, send: Any) -> None:
        await go_on.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": bytes(100_000)})

    async with asked(app, monkeypatch) as client:
        await client.ask(3)
        client.state.reset_stream(1)
        client.state.increment_flow_control_window(200_000)
        client.state.increment_flow_control_window(200_000, stream_id=3)
        await client.flush()
        go_on.set()
        await client.until(h2.events.StreamEnded)
    assert {event.stream_id for event in client.came(h2.events.StreamEnded)} == {3}


async def test_what_waits_for_handlers_is_bounded_by_the_windows_of_the_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The client is told of what a handler has read, or never will, and of nothing else."""
    reads, read = trio.Event(), list[int]()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["method"] == "PUT":
            await reads.wait()
            read.append(len((await receive())["body"]))
        await answer(send)

    async with asked(app, monkeypatch) as client:
        await client.until(h2.events.StreamEnded)
        sent_bytes, stream_ids = 0, range(3, 3 + 4 * 8, 4)
        for answers, stream_id in enumerate(stream_ids, start=2):
            is_full = client.state.outbound_flow_control_window == 0
            await client.ask(stream_id, method="PUT", ends=is_full)
            while not is_full and (window_bytes := client.state.local_flow_control_window(stream_id)):
                size = min(window_bytes, client.state.max_outbound_frame_size)
                client.state.send_data(stream_id, bytes(size))
                sent_bytes += size
                await client.flush()
            # Others are answered meanwhile.
            await client.ask(stream_id + 2)
            await client.until(h2.events.StreamEnded, answers)
        assert sent_bytes == CONNECTION_WINDOW_BYTES
        assert not client.came(h2.events.WindowUpdated)[1:]
        reads.set()
        await client.until(h2.events.StreamEnded, 1 + 2 * len(stream_ids))
        # The handlers have ended, whatever they have read: all may come that might before.
        while client.state.outbound_flow_control_window < CONNECTION_WINDOW_BYTES // 2:
            await client.until(h2.events.WindowUpdated, len(client.came(h2.events.WindowUpdated)) + 1)
    assert sum(read) > 0


async def test_a_body_that_waits_for_its_handler_holds_up_no_other_body(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    go_on, read = trio.Event(), list[int]()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["method"] == "PUT":
            await go_on.wait()
        size = 0
        while True:
            message = await receive()
            size += len(message["body"])
            if not message["more_body"]:
                break
        read.append(size)
        await answer(send)

    async def upload(client: Client, stream_id: int, method: str) -> None:
        await client.ask(stream_id, method=method, ends=False)
        for piece in range(12):
            client.state.send_data(stream_id, bytes(16_000), end_stream=piece == 11)
            await client.flush()
            await trio.testing.wait_all_tasks_blocked(0.001)

    async with asked(app, monkeypatch) as client:
        await client.until(h2.events.StreamEnded)
        await upload(client, 3, "PUT")
        await upload(client, 5, "POST")
        await client.until(h2.events.StreamEnded, 2)
        go_on.set()
        await client.until(h2.events.StreamEnded, 3)
    assert read == [0, 12 * 16_000, 12 * 16_000]


async def test_the_client_is_told_of_the_little_that_was_read_when_it_may_send_nothing_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The last thing that fits the windows is read at once, and its handler waits for more."""
    go_on = trio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["method"] == "PUT":
            await go_on.wait()
        elif scope["method"] == "POST":
            while (await receive())["more_body"]:
                pass
        await answer(send)

    async with asked(app, monkeypatch) as client:
        await client.until(h2.events.StreamEnded)
        for stream_id, size in ((3, STREAM_WINDOW_BYTES), (5, STREAM_WINDOW_BYTES - 6_000), (7, 6_000)):
            await client.ask(stream_id, method="POST" if stream_id == 7 else "PUT", ends=False)
            for start in range(0, size, 16_000):
                client.state.send_data(stream_id, bytes(min(16_000, size - start)))
                await client.flush()
        while client.state.outbound_flow_control_window < 6_000:
            await client.until(h2.events.WindowUpdated, len(client.came(h2.events.WindowUpdated)) + 1)
        client.state.end_stream(7)
        await client.flush()
        await client.until(h2.events.StreamEnded, 2)
        go_on.set()
        await client.until(h2.events.StreamEnded, 4)


async def test_a_request_that_is_reset_as_it_comes_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    read = list[bytes]()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["method"] == "POST":
            read.append((await receive())["body"])
        await answer(send)

    async with asked(app, monkeypatch) as client:
        await client.until(h2.events.StreamEnded)
        client.begin(3, method="POST", ends=False)
        client.state.send_data(3, b"unwanted", end_stream=True)
        client.state.reset_stream(3)
        await client.flush()
        await client.ask(5)
        await client.until(h2.events.StreamEnded, 2)
    assert read == []


async def test_requests_beyond_the_bound_are_refused_one_by_one_and_the_others_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    go_on = trio.Event()
    async with asked(reading_nothing(go_on.wait), monkeypatch) as client:
        await client.until(h2.events.StreamEnded)
        # As one that has not read yet how many it may begin.
        client.state.remote_settings[h2.settings.SettingCodes.MAX_CONCURRENT_STREAMS] = 1_000
        client.state.remote_settings.acknowledge()
        for stream_id in range(3, 2 * MOST_HANDLERS + 13, 2):
            client.begin(stream_id, method="PUT")
        await client.flush()
        await client.until(h2.events.StreamReset, 5)
        go_on.set()
        await client.until(h2.events.StreamEnded, 1 + MOST_HANDLERS)
    assert {event.error_code for event in client.came(h2.events.StreamReset)} == {ErrorCodes.REFUSED_STREAM}


async def test_who_begins_no_more_requests_still_has_its_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    go_on = trio.Event()
    async with asked(reading_nothing(go_on.wait), monkeypatch) as client:
        await client.until(h2.events.StreamEnded)
        await client.ask(3, method="PUT")
        await client.stream.send_all(struct.pack(">HBBBLLL", 0, 8, 7, 0, 0, 0, ErrorCodes.NO_ERROR))
        go_on.set()
        await client.until(h2.events.StreamEnded, 2)


async def test_a_frame_that_is_too_long_is_refused_by_its_head(monkeypatch: pytest.MonkeyPatch) -> None:
    async with asked(reading_nothing(trio.lowlevel.checkpoint), monkeypatch) as client:
        await client.until(h2.events.StreamEnded)
        await client.stream.send_all(struct.pack(">I", MOST_FRAME_BYTES + 1)[1:] + bytes(6))
        await client.until(h2.events.ConnectionTerminated)
    assert [one.error_code for one in client.came(h2.events.ConnectionTerminated)] == [
        ErrorCodes.FRAME_SIZE_ERROR
    ]


async def test_who_waits_to_be_told_to_go_on_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def app(_scope: Any, receive: Any, send: Any) -> None:
        while (await receive())["more_body"]:
            pass
        await answer(send)

    async with asked(app, monkeypatch) as client:
        await client.until(h2.events.StreamEnded)
        client.begin(3, ("expect", "100-continue"), method="POST", ends=False)
        await client.flush()
        await client.until(h2.events.InformationalResponseReceived)
        client.state.send_data(3, b"awaited", end_stream=True)
        await client.flush()
        await client.until(h2.events.StreamEnded, 2)


async def test_priorities_are_let_be_however_many_come(monkeypatch: pytest.MonkeyPatch) -> None:
    async with asked(reading_nothing(trio.lowlevel.checkpoint), monkeypatch) as client:
        for number in range(1_500):
            client.state.prioritize(2 * number + 1, weight=7, depends_on=2 * number + 3)
        await client.flush()
        await client.ask(3_003)
        await client.until(h2.events.StreamEnded, 2)


async def test_who_has_no_request_under_way_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """One whose request was reset, too, and one that has sent no more than how a connection begins."""
    async with asked(reading_nothing(trio.sleep_forever), monkeypatch) as client:
        await client.until(h2.events.StreamEnded)
        limiter = Connection.connection_limiter
        await client.ask(3, method="PUT")
        await trio.testing.wait_all_tasks_blocked()
        assert (len(limiter), len(limiter._silent)) == (1, 0)
        client.state.reset_stream(3)
        await client.flush()
        while not limiter._silent:
            await trio.testing.wait_all_tasks_blocked(0.01)
        (port,) = [client.stream.socket.getpeername()[1]]
        async with await trio.open_tcp_stream("127.0.0.1", port) as other:
            newcomer = Client(other)
            newcomer.state.initiate_connection()
            await newcomer.flush()
            await newcomer.until(h2.events.SettingsAcknowledged)
            while len(limiter._silent) < 2:
                await trio.testing.wait_all_tasks_blocked(0.01)


async def test_who_waits_to_be_told_to_go_on_and_leaves_at_once_harms_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    go_on = trio.Event()
    async with asked(reading_nothing(go_on.wait), monkeypatch) as client:
        await client.until(h2.events.StreamEnded)
        await client.ask(3, method="PUT")
        client.begin(5, ("expect", "100-continue"), method="POST", ends=False)
        client.state.reset_stream(5)
        await client.flush()
        client.state.ping(b"12345678")
        await client.flush()
        await client.until(h2.events.PingAckReceived)
        go_on.set()
        await client.until(h2.events.StreamEnded, 2)
