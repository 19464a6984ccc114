"""What a client may do on a gRPC connection: calls are answered one by one, what is too much ends alone."""

from __future__ import annotations

import logging
import socket
import ssl
import struct
from contextlib import ExitStack, suppress
from pathlib import Path

import h2.events
import pytest
from h2.errors import ErrorCodes
from hyperframe.frame import PingFrame

from svc.front.otlp import grpc_answers, grpc_connection
from svc.front.otlp.grpc_connection import MOST_CALLS
from svc.front.server.connection_limiter import ConnectionLimiter
from svc.front.server.frame_steps import FREE_RESETS, MOST_FRAME_BYTES
from tests import wire
from tests.certificates import mount, pair_for, trusting
from tests.e2e.hostile import EXPORT, Http2, connected, http2, pseudo
from tests.front.otlp.doors import GRPC_HEADERS, with_grpc
from tests.service import until

BODY = wire.request(wire.span()).SerializeToString()
MESSAGE = b"\0" + len(BODY).to_bytes(4, "big") + BODY


@pytest.fixture(autouse=True)
def _nothing_is_an_error(caplog: pytest.LogCaptureFixture) -> object:
    yield
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


def most(connections: int) -> ConnectionLimiter:
    """So many connections at once."""
    return ConnectionLimiter(lambda: connections)


