"""Laws of a body that waits for its handler: it comes whole and in order, in few pieces, and ends once."""

from __future__ import annotations

from typing import Any

import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from svc.front.server.unread_bodies import SMALL_BYTES, UnreadBody

PIECES = st.lists(st.binary(max_size=3) | st.sampled_from([b"", b"x" * SMALL_BYTES, b"y" * 3 * SMALL_BYTES]))


def piece(body: bytes, *, more: bool = True) -> dict[str, Any]:
    return {"type": "http.request", "body": body, "more_body": more}


@given(PIECES, st.lists(st.integers(0, 3)), st.booleans())
def test_a_body_comes_whole_and_in_order_and_ends_once(
    pieces: list[bytes], reads: list[int], ends_with_the_last: bool
) -> None:
    async def work() -> None:
        body, read = UnreadBody(), list[dict[str, Any]]()

        async def take() -> None:
            read.append(await body.receive())

        for number, sent in enumerate(pieces):
            body.put(piece(sent, more=not (ends_with_the_last and number == len(pieces) - 1)))
            for _ in range(reads[number] if number < len(reads) else 0):
                if body.waiting_bytes:
                    await take()
        if not (pieces and ends_with_the_last):
            body.put(piece(b"", more=False))
        while not read or read[-1]["more_body"]:
            await take()
        assert body.waiting_bytes == 0
        assert b"".join(message["body"] for message in read) == b"".join(pieces)
        assert [message["more_body"] for message in read] == [True] * (len(read) - 1) + [False]
        # Then there is nothing but the news that the client has left.
        async with trio.open_nursery() as nursery:
            nursery.start_soon(take)
            await trio.testing.wait_all_tasks_blocked()
            body.put({"type": "http.disconnect"})
        assert read[-1] == {"type": "http.disconnect"}

    trio.run(work)


async def test_a_body_that_comes_byte_by_byte_waits_in_few_pieces() -> None:
    body = UnreadBody()
    for _ in range(10 * SMALL_BYTES):
        body.put(piece(b"x"))
        body.put(piece(b""))
    assert body.waiting_bytes == 10 * SMALL_BYTES
    assert [len((await body.receive())["body"]) for _ in range(10)] == [SMALL_BYTES] * 10


async def test_what_comes_after_the_handler_has_ended_is_not_kept() -> None:
    body = UnreadBody()
    body.put(piece(b"unread"))
    assert body.close() == len(b"unread")
    body.put(piece(b"late", more=False))
    assert body.waiting_bytes == 0
    # Whoever still asks does not take what was cut short for whole.
    assert await body.receive() == {"type": "http.disconnect"}


async def test_each_of_two_who_wait_hears_of_the_end() -> None:
    body, read = UnreadBody(), list[dict[str, Any]]()

    async def take() -> None:
        read.append(await body.receive())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(take)
        nursery.start_soon(take)
        await trio.testing.wait_all_tasks_blocked()
        body.put({"type": "http.disconnect"})
    assert read == [{"type": "http.disconnect"}] * 2
