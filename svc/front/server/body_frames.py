"""The frames of one body that came together, read as one.

Owns the class that stands in for h2's buffer of frames; the HTTP/2 of both fronts puts it there
(`svc.front.server.streams`, `svc.front.otlp.grpc_connection`). h2 takes 50 µs for each frame, and clients cut
a body into frames of 16 KB: a request of 100 spans is 25 of them (measured November 2026). To h2 the merged
frame is one that the client might have sent, so all that h2 checks of a body it checks still: the stream, the
windows, the announced length. Never keeps anything back that is whole, and never looks into a body.
"""

from __future__ import annotations

from typing import Final

from h2.frame_buffer import FrameBuffer
from hyperframe.frame import DataFrame, Frame, GoAwayFrame

#: The head of a frame (RFC 9113 §4.1): three bytes of length, its kind, its flags, and the stream.
HEAD_BYTES: Final = 9
DATA: Final = 0
_END_STREAM: Final = 1
_NO_ERROR: Final = 0
_STREAM_MASK: Final = 0x7FFF_FFFF

# h2 describes each frame for a log that nobody keeps, its content in hexadecimal: a fourth of what HTTP/2
# took of a request of 100 spans (measured November 2026).
Frame.__repr__ = object.__repr__  # type: ignore[method-assign]


class BodyFrames(FrameBuffer):
    """h2's buffer of frames, in which whole frames of one body that follow one another are one frame."""

    def __next__(self) -> Frame:
        frame: Frame = self._body() or super().__next__()
        while isinstance(frame, GoAwayFrame) and frame.error_code == _NO_ERROR:
            # The client begins no more streams, and waits for the answers to those that it has begun
            # (RFC 9113 §6.8). To h2 the connection would be over.
            frame = self._body() or super().__next__()
        return frame

    def _body(self) -> DataFrame | None:
        """What has come of one body, or None where the next frame is another or h2 has to judge it."""
        if self._headers_buffer:
            return None
        data, end, flags, stream_id = self._data, 0, 0, 0
        places: list[slice] = []
        while flags != _END_STREAM and len(data) >= end + HEAD_BYTES and data[end + 3] == DATA:
            start = end + HEAD_BYTES
            length, next_flags = int.from_bytes(data[end : end + 3]), data[end + 4]
            next_id = int.from_bytes(data[end + 5 : start]) & _STREAM_MASK
            is_plain = next_flags in (0, _END_STREAM) and 0 < length <= self.max_frame_size and next_id
            if not is_plain or next_id != (stream_id or next_id) or len(data) < start + length:
                break
            end, flags, stream_id = start + length, next_flags, next_id
            places.append(slice(start, end))
        if not places:
            return None
        with memoryview(data) as view:
            body = b"".join([view[place] for place in places])
        del data[:end]
        return DataFrame(stream_id, body, flags=("END_STREAM",) if flags else ())
