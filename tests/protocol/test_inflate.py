"""Laws of bounded decompression."""

from __future__ import annotations

import contextlib
import gzip
import os
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.inflate import ENCODINGS, TooLarge, Unreadable, inflate
from tests.examples import examples


def raw_deflate(body: bytes) -> bytes:
    compressor = zlib.compressobj(wbits=-15)
    return compressor.compress(body) + compressor.flush()


def zstd_streamed(body: bytes) -> bytes:
    """A frame that does not declare its content size, as streaming writers make it."""
    compressor = zstandard.ZstdCompressor().compressobj()
    return compressor.compress(body) + compressor.flush()


WRITERS: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "gzip": ("gzip", gzip.compress),
    "zlib": ("deflate", zlib.compress),
    "raw deflate": ("deflate", raw_deflate),
    "zstd": ("zstd", zstandard.ZstdCompressor().compress),
    "zstd streamed": ("zstd", zstd_streamed),
}
every_writer = pytest.mark.parametrize(("encoding", "compress"), WRITERS.values(), ids=WRITERS.keys())
ROOT = Path(__file__).parents[2]
MIXED = os.urandom(100_000) + bytes(700_000) + b"abc" * 50_000


@every_writer
@given(body=st.binary(max_size=2000))
@settings(max_examples=examples(50), deadline=None)
def test_what_was_compressed_is_read_back(
    encoding: str, compress: Callable[[bytes], bytes], body: bytes
) -> None:
    assert inflate(compress(body), encoding, 3000) == body


@every_writer
def test_exactly_the_limit_passes_and_one_byte_more_does_not(
    encoding: str, compress: Callable[[bytes], bytes]
) -> None:
    body = compress(MIXED)
    assert inflate(body, encoding, len(MIXED)) == MIXED
    with pytest.raises(TooLarge) as refused:
        inflate(body, encoding, len(MIXED) - 1)
    assert refused.value.limit_bytes == len(MIXED) - 1


@pytest.mark.parametrize("size", [256 * 1024 - 1, 256 * 1024, 256 * 1024 + 1, 512 * 1024, 1024 * 1024])
@every_writer
def test_sizes_about_the_inner_steps_lose_nothing(
    encoding: str, compress: Callable[[bytes], bytes], size: int
) -> None:
    assert inflate(compress(bytes(size)), encoding, size) == bytes(size)
    with pytest.raises(TooLarge):
        inflate(compress(bytes(size)), encoding, size - 1)


def test_a_plain_body_is_handed_back_as_it_is() -> None:
    assert inflate(b"abc", "identity", 3) == b"abc"
    with pytest.raises(TooLarge):
        inflate(b"abcd", "identity", 3)


@pytest.mark.parametrize("encoding", sorted(ENCODINGS))
def test_the_limit_holds_for_the_body_as_sent(encoding: str) -> None:
    with pytest.raises(TooLarge):
        inflate(gzip.compress(os.urandom(100)), encoding, 100)


@every_writer
def test_a_cut_body_is_unreadable_wherever_it_is_cut(
    encoding: str, compress: Callable[[bytes], bytes]
) -> None:
    body = compress(b"spans and spans " * 40)
    for end in range(len(body)):
        with pytest.raises(Unreadable):
            inflate(body[:end], encoding, 10_000)


@every_writer
def test_bytes_after_the_end_are_unreadable(encoding: str, compress: Callable[[bytes], bytes]) -> None:
    with pytest.raises(Unreadable):
        inflate(compress(b"body") + b"trailing", encoding, 1000)


@every_writer
def test_zero_padding_after_the_end_is_dropped(encoding: str, compress: Callable[[bytes], bytes]) -> None:
    assert inflate(compress(b"body") + bytes(100_000), encoding, 200_000) == b"body"


@pytest.mark.parametrize("writer", ["gzip", "zstd", "zstd streamed"])
def test_several_members_are_one_body(writer: str) -> None:
    encoding, compress = WRITERS[writer]
    large = os.urandom(200_000)
    assert inflate(compress(b"one ") + compress(large) + compress(b" two"), encoding, 10**6) == (
        b"one " + large + b" two"
    )
    with pytest.raises(TooLarge):
        inflate(compress(bytes(600)) + compress(bytes(600)), encoding, 1199)


@pytest.mark.parametrize("writer", ["gzip", "zstd"])
def test_a_flood_of_empty_members_is_unreadable(writer: str) -> None:
    encoding, compress = WRITERS[writer]
    with pytest.raises(Unreadable, match="more than 1024 members"):
        inflate(compress(b"") * 1025, encoding, 10**6)
    assert inflate(compress(b"") * 1024, encoding, 10**6) == b""


@pytest.mark.parametrize("encoding", sorted(ENCODINGS - {"identity"}))
@given(body=st.binary(max_size=300))
@settings(max_examples=examples(150), deadline=None)
def test_bytes_that_are_not_compressed_never_raise_anything_else(encoding: str, body: bytes) -> None:
    with contextlib.suppress(Unreadable, TooLarge):
        inflate(body, encoding, 1000)


@pytest.mark.parametrize("encoding", sorted(ENCODINGS - {"identity"}))
def test_plain_protobuf_called_compressed_is_unreadable(encoding: str) -> None:
    with pytest.raises(Unreadable):
        inflate(b"\x0a\x10resource and more", encoding, 1000)


def test_a_zstd_header_cannot_claim_a_window_beyond_8_mib() -> None:
    parameters = zstandard.ZstdCompressionParameters(window_log=27)
    compressor = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    with pytest.raises(Unreadable):
        inflate(compressor.compress(b"abc") + compressor.flush(), "zstd", 10**9)


def test_an_unknown_encoding_is_a_fault_of_the_caller() -> None:
    with pytest.raises(ValueError, match="br"):
        inflate(b"", "br", 10)


# Each bomb is made of one flushed block of zeros repeated, so that 1 GiB need not be compressed to test this.
BOMB = """
import resource, sys, zlib, zstandard
from protocol.inflate import TooLarge, inflate
MIB = 1024 * 1024

def blocks(wbits):
    compressor = zlib.compressobj(9, wbits=wbits)
    head = compressor.compress(bytes(MIB)) + compressor.flush(zlib.Z_FULL_FLUSH)
    block = compressor.compress(bytes(MIB)) + compressor.flush(zlib.Z_FULL_FLUSH)
    return head + block * 1023

bombs = {
    "gzip": blocks(31),
    "deflate": blocks(15),
    "zstd": zstandard.ZstdCompressor().compress(bytes(64 * MIB)) * 16,
}
limit_bytes = 64 * MIB
# Linux gives the peak of the whole process; this write starts it anew, so that making the bombs is left out.
open("/proc/self/clear_refs", "w").write("5")
def peak_kib():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM"))
before = peak_kib()
for encoding, bomb in bombs.items():
    try:
        inflate(bomb, encoding, limit_bytes)
    except TooLarge:
        print(encoding, len(bomb) // 1024, (peak_kib() - before) // 1024)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak of memory from /proc")
def test_a_bomb_of_one_gibibyte_costs_no_more_than_the_limit() -> None:
    done = subprocess.run([sys.executable, "-c", BOMB], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    grown_mib = {line.split()[0]: int(line.split()[2]) for line in done.stdout.splitlines()}
    assert grown_mib.keys() == {"gzip", "deflate", "zstd"}
    # An eighth for the buffer's growth, and the window and one step of zstd.
    assert max(grown_mib.values()) <= 64 * 9 / 8 + 18
