"""Laws of merged frames: h2 hears of a body what it hears of its frames one by one, and all else as it is."""

from __future__ import annotations

import struct
from itertools import groupby, pairwise

import attrs
import h2.config
import h2.connection
import h2.events
import h2.exceptions
import hpack
from hypothesis import given
from hypothesis import strategies as st

from svc.front.server.body_frames import BodyFrames

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, WINDOW_UPDATE, CONTINUATION, UNKNOWN = 0, 1, 3, 4, 6, 8, 9, 77
END_STREAM, END_HEADERS, PADDED = 1, 4, 8
FRAME_BYTES = 16_384


def frame(kind: int, flags: int, stream_id: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream_id) + payload


def headers(stream_id: int, length: int | None = None, flags: int = END_HEADERS) -> bytes:
    fields = [(":method", "POST"), (":path", "/"), (":scheme", "http"), (":authority", "a")]
    if length is not None:
        fields.append(("content-length", str(length)))
    # Nothing is put into the table that a later block would need: blocks may be left out.
    encoder = hpack.Encoder()
    encoder.header_table_size = 0
    return frame(HEADERS, flags, stream_id, encoder.encode(fields))


@attrs.define
class Heard:
    """What one server hears of a client, and what it answers."""

    connection: h2.connection.H2Connection
    events: list[object] = attrs.field(factory=list)
    failure: type[Exception] | None = None
    answers: list[bytes] = attrs.field(factory=list)

    def receive(self, piece: bytes) -> None:
        try:
            came = self.connection.receive_data(piece)
        except h2.exceptions.ProtocolError as error:
            self.failure, came = type(error), []
        # A body may be given back as soon as it came, as the fronts do it.
        for event in came:
            if isinstance(event, h2.events.DataReceived) and self.failure is None:
                self.connection.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        self.events += [_told(event) for event in came]
        self.answers.append(self.connection.data_to_send())

    def bodies_joined(self) -> list[object]:
        """The events; pieces of one body that follow one another as one."""
        joined: list[object] = []
        for stream_id, group in groupby(
            self.events, lambda event: event[1] if isinstance(event, tuple) else None
        ):
            if stream_id is None:
                joined += group
            else:
                pieces = list(group)
                assert all(isinstance(piece, tuple) for piece in pieces)
                joined.append((stream_id, b"".join(piece[2] for piece in pieces), sum(p[3] for p in pieces)))
        return joined


def _told(event: h2.events.Event) -> object:
    if isinstance(event, h2.events.DataReceived):
        return "body", event.stream_id, event.data, event.flow_controlled_length
    return repr(event)


def heard(data: bytes, places: list[int], *, merged: bool) -> Heard:
    """What a server hears of all of it, as it comes in pieces that end at these places."""
    connection = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False))
    if merged:
        connection.incoming_buffer = BodyFrames(server=True)
    connection.initiate_connection()
    told = Heard(connection)
    ends = sorted({0, len(data), *(place % (len(data) + 1) for place in places)})
    for start, end in pairwise(ends):
        told.receive(data[start:end])
        if told.failure is not None:
            break
    return told


def padded(payload: bytes, padding: int) -> bytes:
    return bytes([padding]) + payload + bytes(padding)


streams = st.sampled_from([0, 1, 1, 1, 1, 3, 3, 3, 5])
payloads = st.one_of(st.binary(max_size=40), st.integers(0, FRAME_BYTES + 1).map(bytes))
bodies = st.builds(frame, st.just(DATA), st.just(0), st.sampled_from([1, 1, 3]), st.binary(max_size=40))
others = st.one_of(
    st.builds(frame, st.just(DATA), st.sampled_from([0, 0, END_STREAM, 2]), streams, payloads),
    st.builds(
        lambda stream_id, payload, padding: frame(DATA, PADDED, stream_id, padded(payload, padding)),
        streams,
        st.binary(max_size=40),
        st.integers(0, 255),
    ),
    st.builds(headers, streams, st.one_of(st.none(), st.integers(0, 90)), st.sampled_from([0, 4, 4, 5])),
    st.builds(frame, st.just(RST_STREAM), st.just(0), streams, st.just(bytes(4))),
    st.builds(frame, st.just(PING), st.just(0), st.just(0), st.just(bytes(8))),
    st.builds(frame, st.just(WINDOW_UPDATE), st.just(0), streams, st.just(struct.pack(">I", 9))),
    st.builds(frame, st.sampled_from([CONTINUATION, UNKNOWN]), st.just(0), streams, st.binary(max_size=9)),
)
#: Most are pieces of bodies that a server takes: after the first frame that it refuses it hears no more.
runs = st.lists(bodies, min_size=1, max_size=5).map(b"".join)
frames = st.one_of(*12 * [runs], others)
lengths = st.sampled_from([None, None, None, 60, 200])
BEGUN = PREFACE + frame(SETTINGS, 0, 0, b"")


@given(
    st.lists(frames, max_size=6), st.lists(st.integers(min_value=0), max_size=3), st.tuples(lengths, lengths)
)
def test_whatever_comes_is_heard_as_h2_hears_it(
    came: list[bytes], places: list[int], announced: tuple[int | None, int | None]
) -> None:
    data = BEGUN + headers(1, announced[0]) + headers(3, announced[1]) + b"".join(came)
    ours, theirs = heard(data, places, merged=True), heard(data, places, merged=False)
    assert ours.failure == theirs.failure
    assert ours.bodies_joined() == theirs.bodies_joined()


def test_pieces_of_a_body_that_came_together_are_one_event() -> None:
    body = bytes(range(256)) * 400
    cut = [body[start : start + FRAME_BYTES] for start in range(0, len(body), FRAME_BYTES)]
    data = headers(1) + b"".join(frame(DATA, 0, 1, piece) for piece in cut[:3]) + frame(PING, 0, 0, bytes(8))
    told = heard(BEGUN + data + frame(DATA, END_STREAM, 1, b"end"), [], merged=True)
    bodies = [event for event in told.events if isinstance(event, tuple)]
    assert bodies == [("body", 1, body[: 3 * FRAME_BYTES], 3 * FRAME_BYTES), ("body", 1, b"end", 3)]


def test_a_client_that_sends_more_than_it_may_is_refused() -> None:
    flood = headers(1) + 5 * frame(DATA, 0, 1, bytes(FRAME_BYTES))
    assert heard(BEGUN + flood, [], merged=True).failure is h2.exceptions.FlowControlError


def test_a_body_longer_than_was_said_is_refused() -> None:
    longer = headers(1, 5) + 2 * frame(DATA, 0, 1, b"abc")
    assert heard(BEGUN + longer, [], merged=True).failure is h2.exceptions.InvalidBodyLengthError
