"""Laws of the short way: whatever comes over HTTP/1.1 is answered as h11 answers it, to the byte."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from http import HTTPStatus
from typing import Any

import attrs
import pytest
import trio
from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.config import Config
from hypercorn.events import Closed, RawData, Updated
from hypercorn.protocol.h11 import H11Protocol
from hypercorn.trio.task_group import TaskGroup
from hypercorn.trio.worker_context import WorkerContext
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import wait_all_tasks_blocked

from svc.front.server.http1 import PLAIN_HEAD_BYTES, Http1, read_head
from tests.examples import examples

Answer = Callable[[dict[str, Any], Any, Any], Awaitable[None]]

#: How often h11 is asked at most.
TURNS = 30

PLAIN = b"POST /v1/traces?a=1 HTTP/1.1\r\nHost: here\r\nContent-Length: 5\r\nX-Some: \t a b \r\n\r\nspans"


@attrs.define(eq=False)
class Talk:
    """What became of bytes: requests as their handler saw them, what was sent, and whether it was closed."""

    requests: list[Any] = attrs.field(factory=list)
    sent: bytes = b""
    sends: int = 0
    closed: bool = False
    raised: str = ""
    protocol: Any = None

    def outcome(self) -> tuple[Any, ...]:
        """All that a client or a handler can tell."""
        return self.sent, self.requests, self.closed, self.raised


async def whole(receive: Any) -> tuple[bytes, bool]:
    """The body of a request, and whether it came to its end."""
    body = b""
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return body, False
        body += message.get("body", b"")
        if not message.get("more_body", False):
            return body, True


async def start(send: Any, status: int = 200, *headers: tuple[bytes, bytes]) -> None:
    await send({"type": "http.response.start", "status": status, "headers": list(headers)})


async def piece(send: Any, body: bytes, *, more: bool = False) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": more})


async def echoes(talk: Talk, receive: Any, send: Any) -> None:
    body, ended = await whole(receive)
    talk.requests.append((body, ended))
    if ended:
        await start(send, 200, (b"content-length", b"%d" % len(body)), (b"x-mine", b" 1 "))
        await piece(send, body)


async def streams(talk: Talk, receive: Any, send: Any) -> None:
    talk.requests.append(await whole(receive))
    await start(send, 200, (b"content-type", b"text/plain"))
    for text in (b"first", b"", b"second"):
        await piece(send, text, more=True)
    await piece(send, b"")


async def has_nothing_to_say(talk: Talk, receive: Any, send: Any) -> None:
    talk.requests.append(await whole(receive))
    await start(send, 204)
    await piece(send, b"")


async def sends_away(talk: Talk, receive: Any, send: Any) -> None:
    talk.requests.append(await whole(receive))
    await start(send, 200, (b"content-length", b"2"), (b"connection", b"close"))
    await piece(send, b"ok")


async def does_not_listen(talk: Talk, receive: Any, send: Any) -> None:
    await start(send, 413, (b"content-length", b"3"))
    await piece(send, b"no!")


async def fails(talk: Talk, receive: Any, send: Any) -> None:
    talk.requests.append(await whole(receive))
    raise ValueError("a bug")


async def converse(protocol_type: Any, answer: Any, pieces: Sequence[bytes]) -> Talk:
    """Let these pieces come one after another, each after all is done that can be; then the client leaves."""
    talk = Talk()
    config = Config()
    config.include_date_header = False
    config.errorlog = None

    async def send(event: Any) -> None:
        if isinstance(event, RawData):
            assert not (talk.closed and event.data)
            talk.sent += bytes(event.data)
            talk.sends += bool(event.data)
        elif isinstance(event, Closed):
            talk.closed = True
            await talk.protocol.handle(Closed())
        else:
            assert isinstance(event, Updated)

    async def app(scope: dict[str, Any], receive: Any, send: Any) -> None:
        talk.requests.append(scope)
        await answer(talk, receive, send)

    async def read() -> None:
        try:
            for data in pieces:
                if talk.closed:
                    break
                await talk.protocol.handle(RawData(data))
            # Before it leaves the client takes the answers.
            await wait_all_tasks_blocked()
            await talk.protocol.handle(RawData(b""))
        except Exception as error:
            talk.raised = type(error).__name__
        await talk.protocol.handle(Closed())

    with trio.fail_after(30):
        async with TaskGroup() as group:
            talk.protocol = protocol_type(
                ASGIWrapper(app),
                config,
                WorkerContext(None),
                group,
                {},
                False,
                ("127.0.0.1", 1),
                ("127.0.0.1", 2),
                send,
            )
            group.spawn(read)
            await wait_all_tasks_blocked(0.001)
            # Who waits for its turn behind an answer that closes the connection is ended with it.
            assert group._nursery is not None
            group._nursery.cancel_scope.cancel()
    return talk


METHODS = st.sampled_from(
    [b"GET", b"POST", b"HEAD", b"PUT", b"OPTIONS", b"get", b"PRI", b"CONNECT", b"", b"FETCH"]
)
TARGETS = st.sampled_from(
    [b"/", b"/v1/traces?q=a%20b", b"/a b", b"*", b"http://here/x", b"/\xc3\xa9", b"", b"//x"]
)
VERSIONS = st.sampled_from([b"HTTP/1.1"] * 6 + [b"HTTP/1.0", b"HTTP/2.0", b"http/1.1", b"HTTP/1.1 "])
LINES = st.sampled_from(
    [
        b"Host: here",
        b"host:there",
        b"Accept: */*",
        b"X-Latin: caf\xe9",
        b"X-Empty:",
        b"X-Blank: \t ",
        b"X-Wide:  a \t b  ",
        b"X-Control: a\x01b",
        b"X-Nul: a\x00b",
        b"X-Rubout: a\x7fb",
        b"X Space: a",
        b"X-Colon : a",
        b" folded: a",
        b"\tfolded",
        b"no colon",
        b": no name",
        b"Content-Length: 3",
        b"Content-Length: 3, 3",
        b"Content-Length: +3",
        b"Content-Length: 0003",
        b"Content-Length: 99999999999999999999999",
        b"Content-Length:",
        b"Transfer-Encoding: chunked",
        b"Transfer-Encoding: gzip",
        b"Connection: close",
        b"Connection: keep-alive",
        b"Connection: Keep-Alive",
        b"Connection: keep-alive, close",
        b"Connection: x-some",
        b"Connection: Upgrade",
        b"Upgrade: websocket",
        b"Upgrade: h2c",
        b"Expect: 100-continue",
        b"TE: trailers",
    ]
)
ENDS = st.sampled_from([b"\r\n"] * 12 + [b"\n", b"\r", b"\r\r\n"])


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    """A request as clients and attackers write it, most often a good one."""
    body = draw(st.sampled_from([b"", b"abc", b"GET / HTTP/1.1\r\n\r\n", b"3\r\nabc\r\n0\r\n\r\n"]))
    lines = [b"Host: here"] if draw(st.integers(0, 7)) else []
    if body and draw(st.integers(0, 7)):
        lines.append(b"Content-Length: %d" % len(body))
    lines += draw(st.lists(LINES, max_size=2))
    first = b" ".join((draw(METHODS), draw(TARGETS), draw(VERSIONS)))
    if draw(st.booleans()):
        first = draw(st.sampled_from([b"GET / HTTP/1.1", b"POST /v1/traces HTTP/1.1"]))
    return first + b"".join(draw(ENDS) + line for line in lines) + b"\r\n" + draw(ENDS) + body


class InWords(H11Protocol):
    """h11's answers, with the words for their statuses, which Hypercorn leaves out."""

    async def _send_h11_event(self, event: Any) -> None:
        if hasattr(event, "reason"):
            object.__setattr__(event, "reason", HTTPStatus(event.status_code).phrase.encode())
        await super()._send_h11_event(event)


