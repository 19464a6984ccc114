"""What the service and its decoder processes say to each other, over a pipe.

Owns the messages, as MessagePack in the frames of `framing`. `Begin` is the first message to a decoder and
`Begun` its first answer; every `Write` is answered by one `Outcome` with its number, in any order. Both ends
are of one release, always.

Secrets: `Begin` carries the password of the database. It travels through the pipe, never in arguments or the
environment.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final, Literal, TypeAlias

import msgspec

from protocol.database_address import Address
from protocol.framing import framed
from protocol.storage import Batch, Outage, StoreRefused, WriteFailed, Written

#: What the memory of seen texts takes that all decoders share: eight bytes for each of half a million.
SEEN_BYTES: Final = 4 * 1024 * 1024


class Prices(msgspec.Struct, frozen=True, tag=True):
    """The operator's price file, read without fault before; in force from the next order on."""

    path: str
    text: bytes


class Begin(msgspec.Struct, frozen=True, tag=True):
    """Where the database is, how loud the log, and the operator's prices if there are any.

    `seen_fd` is the inherited file behind the memory of seen texts that all decoders share, `pool_size` how
    many connections this one may have, `trace_days` the install's term of retention.
    """

    address: Address
    log_level: str
    log_format: str
    seen_fd: int
    pool_size: int
    trace_days: int
    prices: Prices | None = None


class Begun(msgspec.Struct, frozen=True, tag=True):
    """The decoder is ready for work."""


class SentBatch(msgspec.Struct, frozen=True, array_like=True):
    """A batch on its way to a decoder."""

    project_id: int
    body: bytes
    spans: int
    received_at: datetime
    key_id: str


class Write(msgspec.Struct, frozen=True, tag=True):
    """Decode and store these, in one transaction."""

    number: int
    batches: list[SentBatch]


class Outcome(msgspec.Struct, frozen=True, tag=True):
    """What became of a `Write`: counts when it was stored, else what is raised on the other side."""

    number: int
    verdict: Literal["written", "outage", "refused", "failed"]
    stored: int = 0
    duplicates: int = 0
    reason: str = ""
    place: str = ""


ToDecoder: TypeAlias = Begin | Write | Prices
FromDecoder: TypeAlias = Begun | Outcome

_encode: Final = msgspec.msgpack.Encoder().encode
_to_decoder: Final = msgspec.msgpack.Decoder(ToDecoder)
_from_decoder: Final = msgspec.msgpack.Decoder(FromDecoder)


def frame(message: ToDecoder | FromDecoder) -> tuple[bytes, bytes]:
    """The message as it travels, in two pieces: joining them would copy a large one once more."""
    return framed(_encode(message))


def read_to_decoder(data: bytes | memoryview) -> ToDecoder:
    """A message to a decoder. Raises `msgspec.DecodeError`."""
    message: ToDecoder = _to_decoder.decode(data)
    return message


def read_from_decoder(data: bytes | memoryview) -> FromDecoder:
    """A message of a decoder. Raises `msgspec.DecodeError`."""
    message: FromDecoder = _from_decoder.decode(data)
    return message


def write_message(number: int, batches: Sequence[Batch]) -> Write:
    """The order to write these batches."""
    return Write(
        number,
        [
            SentBatch(batch.project_id, batch.body, batch.spans, batch.received_at, batch.key_id)
            for batch in batches
        ],
    )


def sent_batches(message: Write) -> list[Batch]:
    """The batches of an order, as they were; their monotonic time means nothing in another process."""
    return [
        Batch(order.project_id, order.body, order.spans, order.received_at, 0.0, order.key_id)
        for order in message.batches
    ]


def outcome(number: int, result: Written | Exception) -> Outcome:
    """The answer to an order."""
    match result:
        case Written(stored, duplicates):
            return Outcome(number, "written", stored=stored, duplicates=duplicates)
        case Outage():
            return Outcome(number, "outage", reason=str(result))
        case StoreRefused():
            return Outcome(number, "refused", reason=str(result))
        case WriteFailed():
            return Outcome(number, "failed", reason=result.reason, place=result.place)
    raise TypeError(type(result).__name__)


def result_of(answer: Outcome) -> Written:
    """What the asker gets. Raises `Outage`, `StoreRefused` or `WriteFailed`, as the decoder met it."""
    match answer.verdict:
        case "written":
            return Written(answer.stored, answer.duplicates)
        case "outage":
            raise Outage(answer.reason)
        case "refused":
            raise StoreRefused(answer.reason)
        case "failed":
            raise WriteFailed(answer.reason, answer.place)
