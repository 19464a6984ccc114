"""snappy and lz4, as the OpenTelemetry Collector sends them: read whole, bounded, and never half believed."""

from __future__ import annotations

import cramjam
import lz4.frame
import pytest

from protocol.inflate import TooLarge, Unreadable, inflate

MIB = 1024 * 1024
PLAIN = bytes(range(256)) * 3000

WAYS = {
    "snappy block": ("snappy", lambda plain: bytes(cramjam.snappy.compress_raw(plain))),
    "snappy framed": ("snappy", lambda plain: bytes(cramjam.snappy.compress(plain))),
    "x-snappy-framed": ("x-snappy-framed", lambda plain: bytes(cramjam.snappy.compress(plain))),
    "lz4": ("lz4", lz4.frame.compress),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("plain", [b"", b"x", PLAIN])
def test_what_the_collector_packs_is_unpacked(way: str, plain: bytes) -> None:
    encoding, pack = WAYS[way]
    # Of nothing a framed stream is nothing, not even its identifier.
    assert plain == b"" == pack(plain) or inflate(pack(plain), encoding, MIB) == plain


@pytest.mark.parametrize("way", WAYS)
def test_exactly_the_limit_passes_and_a_bomb_stops_there(way: str) -> None:
    encoding, pack = WAYS[way]
    assert len(inflate(pack(PLAIN), encoding, len(PLAIN))) == len(PLAIN)
    bomb, grown = pack(bytes(64 * MIB)), [0]
    with pytest.raises(TooLarge):
        inflate(bomb, encoding, 4 * MIB, lambda size: grown.append(size))
    assert max(grown) <= 4 * MIB


@pytest.mark.parametrize("way", WAYS)
def test_a_cut_or_flipped_stream_is_unreadable_or_what_it_was(way: str) -> None:
    encoding, pack = WAYS[way]
    packed = pack(PLAIN)
    for end in range(1, len(packed), 997):
        with pytest.raises(Unreadable):
            inflate(packed[:end] if end > 10 else b"\x01", encoding, MIB)
    for at in range(0, len(packed), 499):
        flipped = bytearray(packed)
        flipped[at] ^= 0x55
        try:
            inflate(bytes(flipped), encoding, MIB)
        except (Unreadable, TooLarge):
            continue


def test_a_block_that_claims_more_than_it_can_hold_is_not_believed() -> None:
    held: list[int] = []
    with pytest.raises(Unreadable, match="not valid snappy"):
        inflate(b"\x80\x80\x80\x10\x00", "snappy", 64 * MIB, held.append)
    assert held == []


def test_millions_of_empty_chunks_are_refused() -> None:
    chunk = b"\xfe\x00\x00\x00"
    with pytest.raises(Unreadable):
        inflate(b"\xff\x06\x00\x00sNaPpY" + chunk * 70_000, "snappy", MIB)


def test_several_lz4_frames_are_one_body() -> None:
    assert inflate(lz4.frame.compress(b"one ") + lz4.frame.compress(b"two"), "lz4", 100) == b"one two"
