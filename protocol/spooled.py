"""A batch as it lies on disk or in a broker: our own protobuf message around the client's bytes.

Owns `pack` and `unpack`, and the letter that buries a batch in a broker. The spools write and read it; what
it holds is enough to store the batch in another process, another day. Field numbers are for ever: new fields
get new numbers, none is used again.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import attrs
import betterproto2
import zstandard

from protocol.storage import Batch, Letter

CONTENT_TYPE: Final = "application/x-protobuf"

#: Level 1: measured November 2026 at 1 ms for 440 KB of spans, which become a fifth.
_LEVEL: Final = 1
#: What a stored batch may claim to inflate to; above the largest body that a door can be set to take.
_INFLATED_BOUND_BYTES: Final = 2**32


class Unpackable(Exception):
    """The bytes are no batch of ours: damaged, or written by a later release."""


@dataclass(eq=False, repr=False)
class SpooledBatch(betterproto2.Message):
    """One accepted request. `body` is a zstd frame of the OTLP request; times are Unix microseconds."""

    project_id: int = betterproto2.field(1, betterproto2.TYPE_INT64)
    key_id: str = betterproto2.field(2, betterproto2.TYPE_STRING)
    content_type: str = betterproto2.field(3, betterproto2.TYPE_STRING)
    received_us: int = betterproto2.field(4, betterproto2.TYPE_INT64)
    spans: int = betterproto2.field(5, betterproto2.TYPE_INT64)
    body: bytes = betterproto2.field(6, betterproto2.TYPE_BYTES)


@dataclass(eq=False, repr=False)
class DeadLetter(betterproto2.Message):
    """What could not be stored, and why. `damaged` is the message itself when it is no batch of ours."""

    reason: str = betterproto2.field(1, betterproto2.TYPE_STRING)
    buried_us: int = betterproto2.field(2, betterproto2.TYPE_INT64)
    batch: SpooledBatch | None = betterproto2.field(3, betterproto2.TYPE_MESSAGE, optional=True)
    damaged: bytes = betterproto2.field(4, betterproto2.TYPE_BYTES)


@attrs.frozen
class Outline:
    """What can be said of a packed batch without inflating it."""

    spans: int
    body_bytes: int
    received_at: datetime


def pack(batch: Batch) -> bytes:
    """The batch as bytes. Releases the interpreter lock while it compresses."""
    return bytes(_message(batch.project_id, batch.body, batch.spans, batch.received_at, key_id=batch.key_id))


def pack_letter(letter: Letter, *, buried_at: datetime) -> bytes:
    """A span or a batch that could not be stored, as it lies in a broker."""
    batch = _message(letter.project_id, letter.body, letter.spans, letter.received_at)
    return bytes(DeadLetter(reason=letter.reason, buried_us=_microseconds(buried_at), batch=batch))


def pack_damaged(letter: Letter, *, buried_at: datetime) -> bytes:
    """A message that is no batch of ours, as it lies in a broker: byte for byte as it was found."""
    return bytes(DeadLetter(reason=letter.reason, buried_us=_microseconds(buried_at), damaged=letter.body))


def unpack_letter(data: bytes) -> Letter:
    """The letter behind `pack_letter` or `pack_damaged`. Raises `Unpackable`.

    A damaged message counts as one span of nobody's project, as it did when it was buried.
    """
    with _damage_named():
        letter = DeadLetter.parse(data)
        buried_at = _moment(letter.buried_us)
        if type(letter.reason) is not str or type(letter.damaged) is not bytes:
            raise Unpackable("a dead letter cannot be read")
        if letter.batch is None:
            if not letter.damaged:
                raise Unpackable("a dead letter holds nothing")
            return Letter(0, letter.reason, letter.damaged, buried_at, 1)
        batch = _opened(letter.batch, received_s=0.0)
        return Letter(batch.project_id, letter.reason, batch.body, batch.received_at, batch.spans)


def outline(data: bytes) -> Outline:
    """What a packed batch says of itself. Raises `Unpackable`."""
    with _damage_named():
        message = _checked(SpooledBatch.parse(data))
        body_bytes = zstandard.frame_content_size(message.body)
        if not 0 <= body_bytes <= _INFLATED_BOUND_BYTES or message.spans < 0:
            raise Unpackable("a spooled batch has no believable size")
        return Outline(message.spans, body_bytes, _moment(message.received_us))


def unpack(data: bytes, *, received_s: float) -> Batch:
    """The batch behind `pack`; `received_s` is its time on this process's monotonic clock.

    Raises `Unpackable`.
    """
    with _damage_named():
        return _opened(SpooledBatch.parse(data), received_s=received_s)


@contextmanager
def _damage_named() -> Iterator[None]:
    """Damaged bytes make the parser fail in many ways (KeyError and struct.error among them): one name."""
    try:
        yield
    except Unpackable:
        raise
    except Exception as error:
        raise Unpackable(f"a spooled batch cannot be read ({type(error).__name__})") from error


def _opened(message: SpooledBatch, *, received_s: float) -> Batch:
    _checked(message)
    body = zstandard.ZstdDecompressor().decompress(message.body, max_output_size=_INFLATED_BOUND_BYTES)
    received_at = _moment(message.received_us)
    return Batch(message.project_id, body, message.spans, received_at, received_s, message.key_id)


def _checked(message: SpooledBatch) -> SpooledBatch:
    # Of damaged bytes the parser may make fields of other types.
    if type(message.body) is not bytes or type(message.spans) is not int:
        raise Unpackable("a spooled batch cannot be read")
    if message.content_type != CONTENT_TYPE:
        raise Unpackable(f"a spooled batch says it is {message.content_type[:60]!r}")
    return message


def _moment(microseconds: int) -> datetime:
    return datetime.fromtimestamp(microseconds / 1_000_000, UTC)


def _message(
    project_id: int, body: bytes, spans: int, received_at: datetime, *, key_id: str = ""
) -> SpooledBatch:
    return SpooledBatch(
        project_id=project_id,
        key_id=key_id,
        content_type=CONTENT_TYPE,
        received_us=_microseconds(received_at),
        spans=spans,
        body=zstandard.ZstdCompressor(level=_LEVEL).compress(body),
    )


def _microseconds(moment: datetime) -> int:
    return int(moment.timestamp() * 1_000_000)
