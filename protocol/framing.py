"""How messages travel through a pipe between the service and its child processes.

Owns the framing: four bytes of length (big-endian), then the message. What a message is, `decoding` and
`detecting` say. Both ends are of one release, always.
"""

from __future__ import annotations

import struct
from typing import Final

_LENGTH: Final = struct.Struct(">I")

#: Nothing larger is sent: a group is bounded, and so is a body.
FRAME_BOUND_BYTES: Final = 2**30


def framed(data: bytes) -> tuple[bytes, bytes]:
    """The message as it travels, in two pieces: joining them would copy a large one once more."""
    return _LENGTH.pack(len(data)), data


class Frames:
    """Bytes in, whole messages out. Keeps what has come of the next one, so a reader may be cancelled."""

    def __init__(self, bound_bytes: int = FRAME_BOUND_BYTES) -> None:
        self._held = bytearray()
        self._bound_bytes = bound_bytes

    def feed(self, data: bytes | bytearray) -> None:
        self._held += data

    def next(self) -> bytes | memoryview | None:
        """The next message, when it is here. Raises `ValueError` for a length that nobody sends.

        A message that ends what has come is not copied: as a rule there is one at a time.
        """
        if len(self._held) < _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack_from(self._held)
        if length > self._bound_bytes:
            raise ValueError(f"a frame of {length} bytes")
        end = _LENGTH.size + length
        if len(self._held) < end:
            return None
        if end == len(self._held):
            frame, self._held = self._held, bytearray()
            return memoryview(frame)[_LENGTH.size :]
        message = bytes(memoryview(self._held)[_LENGTH.size : end])
        del self._held[:end]
        return message
