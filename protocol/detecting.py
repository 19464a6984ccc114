"""What the service and its detecting process say to each other, over a pipe.

Owns the messages, as MessagePack in the frames of `framing`: `StartDetecting` is the first to the process,
`IngestBusy` follows whenever it changes; a `Report` comes back when something changed, at most about once a
second, and now and then as a sign of life. A report is bounded in rounds, names and texts.

Secrets: `StartDetecting` carries the password of the database and keys. They travel through the pipe, never
in arguments or the environment.
"""

from __future__ import annotations

from typing import Annotated, Final, TypeAlias

import msgspec

from protocol.database_address import Address
from protocol.framing import framed

#: No report is longer.
REPORT_BYTES: Final = 256 * 1024
#: Rounds that a report tells of, counts of one of them, and how long texts in it are.
ROUNDS_BOUND: Final = 64
COUNTS_BOUND: Final = 200
NAME_CHARS: Final = 100
TEXT_CHARS: Final = 300

_Name: TypeAlias = Annotated[str, msgspec.Meta(max_length=NAME_CHARS)]
_Text: TypeAlias = Annotated[str, msgspec.Meta(max_length=TEXT_CHARS)]


class StartDetecting(msgspec.Struct, frozen=True, tag=True):
    """Where the database is, how many connections to it, how loud the log, the key of secrets' marks, how
    often detectors look, how many false alarms a project may have a month, and the encoder if there is one.

    `alone` says that no other service works on this database: what is held in it, nobody holds any more.
    """

    address: Address
    log_level: str
    log_format: str
    pool_size: int
    secret_key: bytes
    interval_s: float
    false_alarms_per_month: float
    encoder_url: str | None
    encoder_key: str | None
    alone: bool


class IngestBusy(msgspec.Struct, frozen=True, tag=True):
    """Whether ingest needs the machine."""

    busy: bool


class RoundReport(msgspec.Struct, frozen=True):
    """One round as health shows it, and what it has counted since its process began.

    `rests_s` is how long a failed one rests before its next try.
    """

    name: _Name
    state: _Name
    crashes: int = 0
    last_error: _Text | None = None
    waiting_for: _Text | None = None
    rests_s: float | None = None
    counts: Annotated[dict[_Name, int], msgspec.Meta(max_length=COUNTS_BOUND)] = {}


class Report(msgspec.Struct, frozen=True, tag=True):
    """All rounds, as they stand."""

    rounds: Annotated[tuple[RoundReport, ...], msgspec.Meta(max_length=ROUNDS_BOUND)]


ToDetecting: TypeAlias = StartDetecting | IngestBusy

_encode: Final = msgspec.msgpack.Encoder().encode
_to_detecting: Final = msgspec.msgpack.Decoder(ToDetecting)
_report: Final = msgspec.msgpack.Decoder(Report)


def framed_message(message: ToDetecting | Report) -> bytes:
    """The message as it travels."""
    return b"".join(framed(_encode(message)))


def read_to_detecting(data: bytes | memoryview) -> ToDetecting:
    """A message to the detecting process. Raises `msgspec.DecodeError`."""
    message: ToDetecting = _to_detecting.decode(data)
    return message


def read_report(data: bytes | memoryview) -> Report:
    """A message of the detecting process. Raises `msgspec.DecodeError`."""
    message: Report = _report.decode(data)
    return message