def tls_in(folder: Path) -> ssl.SSLContext:
    """What a server has that is called localhost."""
    mount(folder, pair_for("localhost"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    context.set_alpn_protocols(["h2"])
    return context


def begin(client: Http2, stream: int, *entries: tuple[bytes, bytes], ends: bool = False) -> None:
    """The head of a call, with what is flushed next."""
    head = pseudo(EXPORT.encode(), b"POST", *GRPC_HEADERS, *entries)
    client.state.send_headers(stream, head, end_stream=ends)


def send(client: Http2, stream: int, *entries: tuple[bytes, bytes]) -> None:
    """A call with its one message."""
    begin(client, stream, *entries)
    client.state.send_data(stream, MESSAGE, end_stream=True)
    client.flush()


def status_of(client: Http2, stream: int) -> int | None:
    """The status of a call; None: its stream or its connection ended before."""
    while (event := client.receive(h2.events.Event, stream)) is not None:
        if isinstance(event, h2.events.StreamReset):
            return None
        headers = dict(getattr(event, "headers", ()))
        if b"grpc-status" in headers:
            return int(headers[b"grpc-status"])
    return None


def last_reason(client: Http2) -> object:
    """Why the connection ended."""
    event = client.receive(h2.events.ConnectionTerminated)
    return None if event is None else event.error_code


@pytest.mark.parametrize("place", [0, 3, 5, 20, len(MESSAGE)])
async def test_a_piece_without_a_byte_is_no_end_of_the_message(place: int) -> None:
    def work(port: int) -> int | None:
        with http2(port) as client:
            begin(client, 1)
            for piece in (MESSAGE[:place], b"", MESSAGE[place:]):
                client.state.send_data(1, piece)
            client.state.send_data(1, b"", pad_length=7)
            client.state.end_stream(1)
            client.flush()
            return status_of(client, 1)

    assert await with_grpc(work) == 0


@pytest.mark.parametrize("missing", [b":method", b":path"])
async def test_a_head_that_is_none_ends_its_stream_and_no_other(missing: bytes) -> None:
    def work(port: int) -> tuple[object, bool]:
        with http2(port) as client:
            head = [entry for entry in pseudo(EXPORT.encode(), b"POST", *GRPC_HEADERS) if entry[0] != missing]
            client.state.send_headers(1, head)
            client.state.send_data(1, MESSAGE, end_stream=True)
            client.flush()
            event = client.receive(h2.events.StreamReset)
            assert isinstance(event, h2.events.StreamReset)
            return event.error_code, client.ping()

    assert await with_grpc(work) == (ErrorCodes.PROTOCOL_ERROR, True)


async def test_a_value_outside_ascii_costs_the_connection_nothing() -> None:
    def work(port: int) -> list[int | None]:
        with http2(port) as client:
            begin(client, 1, (b"tenant", "Zürich".encode()))
            begin(client, 3)
            for stream in (1, 3):
                client.state.send_data(stream, MESSAGE, end_stream=True)
            client.flush()
            return [status_of(client, stream) for stream in (1, 3)]

    assert await with_grpc(work) == [0, 0]


async def test_calls_beyond_the_bound_are_refused_one_by_one_and_the_others_answered() -> None:
    def work(port: int) -> tuple[int, int, bool]:
        with http2(port) as client:
            # As one that has not read yet how many it may begin.
            client.state.remote_settings[h2.settings.SettingCodes.MAX_CONCURRENT_STREAMS] = 1_000
            client.state.remote_settings.acknowledge()
            streams = range(1, 2 * MOST_CALLS + 41, 2)
            for stream in streams:
                begin(client, stream)
            client.flush()
            for stream in streams[:MOST_CALLS]:
                client.state.send_data(stream, MESSAGE, end_stream=True)
            client.flush()
            statuses = [status_of(client, stream) for stream in streams]
            return statuses.count(0), statuses.count(None), client.ping()

    assert await with_grpc(work, budget_bytes=10_000_000) == (MOST_CALLS, 20, True)


async def test_who_resets_more_than_it_lets_be_answered_is_sent_away() -> None:
    def work(port: int) -> object:
        with http2(port) as client:
            for stream in range(1, 2 * FREE_RESETS + 3, 2):
                begin(client, stream)
                client.state.reset_stream(stream)
            client.flush()
            return last_reason(client)

    assert await with_grpc(work) == ErrorCodes.ENHANCE_YOUR_CALM


async def test_calls_that_are_reset_at_once_count_no_more() -> None:
    """Also those whose tasks had no turn: grpclib never hears of their end."""

    def work(port: int) -> tuple[list[int | None], list[int | None]]:
        with http2(port) as client:
            streams = iter(range(1, 10_000, 2))
            answered = []
            for _ in range(MOST_CALLS):
                stream = next(streams)
                send(client, stream)
                answered.append(status_of(client, stream))
            for _ in range(MOST_CALLS + 20):
                stream = next(streams)
                begin(client, stream)
                client.state.reset_stream(stream)
            client.flush()
            assert client.ping()
            stream = next(streams)
            send(client, stream)
            return answered, [status_of(client, stream)]

    assert await with_grpc(work, budget_bytes=10_000_000) == ([0] * MOST_CALLS, [0])


async def test_a_call_is_refused_though_it_was_reset_at_once() -> None:
    def work(port: int) -> list[int | None]:
        with http2(port) as client:
            client.state.remote_settings[h2.settings.SettingCodes.MAX_CONCURRENT_STREAMS] = 1_000
            client.state.remote_settings.acknowledge()
            streams = range(1, 2 * MOST_CALLS, 2)
            for stream in streams:
                begin(client, stream)
            client.flush()
            assert client.ping()
            begin(client, 2 * MOST_CALLS + 1)
            client.state.reset_stream(2 * MOST_CALLS + 1)
            client.flush()
            for stream in streams:
                client.state.send_data(stream, MESSAGE, end_stream=True)
            client.flush()
            return [status_of(client, stream) for stream in streams]

    assert await with_grpc(work, budget_bytes=10_000_000) == [0] * MOST_CALLS


async def test_who_begins_no_more_calls_still_has_its_answers() -> None:
    def work(port: int) -> int | None:
        with http2(port) as client:
            begin(client, 1)
            client.state.send_data(1, MESSAGE[:9])
            client.flush()
            client.sock.sendall(struct.pack(">HBBBLLL", 0, 8, 7, 0, 0, 0, ErrorCodes.NO_ERROR))
            client.state.send_data(1, MESSAGE[9:], end_stream=True)
            client.flush()
            return status_of(client, 1)

    assert await with_grpc(work) == 0


async def test_a_frame_that_is_too_long_is_refused_by_its_head() -> None:
    def work(port: int) -> object:
        with http2(port) as client:
            begin(client, 1)
            client.flush()
            client.sock.sendall(struct.pack(">I", MOST_FRAME_BYTES + 1)[1:] + bytes([0, 0, 0, 0, 0, 1]))
            return last_reason(client)

    assert await with_grpc(work) == ErrorCodes.FRAME_SIZE_ERROR


async def test_silent_connections_make_room_for_newcomers() -> None:
    def work(port: int) -> int | None:
        with ExitStack() as stack:
            silent = [stack.enter_context(connected(port)) for _ in range(3)]
            client = stack.enter_context(http2(port))
            # Of the settings that it was sent nothing may be left.
            with suppress(ConnectionResetError):
                while silent[0].recv(4096):
                    pass
            send(client, 1)
            return status_of(client, 1)

    assert await with_grpc(work, limiter=most(3)) == 0


async def test_connections_whose_calls_were_reset_are_silent_again() -> None:
    def work(port: int) -> int | None:
        with ExitStack() as stack:
            for _ in range(3):
                client = stack.enter_context(http2(port))
                begin(client, 1)
                client.state.reset_stream(1)
                client.flush()
                assert client.ping()
            client = stack.enter_context(http2(port))
            send(client, 1)
            return status_of(client, 1)

    assert await with_grpc(work, limiter=most(3)) == 0


async def test_who_says_nothing_before_the_handshake_counts_as_well(tmp_path: Path) -> None:
    def work(port: int) -> bool:
        with ExitStack() as stack:
            silent = [stack.enter_context(connected(port)) for _ in range(3)]
            sock = stack.enter_context(connected(port))
            client = trusting()
            client.set_alpn_protocols(["h2"])
            secured = stack.enter_context(client.wrap_socket(sock, server_hostname="localhost"))
            with suppress(ConnectionResetError):
                assert silent[0].recv(1) == b""
            # Right behind the handshake: how a connection begins, with no settings.
            secured.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]))
            # The kind of its first frame: settings.
            return secured.recv(9)[3] == 4

    assert await with_grpc(work, limiter=most(3), tls=tls_in(tmp_path))


