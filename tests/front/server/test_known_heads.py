"""Laws of heads that a connection has carried before: it reads, judges and writes them as h2 does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import h2.config
import h2.connection
import h2.events
import h2.exceptions
import hpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from svc.front.server.known_heads import MOST_HEAD_BYTES, MOST_HEADS, HeadDecoder, HeadEncoder, KnownHeads

Fields = list[tuple[bytes, bytes]]

REQUEST: Fields = [(b":method", b"POST"), (b":path", b"/"), (b":scheme", b"http"), (b":authority", b"a")]
ANSWER: Fields = [(b":status", b"200"), (b"content-type", b"text/plain")]
#: Parts of heads that say the same thing twice, say it wrongly, or say what a head of that kind may not say.
SAID: Final = [
    *REQUEST,
    *ANSWER,
    (b":path", b""),
    (b":status", b"404"),
    (b":method", b"CONNECT"),
    (b":protocol", b"websocket"),
    (b":other", b"1"),
    (b"host", b"a"),
    (b"host", b"b"),
    (b"cookie", b"one=1"),
    (b"cookie", b"two=2"),
    (b"connection", b"close"),
    (b"transfer-encoding", b"chunked"),
    (b"te", b"trailers"),
    (b"te", b"gzip"),
    (b"Upper", b"1"),
    (b"", b"1"),
    (b"a:b", b"1"),
    (b"a b", b"1"),
    (b"x-text", b" spaced "),
    (b"x-text", b"two\r\nlines"),
    (b"x-text", b""),
    (b"authorization", b"Bearer one"),
]
#: What an answer may say, in any order and as often as it likes.
PROPER: Final = [
    (b"Upper", b"1"),
    (b"x-text", b""),
    (b"x-text", b"1"),
    (b"set-cookie", b"a=1"),
    (b"connection", b"close"),
]


def heads_of(fields: Fields, first: Fields) -> st.SearchStrategy[Fields]:
    """Some of these fields, often after the first ones."""
    some = st.lists(st.sampled_from(fields), min_size=1, max_size=6)
    return st.builds(list.__add__, st.just(first), some) | some


REQUESTS = heads_of(SAID, REQUEST)
#: Over an empty name of an answer h2 falls.
ANSWERS = heads_of([field for field in SAID if field[0]], ANSWER)
PROPER_ANSWERS = st.builds(list.__add__, st.just(ANSWER), st.lists(st.sampled_from(PROPER), max_size=6))


def server() -> h2.connection.H2Connection:
    made = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False, header_encoding=None))
    made.initiate_connection()
    made.clear_outbound_data_buffer()
    return made


def client() -> h2.connection.H2Connection:
    """One that sends whatever it is told to."""
    made = h2.connection.H2Connection(
        h2.config.H2Configuration(
            client_side=True, validate_outbound_headers=False, normalize_outbound_headers=False
        )
    )
    made.initiate_connection()
    return made


def heard(
    connection: h2.connection.H2Connection, heads: KnownHeads | None, sent: bytes
) -> list[Fields] | str:
    """What a server hears of requests, or what it has against one of them."""
    heard_of: list[Fields] = []
    try:
        for event in connection.receive_data(sent):
            if isinstance(event, h2.events.RequestReceived):
                heard_of.append(list(heads.request(event.headers) if heads else event.headers))
            elif isinstance(event, h2.events.TrailersReceived) and heads:
                heads.request_end(event.headers)
    except h2.exceptions.ProtocolError as error:
        return str(error)
    return heard_of


@given(st.lists(REQUESTS, min_size=1, max_size=3), st.booleans())
def test_a_request_is_read_and_judged_as_h2_does_it_however_often_it_comes(
    heads: list[Fields], trailed: bool
) -> None:
    ours, plain, sender = server(), server(), client()
    known = KnownHeads(ours)
    for head in [*heads, *heads, *heads]:
        stream_id = sender.get_next_available_stream_id()
        sender.send_headers(stream_id, head, end_stream=not trailed)
        if trailed:
            sender.send_headers(stream_id, head[-1:], end_stream=True)
        sent = sender.data_to_send()
        expected = heard(plain, None, sent)
        assert heard(ours, known, sent) == expected
        if isinstance(expected, str):
            return


def sent_by(
    connection: h2.connection.H2Connection, stream_id: int, head: Sequence[tuple[bytes, bytes]]
) -> bytes:
    """What goes to a client that has asked and is answered so. Raises `ProtocolError`."""
    sender = client()
    sender.send_headers(stream_id, REQUEST, end_stream=True)
    connection.receive_data(sender.data_to_send() if stream_id == 1 else sender.data_to_send()[24:])
    connection.clear_outbound_data_buffer()
    connection.send_headers(stream_id, list(head), end_stream=True)
    return connection.data_to_send()


def judged(head: Fields, *, known: bool) -> bytes | str:
    """How a first answer is sent, or what is wrong with it."""
    connection = server()
    try:
        return sent_by(connection, 1, KnownHeads(connection).answer(head) if known else head)
    except h2.exceptions.ProtocolError as error:
        return str(error)


@given(ANSWERS)
def test_an_answer_is_judged_as_h2_does_it(head: Fields) -> None:
    assert judged(head, known=True) == judged(head, known=False)


@given(
    st.lists(PROPER_ANSWERS, min_size=1, max_size=3),
    st.lists(st.sampled_from([0, 64, 4096]), max_size=3),
)
def test_an_answer_is_written_as_h2_does_it_however_often_it_goes(
    heads: list[Fields], sizes: list[int]
) -> None:
    ours, plain = server(), server()
    known, resized = KnownHeads(ours), iter(sizes)
    for stream_id, head in enumerate([*heads, *heads, *heads]):
        size_bytes = next(resized, None)
        if size_bytes is not None:
            ours.encoder.header_table_size = plain.encoder.header_table_size = size_bytes
        sent = sent_by(ours, 2 * stream_id + 1, known.answer(head))
        assert sent == sent_by(plain, 2 * stream_id + 1, head)


@given(st.lists(st.lists(st.sampled_from(SAID), max_size=4), max_size=12), st.integers(0, 200))
def test_what_is_packed_here_is_unpacked_here_whatever_falls_out_of_the_table(
    heads: list[Fields], size_bytes: int
) -> None:
    encoder, decoder = HeadEncoder(), HeadDecoder()
    encoder.header_table_size = size_bytes
    for head in [*heads, *heads]:
        block = encoder.encode(head)
        assert list(decoder.decode(block, raw=True)) == head
        assert encoder.header_table.dynamic_entries == decoder.header_table.dynamic_entries


def test_a_head_that_comes_again_is_unpacked_and_judged_once() -> None:
    decoder, encoder, known = HeadDecoder(), hpack.Encoder(), KnownHeads(server())
    # The first time it fills the table; the second time it leaves the table as it is.
    first, second, third = (decoder.decode(encoder.encode(REQUEST), raw=True) for _ in range(3))
    assert list(first) == list(second) == REQUEST
    assert third is second
    assert known.request(second) is known.request(third)
    assert known.answer(ANSWER) is known.answer(list(ANSWER))


@pytest.mark.parametrize("many", [MOST_HEADS, MOST_HEADS + 1])
def test_a_connection_remembers_a_few_heads_and_no_large_one(many: int) -> None:
    known = KnownHeads(server())
    heads = [[*REQUEST, (b"x-number", b"%d" % n)] for n in range(many)]
    first, *_ = [known.request(head) for head in heads]
    assert (known.request(heads[0]) is first) == (many == MOST_HEADS)
    tiny = [(b"%d" % n, b"") for n in range(MOST_HEAD_BYTES // 32)]
    for large in ([*REQUEST, (b"x-large", b"x" * MOST_HEAD_BYTES)], [*REQUEST, *tiny]):
        assert known.request(large) is not known.request(large)


def test_a_short_block_that_means_a_large_head_is_not_remembered() -> None:
    decoder, many = HeadDecoder(), b"\x82" * 512
    assert len(list(decoder.decode(many, raw=True))) == 512
    assert decoder.decode(many, raw=True) is not decoder.decode(many, raw=True)


def test_what_ends_an_answer_is_checked() -> None:
    known = KnownHeads(server())
    assert known.answer_end([(b"Grpc-Status", b"12")]) == ((b"grpc-status", b"12"),)
    with pytest.raises(h2.exceptions.ProtocolError):
        known.answer_end([(b":status", b"200")])


def test_a_block_that_changes_the_table_is_never_taken_for_one_that_came_before() -> None:
    """The same bytes mean another head once the table has moved."""
    decoder = HeadDecoder()
    decoder.decode(hpack.Encoder().encode([(b"a", b"1")]), raw=True)
    newest = b"\xbe"
    assert list(decoder.decode(newest, raw=True)) == [(b"a", b"1")]
    assert list(decoder.decode(newest, raw=True)) == [(b"a", b"1")]
    decoder.decode(hpack.Encoder().encode([(b"b", b"2")]), raw=True)
    assert list(decoder.decode(newest, raw=True)) == [(b"b", b"2")]
