"""Laws of HTTP/2's steps: nothing is lost between them, much of a body is one, a flood of heads is many."""

from __future__ import annotations

import struct
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svc.front.server.frame_steps import (
    BODY_STEP_BYTES,
    MOST_FRAME_BYTES,
    STEP_BYTES,
    FrameSteps,
    FrameTooLong,
)

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS = 0, 1


def frame(kind: int, payload_bytes: int) -> bytes:
    return struct.pack(">I", payload_bytes)[1:] + bytes([kind]) + bytes(5) + bytes(payload_bytes)


def cut(data: bytes, places: list[int]) -> list[bytes]:
    """The steps of all of it, as it comes in pieces that end at these places."""
    steps, ends = FrameSteps(), sorted({0, len(data), *(place % (len(data) + 1) for place in places)})
    return [bytes(step) for start, end in pairwise(ends) for step in steps.cut(memoryview(data)[start:end])]


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, MOST_FRAME_BYTES)), max_size=30),
    st.lists(st.integers(min_value=0), max_size=12),
)
def test_nothing_is_lost_and_no_step_is_too_large(frames: list[tuple[int, int]], places: list[int]) -> None:
    data = PREFACE + b"".join(frame(kind, size) for kind, size in frames)
    pieces = cut(data, places)
    assert b"".join(pieces) == data
    assert all(0 < len(piece) <= BODY_STEP_BYTES for piece in pieces)


def test_a_frame_that_is_too_long_is_known_by_its_head() -> None:
    for kind in (DATA, HEADERS):
        with pytest.raises(FrameTooLong):
            cut(PREFACE + frame(kind, 10) + frame(kind, MOST_FRAME_BYTES + 1)[:9], [])


def test_a_body_is_read_in_large_steps() -> None:
    pieces = cut(PREFACE + frame(HEADERS, 60) + 40 * frame(DATA, 16_384), [])
    assert len(pieces) == -(-(40 * 16_393 + 93) // BODY_STEP_BYTES)


def test_a_flood_of_heads_or_of_empty_frames_is_read_in_small_ones_however_it_comes() -> None:
    for flood in (4_000 * frame(HEADERS, 30), 20_000 * frame(DATA, 0)):
        for places in ([], list(range(0, len(flood), 1_000))):
            pieces = cut(PREFACE + flood, places)
            assert max(map(len, pieces)) <= STEP_BYTES + 9 + 30


def test_heads_between_bodies_count() -> None:
    pieces = cut(PREFACE + 500 * (frame(HEADERS, 30) + frame(DATA, 1)), [])
    assert max(piece.count(frame(HEADERS, 30)) for piece in pieces) <= STEP_BYTES // 39 + 1
