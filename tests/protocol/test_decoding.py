"""Laws of the talk with decoder processes: what goes in comes out, however the bytes are cut."""

from __future__ import annotations

from datetime import UTC, datetime

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.database_address import Address
from protocol.decoding import (
    Begin,
    Begun,
    Write,
    frame,
    outcome,
    read_from_decoder,
    read_to_decoder,
    result_of,
    sent_batches,
    write_message,
)
from protocol.framing import FRAME_BOUND_BYTES, Frames
from protocol.storage import Batch, Outage, StoreRefused, WriteFailed, Written

BATCHES = st.builds(
    Batch,
    project_id=st.integers(1, 2**62),
    body=st.binary(max_size=200),
    spans=st.integers(1, 1000),
    received_at=st.datetimes(timezones=st.just(UTC)),
    received_s=st.just(0.0),
    key_id=st.text(max_size=10),
)


@given(st.lists(st.lists(BATCHES, max_size=4), max_size=5), st.data())
def test_orders_come_out_as_they_went_in_however_the_bytes_are_cut(
    orders: list[list[Batch]], data: st.DataObject
) -> None:
    sent = b"".join(piece for at, order in enumerate(orders) for piece in frame(write_message(at, order)))
    frames, read = Frames(), []
    while sent:
        size = data.draw(st.integers(1, len(sent)))
        frames.feed(sent[:size])
        sent = sent[size:]
        while (message := frames.next()) is not None:
            read.append(read_to_decoder(message))
    assert frames.next() is None
    assert [(order.number, sent_batches(order)) for order in read if isinstance(order, Write)] == list(
        enumerate(orders)
    )


@pytest.mark.parametrize(
    "result",
    [
        Written(3, 1),
        Outage("away"),
        StoreRefused("DataError"),
        WriteFailed("ValueError: x", "ValueError in f"),
    ],
)
def test_an_outcome_is_on_this_side_what_it_was_on_the_other(result: Written | Exception) -> None:
    (_, data) = frame(outcome(7, result))
    answer = read_from_decoder(data)
    assert not isinstance(answer, Begun)
    assert answer.number == 7
    if isinstance(result, Written):
        assert result_of(answer) == result
    else:
        with pytest.raises(type(result)) as met:
            result_of(answer)
        assert (str(met.value), vars(met.value)) == (str(result), vars(result))


def test_a_frame_that_nobody_sends_is_refused() -> None:
    frames = Frames()
    frames.feed((FRAME_BOUND_BYTES + 1).to_bytes(4, "big"))
    with pytest.raises(ValueError, match="a frame of"):
        frames.next()


def test_the_beginning_carries_the_whole_address() -> None:
    address = Address("h", 1, "u", "p", "d", None, (("i", 2), ("::1", 3)), "read-write")
    begin = Begin(address, "info", "text", 7, 4, 90)
    assert read_to_decoder(frame(begin)[1]) == begin


def test_the_receiver_does_not_pretend_to_know_the_senders_clock() -> None:
    batch = Batch(1, b"x", 1, datetime(2026, 11, 1, tzinfo=UTC), 17.5)
    [read] = sent_batches(write_message(1, [batch]))
    assert read == attrs.evolve(batch, received_s=0.0)
