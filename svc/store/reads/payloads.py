"""Payloads shown beside their rows, within the room that an answer has for them.

Called by the reads of spans and traces, with envelopes as `svc.store.spans.payloads` gives them. What an
answer has no room for is left out and said: `payload_truncated`, with the size and the fields that are
missing. Never reads the database and never cuts a value in two: half a conversation misleads.

A payload in hand takes many times its bytes (an empty event has two, and becomes an object of hundreds), so
an envelope is counted before it is opened, one is opened at a time, and few threads do so at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import attrs
import msgspec
import trio

from protocol.inflate import Unreadable
from protocol.otlp.reading import open_envelope
from protocol.rest.query import jsonable
from protocol.text import clean_value
from svc.domain.detect.secrets.masking import masked_value
from svc.domain.intake.envelope_size import fields_within
from svc.domain.intake.payload import payload_of
from svc.store.postgres.rows import PREVIEWS
from svc.store.spans.payloads import Envelopes

#: What a page shows of a payload, in place of the previews.
PAYLOAD_FIELDS: Final = ("input", "output", "attributes", "provided_usage", "events", "links")

#: Fields of all envelopes that are opened for one answer; each becomes an object or two.
MOST_FIELDS: Final = 100_000

#: The room of an answer when nobody says otherwise (contract §5).
ROOM_BYTES: Final = 8 * 1024 * 1024

#: Threads that open payloads: two leave a core to those who ask for less.
_openers: Final = trio.CapacityLimiter(2)
#: Payloads up to this size, together, are opened and encoded on the loop: 8 ms at worst, a tenth of one as
#: a rule, where a thread costs half a millisecond of waking and waiting (measured 2026-11-28).
SHORT_BYTES: Final = 32 * 1024


@attrs.define
class Opening:
    """How many bytes of payloads may still be opened, for one answer or for all of a batch.

    What is opened and then has no room costs as much as what is shown (a second for 4 MiB of short messages,
    November 2026), and leaves nothing in the answer to count it by.
    """

    left_bytes: int = ROOM_BYTES

    def take(self, size_bytes: int) -> bool:
        """Whether so much may be opened; then it is counted."""
        allowed = size_bytes <= self.left_bytes
        self.left_bytes -= size_bytes * allowed
        return allowed


def answer_bytes(encoded: bytes) -> int:
    """What JSON takes in an answer of a tool, where it stands twice: as it is and quoted inside a text."""
    return 2 * len(encoded) + encoded.count(b'"') + encoded.count(b"\\")


def openable_bytes(room_bytes: int) -> int:
    """How long payloads may be, together, that such a room shows: what they say stands there twice."""
    return room_bytes // 2


@attrs.frozen
class PayloadRows:
    """Rows, what each shows without a payload, and the envelopes of those that still have one."""

    rows: Sequence[Any]
    fields: Callable[[Any, bool], dict[str, Any]]
    envelopes: Envelopes

    async def shown(
        self, room_bytes: int, *, every_field: bool = False, opening: Opening | None = None
    ) -> list[dict[str, Any]]:
        """The rows with their payloads, in their order, as far as there is room.

        `every_field` shows everything that is known of a payload and keeps the previews; one that is longer
        than half the room is opened as well, for those of its fields that fit. Cancellation: is waited for by
        the thread, which ends with the room.
        """
        opening = opening or Opening(room_bytes)
        if sum(len(one) for one in self.envelopes.values() if isinstance(one, bytes)) <= SHORT_BYTES:
            return self._shown(room_bytes, every_field, opening)
        return await trio.to_thread.run_sync(self._shown, room_bytes, every_field, opening, limiter=_openers)

    def _shown(self, room_bytes: int, every_field: bool, opening: Opening) -> list[dict[str, Any]]:
        answers: list[dict[str, Any]] = []
        room = _Room(room_bytes, opening)
        for row in self.rows:
            envelope = self.envelopes.get((row["trace_id"], row["span_id"]))
            fields = self.fields(row, envelope is not None)
            room.take(fields)
            answers.append(fields)
        for row, fields in zip(self.rows, answers, strict=True):
            envelope = self.envelopes.get((row["trace_id"], row["span_id"]))
            payload = (
                dict.fromkeys(PAYLOAD_FIELDS) if envelope is None else room.payload(envelope, every_field)
            )
            fields |= payload
            if not every_field and "payload_truncated" not in payload:
                for name in PREVIEWS:
                    del fields[name]
        return answers


class _Room:
    """What is left of one answer."""

    def __init__(self, size_bytes: int, opening: Opening) -> None:
        self._bytes, self._fields, self._opening = size_bytes, MOST_FIELDS, opening

    def take(self, value: Any) -> bool:
        """Whether a value fits; then it is counted."""
        size = answer_bytes(msgspec.json.encode(value, enc_hook=jsonable))
        fits = size <= self._bytes
        if fits:
            self._bytes -= size
        return fits

    def payload(self, envelope: bytes | int, every_field: bool) -> dict[str, Any]:
        """The payload of an envelope, null where there is no room."""
        size = envelope if isinstance(envelope, int) else len(envelope)
        nothing = _cut(dict.fromkeys(PAYLOAD_FIELDS), PAYLOAD_FIELDS, size)
        if isinstance(envelope, int) or size > (self._bytes if every_field else openable_bytes(self._bytes)):
            return nothing
        fields = fields_within(envelope, self._fields)
        if fields is None or not self._opening.take(size):
            return nothing
        self._fields -= fields
        try:
            values = said_in(envelope)
        except Unreadable:
            return {**dict.fromkeys(PAYLOAD_FIELDS), "payload_available": False}
        names = tuple(values) if every_field else PAYLOAD_FIELDS
        payload, missing = {}, []
        for name in names:
            fits = self.take({name: values[name]})
            payload[name] = values[name] if fits else None
            if not fits:
                missing.append(name)
        return _cut(payload, missing, size) if missing else payload


def said_in(envelope: bytes) -> dict[str, Any]:
    """Everything a span said, as `intake.payload` reads it, secrets hidden. Raises `Unreadable`."""
    cleaned: dict[str, Any] = clean_value(payload_of(open_envelope(envelope)))
    return {name: masked_value(value) for name, value in cleaned.items()}


def _cut(shown: Mapping[str, Any], missing: Sequence[str], size_bytes: int) -> dict[str, Any]:
    return {**shown, "payload_truncated": {"size_bytes": size_bytes, "missing": list(missing)}}
