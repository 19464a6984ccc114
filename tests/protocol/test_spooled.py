"""Packed batches and letters: what goes in comes out, and damage has one name."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta

import attrs
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from protocol.spooled import (
    DeadLetter,
    Unpackable,
    outline,
    pack,
    pack_damaged,
    pack_letter,
    unpack,
    unpack_letter,
)
from protocol.storage import Batch, Letter

moments = st.datetimes(datetime(1990, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC))
batches = st.builds(
    Batch,
    st.integers(1, 2**62),
    st.binary(max_size=2000),
    st.integers(0, 100_000),
    moments,
    st.just(7.0),
    st.text(max_size=40),
)


def rounded(moment: datetime) -> int:
    """Times are kept to the microsecond, as a float of seconds holds them."""
    return int(moment.timestamp() * 1_000_000)


@given(batches)
def test_a_packed_batch_comes_out_as_it_went_in(batch: Batch) -> None:
    found = unpack(pack(batch), received_s=7.0)
    assert attrs.evolve(found, received_at=batch.received_at) == batch
    assert abs((found.received_at - batch.received_at).total_seconds()) < 1e-5


@given(batches)
def test_an_outline_says_what_the_batch_will_be(batch: Batch) -> None:
    found = outline(pack(batch))
    assert (found.spans, found.body_bytes) == (batch.spans, len(batch.body))
    assert abs((found.received_at - batch.received_at).total_seconds()) < 1e-5


@given(batches, st.data())
def test_damage_has_one_name_wherever_it_is(batch: Batch, data: st.DataObject) -> None:
    packed = bytearray(pack(batch))
    for _ in range(data.draw(st.integers(1, 5))):
        packed[data.draw(st.integers(0, len(packed) - 1))] = data.draw(st.integers(0, 255))
    damaged = bytes(packed[: data.draw(st.integers(0, len(packed)))])
    with suppress(Unpackable):
        outline(damaged)
        unpack(damaged, received_s=0.0)


@given(st.binary(max_size=60))
def test_what_is_no_batch_at_all_is_unpackable(data: bytes) -> None:
    for read in (outline, lambda found: unpack(found, received_s=0.0)):
        with pytest.raises(Unpackable):
            read(data)


@given(batches, st.text(max_size=100), moments)
def test_a_letter_keeps_reason_time_and_batch(batch: Batch, reason: str, buried_at: datetime) -> None:
    letter = Letter(batch.project_id, reason, batch.body, batch.received_at, batch.spans)
    found = DeadLetter.parse(pack_letter(letter, buried_at=buried_at))
    assert (found.reason, found.buried_us, found.damaged) == (reason, rounded(buried_at), b"")
    assert found.batch is not None
    whole = unpack(bytes(found.batch), received_s=0.0)
    assert (whole.project_id, whole.body, whole.spans) == (batch.project_id, batch.body, batch.spans)
    damaged = DeadLetter.parse(pack_damaged(letter, buried_at=buried_at))
    assert (damaged.reason, damaged.batch, damaged.damaged) == (reason, None, batch.body)


@given(batches, st.text(max_size=50), moments)
def test_a_letter_comes_back_as_it_was_buried(batch: Batch, reason: str, buried_at: datetime) -> None:
    letter = Letter(batch.project_id, reason, batch.body, batch.received_at, batch.spans)
    found = unpack_letter(pack_letter(letter, buried_at=buried_at))
    assert attrs.evolve(found, received_at=letter.received_at) == letter
    assert abs(found.received_at - letter.received_at) <= timedelta(microseconds=1)


# A batch that is a number of two thousand million.
@example(b"\x18\x80\x80\x80\x80\x08")
@given(st.binary(max_size=200))
def test_what_is_no_letter_is_unpackable_or_a_letter(data: bytes) -> None:
    with suppress(Unpackable):
        letter = unpack_letter(data)
        assert type(letter.reason) is str
        assert type(letter.body) is bytes