@st.composite
def pieces_of(draw: st.DrawFn) -> list[bytes]:
    """Some requests behind each other, as a socket may cut them."""
    data = b"".join(draw(st.lists(requests(), min_size=1, max_size=3)))
    cuts = sorted(draw(st.lists(st.integers(0, len(data)), max_size=3)))
    cut = [data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]
    return [one for one in cut if one]


@given(
    pieces_of(), st.sampled_from([echoes, streams, has_nothing_to_say, sends_away, does_not_listen, fails])
)
@settings(max_examples=examples(2_000), deadline=None)
def test_whatever_comes_is_answered_as_h11_answers_it(pieces: list[bytes], answer: Answer) -> None:
    ours = trio.run(partial(converse, Http1, answer, pieces)).outcome()
    # Trio wakes tasks in any order, and where an answer races with a malformed rest h11's differs with it.
    theirs: list[Any] = []
    while ours not in theirs and len(theirs) < TURNS:
        theirs.append(trio.run(partial(converse, InWords, answer, pieces)).outcome())
    assert ours in theirs, (ours, theirs[0])


@pytest.mark.parametrize("cut", [*range(1, len(PLAIN), 7), len(PLAIN)])
async def test_a_plain_request_is_handed_on_as_h11_would_wherever_it_is_cut(cut: int) -> None:
    ours, theirs = [await converse(each, echoes, [PLAIN[:cut], PLAIN[cut:]]) for each in (Http1, InWords)]
    assert ours.requests == theirs.requests
    assert ours.sent == theirs.sent
    assert ours.requests[-1] == (b"spans", True)