async def test_who_shakes_no_hands_in_time_is_left_and_counts_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grpc_connection, "HANDSHAKE_TIMEOUT_S", 0.2)
    limiter = most(100)

    def work(port: int) -> bytes:
        with ExitStack() as stack:
            silent, wrong, leaving = (stack.enter_context(connected(port)) for _ in range(3))
            wrong.sendall(b"no handshake at all" * 3)
            leaving.close()
            until(lambda: len(limiter) == 0)
            return silent.recv(1)

    assert await with_grpc(work, limiter=limiter, tls=tls_in(tmp_path)) == b""


async def test_where_all_have_a_call_under_way_the_newcomer_goes() -> None:
    def work(port: int) -> tuple[bytes, int | None]:
        with http2(port) as client:
            begin(client, 1)
            client.state.send_data(1, MESSAGE[:9])
            client.flush()
            assert client.ping()
            with connected(port) as newcomer:
                heard = b""
                with suppress(ConnectionResetError):
                    heard = newcomer.recv(4096)
            client.state.send_data(1, MESSAGE[9:], end_stream=True)
            client.flush()
            return heard, status_of(client, 1)

    assert await with_grpc(work, limiter=most(1)) == (b"", 0)


async def test_a_call_whose_answer_nobody_takes_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grpc_answers, "SEND_TIMEOUT_S", 0.1)

    def work(port: int) -> tuple[int | None, bool]:
        with http2(port) as client:
            client.state.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: 0})
            client.flush()
            assert client.ping()
            send(client, 1)
            return status_of(client, 1), client.ping()

    assert await with_grpc(work) == (None, True)


async def test_who_sends_and_never_reads_is_read_no_more_and_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grpc_connection, "SEND_TIMEOUT_S", 0.5)

    def work(port: int) -> int:
        flood, sent_bytes = PingFrame(0, b"12345678").serialize() * 4_000, 0
        with http2(port) as client:
            client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            with suppress(BrokenPipeError, ConnectionResetError):
                while sent_bytes < 200_000_000:
                    sent_bytes += client.sock.send(flood)
        return sent_bytes

    # What both sockets hold, of 200 MB.
    assert await with_grpc(work) < 50_000_000
