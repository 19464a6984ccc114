"""Whole messages from the pipe between the service and a child process, for both of its ends.

The actors that keep a child read with `next_of_child`, the children with `next_message`. Never knows what a
message says: `decoding` and `detecting` of `protocol` do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

import trio

from protocol.framing import Frames

T = TypeVar("T")

#: As much as a pipe of ours holds: a group of batches is megabytes.
RECEIVE_BYTES: Final = 1 << 20
#: What health says of a child that ended because it had nothing to do.
ASLEEP: Final = "its process starts when something arrives"


class ChildLost(Exception):
    """The process died, hung or spoke nonsense. The text is for the operator."""


async def next_message(
    stream: trio.abc.ReceiveStream, frames: Frames, read: Callable[[bytes | memoryview], T]
) -> T | None:
    """The next message; None at the end of the stream."""
    while (message := frames.next()) is None:
        data = await stream.receive_some(RECEIVE_BYTES)
        if not data:
            return None
        frames.feed(data)
    return read(message)


async def next_of_child(
    stream: trio.abc.ReceiveStream, frames: Frames, read: Callable[[bytes | memoryview], T]
) -> T:
    """The next message. Raises `ChildLost` at the end of the stream, and for what is none."""
    try:
        message = await next_message(stream, frames, read)
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        raise ChildLost("it broke off") from None
    except ValueError:
        # msgspec's own error is one, too.
        raise ChildLost("it cannot be understood") from None
    if message is None:
        raise ChildLost("it ended")
    return message