async def test_h11_never_sees_a_plain_request_and_its_answer_is_one_piece() -> None:
    talk = await converse(Http1, echoes, [PLAIN, PLAIN])
    assert len(talk.requests) == 4
    assert talk.sends == 2
    assert talk.protocol.connection.their_http_version is None


@pytest.mark.parametrize(
    "line",
    [
        "Transfer-Encoding: chunked",
        "Content-Length: 5",
        "Host: other",
        "Connection: close",
        "Upgrade: h2c",
        "Expect: 100-continue",
        "X-Folded: a\r\n b",
    ],
)
def test_a_head_that_says_more_than_a_plain_one_is_left_to_h11(line: str) -> None:
    head = PLAIN.partition(b"\r\n\r\n")[0]
    assert read_head(head) is not None
    assert read_head(head + b"\r\n" + line.encode()) is None


async def test_a_head_beyond_the_bound_is_left_to_h11() -> None:
    long = PLAIN.replace(b"\r\n\r\n", b"\r\nX-Long: " + b"a" * PLAIN_HEAD_BYTES + b"\r\n\r\n")
    talk = await converse(Http1, echoes, [long])
    assert talk.requests[-1] == (b"spans", True)
    assert talk.protocol.connection.their_http_version == b"1.1"


@pytest.mark.parametrize("promised", [1, 9])
async def test_an_answer_of_another_length_than_its_head_says_ends_its_connection(promised: int) -> None:
    async def lies(talk: Talk, receive: Any, send: Any) -> None:
        await whole(receive)
        await start(send, 200, (b"content-length", b"%d" % promised))
        await piece(send, b"four")

    talk = await converse(Http1, lies, [PLAIN])
    assert talk.closed
    # Not a byte beyond what was promised: the next answer would begin with it.
    assert talk.sent.partition(b"\r\n\r\n")[2] == (b"four" if promised > 4 else b"")


@pytest.mark.parametrize("value", [b"a\r\nset-cookie: b", b"a\nb", b"a\x00b"])
async def test_a_header_with_a_line_end_is_never_sent(value: bytes) -> None:
    async def splits(talk: Talk, receive: Any, send: Any) -> None:
        await start(send, 200, (b"x-name", b"first"), (b"x-name", value), (b"content-length", b"0"))
        await piece(send, b"")

    talk = await converse(Http1, splits, [PLAIN])
    assert talk.sent.startswith(b"HTTP/1.1 500 ")
    assert value not in talk.sent
    assert talk.closed


async def test_the_head_of_a_stream_does_not_wait_for_its_first_piece() -> None:
    first = trio.Event()

    async def hesitates(talk: Talk, receive: Any, send: Any) -> None:
        await start(send, 200, (b"content-type", b"text/event-stream"))
        assert talk.sent.endswith(b"\r\n\r\n")
        first.set()
        await piece(send, b"data")

    talk = await converse(Http1, hesitates, [PLAIN])
    assert first.is_set()
    assert talk.sent.endswith(b"4\r\ndata\r\n0\r\n\r\n")
