"""Laws of the one HTTP client: how it keeps to checked addresses, how long it waits, how much it reads."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial

import pytest
import trio

from svc.outside.addresses import LOCAL_NETWORKS, AddressRule
from svc.outside.http import AddressRefused, HttpClient, NeverSent, Unreached

NEAR = AddressRule(LOCAL_NETWORKS)


@asynccontextmanager
async def serving(handle: Callable[[trio.SocketStream], Awaitable[None]]) -> AsyncIterator[str]:
    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(partial(trio.serve_tcp, handle, 0, host="127.0.0.1"))
        yield f"http://127.0.0.1:{listeners[0].socket.getsockname()[1]}"
        nursery.cancel_scope.cancel()


async def says(stream: trio.SocketStream, *, head: str, body: bytes) -> None:
    await stream.receive_some(65536)
    try:
        await stream.send_all(head.encode() + b"\r\n\r\n" + body)
        await stream.send_eof()
    except trio.BrokenResourceError:
        # The client read as much as it wanted.
        pass


async def test_a_private_address_is_refused_before_anything_is_sent() -> None:
    reached = trio.Event()

    async def handle(_stream: trio.SocketStream) -> None:
        reached.set()

    async with serving(handle) as url:
        with pytest.raises(AddressRefused):
            await HttpClient(AddressRule()).ask("GET", url)
    assert not reached.is_set()


async def test_a_name_that_also_leads_to_a_private_address_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def resolves(_host: str, port: int, **_: object) -> list[tuple[object, ...]]:
        return [(0, 0, 0, "", ("1.1.1.1", port)), (0, 0, 0, "", ("127.0.0.1", port))]

    monkeypatch.setattr(trio.socket, "getaddrinfo", resolves)
    with pytest.raises(AddressRefused):
        await HttpClient(AddressRule()).ask("GET", "http://rebound.example")


def rebound(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """From now on names are this machine's at the first question, and another's at each one after. What was
    asked for.
    """
    asked: list[str] = []

    async def resolves(host: str, port: int, **_: object) -> list[tuple[object, ...]]:
        asked.append(host)
        return [(0, 0, 0, "", ("127.0.0.1" if len(asked) == 1 else "169.254.169.254", port))]

    monkeypatch.setattr(trio.socket, "getaddrinfo", resolves)
    return asked


async def test_the_connection_goes_to_the_address_that_was_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(partial(says, head="HTTP/1.1 204 No Content", body=b"")) as url:
        port = url.rpartition(":")[2]
        asked = rebound(monkeypatch)
        answer = await HttpClient(NEAR).ask("GET", f"http://model.example:{port}/v1")
    assert answer.status == 204
    assert asked == ["model.example"]


async def test_a_redirect_is_an_answer_and_is_not_followed() -> None:
    head = "HTTP/1.1 302 Found\r\nLocation: http://169.254.169.254/\r\nContent-Length: 0"
    async with serving(partial(says, head=head, body=b"")) as url:
        answer = await HttpClient(NEAR).ask("GET", url)
    assert (answer.status, answer.headers["location"]) == (302, "http://169.254.169.254/")


async def test_an_answer_above_the_bound_is_none() -> None:
    async with serving(partial(says, head="HTTP/1.1 200 OK", body=b"x" * 2000)) as url:
        client = HttpClient(NEAR, answer_bytes=1000)
        with pytest.raises(Unreached, match="larger than 1000 bytes"):
            await client.ask("GET", url)
        assert (await client.ask("GET", url, read=False)).body == b""


async def test_a_silent_host_is_given_up_at_the_deadline() -> None:
    async def handle(_stream: trio.SocketStream) -> None:
        await trio.sleep_forever()

    async with serving(handle) as url:
        with pytest.raises(Unreached, match=r"no answer within 0\.05 s"):
            await HttpClient(NEAR, timeout_s=0.05).ask("GET", url)


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:1", "ftp://127.0.0.1/", "http://", "nonsense", "http://nowhere.invalid"]
)
async def test_whatever_goes_wrong_is_one_error_that_quotes_nothing(url: str) -> None:
    with pytest.raises(Unreached) as raised:
        await HttpClient(NEAR, timeout_s=5.0).ask("GET", url)
    assert "127.0.0.1" not in str(raised.value)
    assert "nowhere" not in str(raised.value)


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:1", "http://nowhere.invalid", "https://{plain}", "ftp://127.0.0.1/", "nonsense"]
)
async def test_what_never_left_is_told_apart_from_what_may_have_been_heard(url: str) -> None:
    async def hangs_up(stream: trio.SocketStream) -> None:
        await stream.receive_some(1)

    sent: list[int] = []
    async with serving(hangs_up) as plain:
        client = HttpClient(NEAR, timeout_s=5.0)
        with pytest.raises(NeverSent):
            await client.ask("POST", url.format(plain=plain[7:]), sent=lambda: sent.append(1))
        assert sent == []
        # Here it was connected and said something.
        with pytest.raises(Unreached) as lost:
            await client.ask("POST", plain, sent=lambda: sent.append(1))
        assert not isinstance(lost.value, NeverSent)
        assert sent == [1]
    with pytest.raises(NeverSent):
        await HttpClient(AddressRule()).ask("POST", "http://127.0.0.1:1")


async def test_a_handshake_that_does_not_end_in_time_has_sent_nothing() -> None:
    async def silent(_stream: trio.SocketStream) -> None:
        await trio.sleep_forever()

    async with serving(silent) as url:
        with pytest.raises(NeverSent):
            await HttpClient(NEAR, timeout_s=0.05).ask("POST", url.replace("http:", "https:"))


async def test_what_is_no_http_is_one_error_too() -> None:
    async with serving(partial(says, head="SSH-2.0-x", body=b"")) as url:
        with pytest.raises(Unreached):
            await HttpClient(NEAR, timeout_s=5.0).ask("GET", url)
