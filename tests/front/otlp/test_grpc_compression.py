"""Compressed messages over gRPC: what the Collector sends is read, bombs are bounded, the rest is named."""

from __future__ import annotations

import gzip

import cramjam
import h2.events
import pytest
import zstandard

from protocol.refusals import GRPC_COMPRESSION, PAYLOAD_TOO_LARGE
from tests.e2e.hostile import EXPORT, http2, pseudo
from tests.front.otlp.doors import GRPC_HEADERS, with_grpc
from tests.front.otlp.test_grpc_metadata import BODY

PACKED = {
    b"gzip": gzip.compress,
    b"zstd": zstandard.compress,
    b"snappy": lambda plain: bytes(cramjam.snappy.compress(plain)),
}


def call(port: int, encoding: bytes | None, message: bytes) -> tuple[int, str]:
    named = () if encoding is None else ((b"grpc-encoding", encoding),)
    with http2(port) as client:
        client.state.send_headers(1, pseudo(EXPORT.encode(), b"POST", *GRPC_HEADERS, *named))
        data = b"\1" + len(message).to_bytes(4, "big") + message
        for start in range(0, len(data), 16_000):
            client.state.send_data(1, data[start : start + 16_000])
        client.state.end_stream(1)
        client.flush()
        head = client.receive(h2.events.ResponseReceived)
        assert isinstance(head, h2.events.ResponseReceived)
        said = {bytes(name): bytes(value) for name, value in head.headers}
        if b"grpc-status" not in said:
            trailers = client.receive(h2.events.TrailersReceived)
            assert isinstance(trailers, h2.events.TrailersReceived)
            said = {bytes(name): bytes(value) for name, value in trailers.headers}
        return int(said[b"grpc-status"]), said.get(b"grpc-message", b"").decode()


@pytest.mark.parametrize("encoding", PACKED)
async def test_a_message_is_read_in_every_compression_of_the_collector(encoding: bytes) -> None:
    assert await with_grpc(lambda port: call(port, encoding, PACKED[encoding](BODY))) == (0, "")


@pytest.mark.parametrize("encoding", PACKED)
async def test_a_bomb_is_told_that_it_is_too_large(encoding: bytes) -> None:
    bomb = PACKED[encoding](bytes(1_200_000))
    said = await with_grpc(lambda port: call(port, encoding, bomb), budget_bytes=8_000_000)
    assert said == (8, PAYLOAD_TOO_LARGE.message)


async def test_gzip_needs_no_name_and_what_is_not_read_is_named() -> None:
    assert await with_grpc(lambda port: call(port, None, gzip.compress(BODY))) == (0, "")
    assert await with_grpc(lambda port: call(port, b"br", b"x")) == (12, GRPC_COMPRESSION)
    assert await with_grpc(lambda port: call(port, None, b"x")) == (12, GRPC_COMPRESSION)
