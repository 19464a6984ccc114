"""What comes on an HTTP/2 connection, cut into steps by where its frames begin.

Owns `FrameSteps` and the bounds that the HTTP/2 of both fronts shares (`svc.front.server.streams`,
`svc.front.otlp.grpc_connection`). Never looks into a frame, and never keeps what has come.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import attrs
from h2.connection import H2Connection
from h2.settings import SettingCodes

from svc.front.server.body_frames import DATA, HEAD_BYTES

#: Resets that are forgiven, beside one for each answer: clients give up now and then.
FREE_RESETS: Final = 100
#: Frames are read so many bytes at a time, so that others have their turn and a flood is noticed early: a
#: quarter of a megabyte holds 8,000 streams. Of bodies, which cost little, all that came at once is read:
#: 100 spans took the main process 0.82 of what they took in halves of that (measured 2026-12-01).
STEP_BYTES: Final = 8 * 1024
BODY_STEP_BYTES: Final = 256 * 1024
#: What a frame may hold; both fronts leave it at what HTTP/2 begins with (RFC 9113 §6.5.2). h2 looks at the
#: length of a frame only when all of it is there, up to 16 MB.
MOST_FRAME_BYTES: Final = 16_384
#: What a client says first (RFC 9113 §3.4).
_PREFACE_BYTES: Final = 24
_NO_LIMIT: Final = 2**31


class FrameTooLong(Exception):
    """The head of a frame tells of more than a frame may hold."""


@attrs.define
class FrameSteps:
    """Cuts what comes on a connection into steps, by where its frames begin."""

    #: What is still to come of the present frame, and what has come of the next one's head.
    _frame_bytes: int = _PREFACE_BYTES
    _head: bytes = b""

    def cut(self, data: memoryview) -> Iterator[memoryview]:
        """All of it, piece by piece: at most so much of bodies, or a little more than so much of all else.

        Raises `FrameTooLong` when it comes to the head of one.
        """
        start = end = costly_bytes = 0
        while end < len(data):
            if not self._frame_bytes:
                missing = data[end : end + HEAD_BYTES - len(self._head)]
                self._head += missing
                end += len(missing)
                costly_bytes += len(missing)
                if len(self._head) == HEAD_BYTES:
                    self._frame_bytes = int.from_bytes(self._head[:3])
                    if self._frame_bytes > MOST_FRAME_BYTES:
                        raise FrameTooLong
                    costly_bytes += 0 if self._head[3] == DATA else self._frame_bytes
                    self._head = b""
            else:
                piece_bytes = min(self._frame_bytes, len(data) - end, start + BODY_STEP_BYTES - end)
                self._frame_bytes -= piece_bytes
                end += piece_bytes
            if costly_bytes >= STEP_BYTES or end - start >= BODY_STEP_BYTES:
                yield data[start:end]
                start, costly_bytes = end, 0
        if start < end:
            yield data[start:end]


def lift_stream_limit(connection: H2Connection) -> None:
    """Let h2 take more streams than the first settings frame, which is sent, allows.

    A client may begin many requests before it has read how many it may have; h2 ends its connection, and with
    it those that were proper. Whoever calls this refuses each stream that is too many by itself.
    """
    connection.local_settings[SettingCodes.MAX_CONCURRENT_STREAMS] = _NO_LIMIT
    connection.local_settings.acknowledge()
