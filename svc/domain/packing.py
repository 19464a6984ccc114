"""Payloads on disk: a span as it came, without the texts that other spans of its day brought already.

Agents resend the whole conversation each turn, so plain payloads grow with the square of its length. Here a
text that was seen before on the same day, in the same project, leaves the payload and becomes a message that
is stored once and referred to by its hash. The first sight stays inline: what is never repeated costs no row.

Owns: `Packer` (the hot side), `needed` and `unpack` (the read side) and the format between them. What
`unpack` gives is the span byte for byte. Never touches the database: the store keeps the messages.

Format: a zstd frame of MessagePack `[version, hashes, literals]`. The envelope is literal 0, message 0,
literal 1, message 1, … and the last literal. Versions are for ever.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from hashlib import sha256
from typing import Any, Final

import attrs
import msgspec
import zstandard

from protocol.inflate import Unreadable
from protocol.otlp import WireSpan, envelope, open_envelope

_VERSION: Final = 1
_HASH_BYTES: Final = 16

#: Shorter texts stay inline: a reference and its row would cost more than they save.
_LEAST_BYTES: Final = 200

#: How many bytes of a text are looked for first, and how often they may deceive.
_HEAD_BYTES: Final = 40
_HEAD_TRIES: Final = 16

#: Level 1: measured in November 2026, 20 µs for a 4 KB span; level 3 takes a fifth longer for 0.3 % less.
_LEVEL: Final = 1

#: How many texts a process remembers to have seen; 16 bytes each and Python's share, about 30 MB in all.
_SEEN_BOUND: Final = 200_000

#: A stored frame may claim no more than this; bodies are bounded far below at the doors.
_FRAME_BOUND_BYTES: Final = 2**31

_raw_list = msgspec.json.Decoder(list[msgspec.Raw])


@attrs.define(eq=False)
class Packed:
    """A payload and the messages it refers to, by hash. Not frozen: one is built for each span."""

    body: bytes
    messages: dict[bytes, bytes]


class Packer:
    """Packs spans and remembers what it has seen. One for a process; called by the decoder alone."""

    def __init__(self) -> None:
        self._seen: set[bytes] = set()
        self._seen_earlier: set[bytes] = set()
        self._compress = zstandard.ZstdCompressor(level=_LEVEL).compress

    def pack(self, project_id: int, day: date, span: WireSpan) -> Packed:
        """The payload of a span that starts on `day`, in UTC."""
        whole = envelope(span)
        where = b"%d.%d" % (project_id, day.toordinal())
        literals: list[bytes] = []
        hashes: list[bytes] = []
        messages: dict[bytes, bytes] = {}
        at = 0
        for text in _texts(span):
            digest = sha256(text).digest()[:_HASH_BYTES]
            if not self._was_seen(digest + where):
                continue
            found = _find(whole, text, at)
            if found < 0:
                continue
            literals.append(whole[at:found])
            hashes.append(digest)
            messages[digest] = text
            at = found + len(text)
        literals.append(whole[at:])
        frame = msgspec.msgpack.encode([_VERSION, b"".join(hashes), literals])
        return Packed(self._compress(frame), messages)

    def _was_seen(self, text: bytes) -> bool:
        """Whether the text was seen here, remembering it. Two generations make forgetting cheap."""
        if text in self._seen:
            return True
        seen = text in self._seen_earlier
        self._seen.add(text)
        if len(self._seen) >= _SEEN_BOUND // 2:
            self._seen_earlier, self._seen = self._seen, set()
        return seen


def _find(whole: bytes, text: bytes, start: int) -> int:
    """Where the text begins at or after `start`, -1 for nowhere.

    The search that Python uses for long needles costs 6 µs for each of 1 KB (measured November 2026), a
    search for its head and a comparison next to nothing. Texts with many false heads get the long one.
    """
    head = text[:_HEAD_BYTES]
    for _ in range(_HEAD_TRIES):
        start = whole.find(head, start)
        if start < 0 or whole.startswith(text, start):
            return start
        start += 1
    return whole.find(text, start)


def _texts(span: WireSpan) -> list[bytes]:
    """The parts of a span that another span may repeat, in the order of the envelope."""
    texts: list[bytes] = []
    if len(span.resource.raw) >= _LEAST_BYTES:
        texts.append(span.resource.raw)
    for value in span.attributes.values():
        if type(value) is str and len(value) >= _LEAST_BYTES:
            texts += _pieces(value)
    for event in span.events:
        for value in event.attributes.values():
            if type(value) is str and len(value) >= _LEAST_BYTES:
                texts += _pieces(value)
    return texts


def _pieces(text: str) -> list[bytes]:
    """A JSON array piece by piece, because a conversation grows by its last messages; other texts whole."""
    data = text.encode()
    if text[0] == "[":
        try:
            return [bytes(piece) for piece in _raw_list.decode(data) if len(piece) >= _LEAST_BYTES]
        except msgspec.DecodeError:
            pass
    return [data]


def pack_message(text: bytes) -> bytes:
    """A message as it is stored."""
    return zstandard.ZstdCompressor(level=_LEVEL).compress(text)


def needed(body: bytes) -> list[bytes]:
    """The hashes of the messages that a payload refers to. Raises `Unreadable`."""
    hashes: bytes = _opened(body)[1]
    return [hashes[start : start + _HASH_BYTES] for start in range(0, len(hashes), _HASH_BYTES)]


def unpack(body: bytes, messages: Mapping[bytes, bytes]) -> WireSpan:
    """The span behind a payload; `messages` are the stored frames by hash. Raises `Unreadable`."""
    literals: list[bytes] = _opened(body)[2]
    parts = [literals[0]]
    for digest, literal in zip(needed(body), literals[1:], strict=True):
        if digest not in messages:
            raise Unreadable("a message of the payload is gone")
        parts += (_inflated(messages[digest]), literal)
    return open_envelope(b"".join(parts))


def _opened(body: bytes) -> list[Any]:
    try:
        frame: list[Any] = msgspec.msgpack.decode(_inflated(body), type=list[Any])
    except msgspec.DecodeError:
        raise Unreadable("the payload is damaged") from None
    if frame[:1] != [_VERSION]:
        raise Unreadable("the payload was written by a later release")
    return frame


def _inflated(frame: bytes) -> bytes:
    try:
        return zstandard.ZstdDecompressor().decompress(frame, max_output_size=_FRAME_BOUND_BYTES)
    except zstandard.ZstdError:
        raise Unreadable("a stored frame is damaged") from None
