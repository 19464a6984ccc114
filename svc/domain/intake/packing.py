"""Payloads on disk: spans as they came, without the texts that other spans of their day brought already.

Agents resend the whole conversation each turn, so plain payloads grow with the square of its length. Here a
text that was seen before on the same day, in the same project, leaves the payload and becomes a message that
is stored once and referred to by its hash. The first sight stays inline: what is never repeated costs no row.
But once a list brings two known messages, it is a history that comes again, and what follows in the span is
stored at once. Measured November 2026, twenty turns of 2 KB that resend their history (`make bench-disk`):
the whole database grew by 0.27 of what was sent, since then and since decoders share what they saw by 0.16.

Spans of one trace that are written together share a frame, because they repeat each other in everything
else: measured November 2026, ten spans of 4 KB took 3.5 µs and 190 bytes each in one frame, 18 µs and 670
bytes each in frames of their own.

Owns: `Packer`, `Seen` and `frames` (the hot side), `Frame` (the read side) and the format between them. What
a frame gives is each span byte for byte. Never touches the database: the store keeps frames and messages.

Format: a zstd frame of MessagePack `[2, [[span_id, hashes, literals], …], [[length, …], …]]`. The envelope of
a span is literal 0, message 0, literal 1, message 1, … and the last literal. The third part is there where a
history is repeated, and releases before it pass it over: for each span the lengths of its messages that
users, models and tools said in a history, 0 for any other. Who wants of a history only what the system says
does without those (`Frame.lean`). Version 1 was `[1, hashes, literals]`, the only span of its frame.
Versions are for ever.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import date
from hashlib import sha256
from mmap import mmap
from typing import Any, Final

import msgspec
import zstandard
from xxhash import xxh3_64_intdigest

from protocol.decoding import SEEN_BYTES
from protocol.inflate import Unreadable
from protocol.otlp.reading import WireSpan, envelope, open_envelope
from svc.domain.spans.conversation_history import HISTORY_KEY, said_by_others, stand_in

_VERSION: Final = 2
_ONE_SPAN_VERSION: Final = 1
_HASH_BYTES: Final = 16

#: Shorter texts stay inline: a reference and its row would cost more than they save.
_LEAST_BYTES: Final = 200

#: How many bytes of a text are looked for first, and how often they may deceive.
_HEAD_BYTES: Final = 40
_HEAD_TRIES: Final = 16

#: Level 1: frames of three kinds of traffic are 2 to 3 % smaller at level 3 for 10 to 46 % more time, and
#: messages under 1 % for 7 to 14 % (measured November 2026; deploy/BENCHMARKS.md has all levels).
_LEVEL: Final = 1

#: What makes an unsigned integer of 64 bits a signed one, as PostgreSQL has them.
_HALF: Final = 1 << 63

#: A frame takes no further span from here on: whoever reads one span inflates the frame.
_FRAME_BYTES: Final = 128 * 1024

#: Texts up to this long are remembered with their digests, so many bytes of them: what comes again lately, as
#: each turn of a conversation does, is compared instead of hashed (0.1 µs instead of 0.9 for 1 KB).
_NAMED_TEXT_BYTES: Final = 2048
_NAMED_BYTES: Final = 4 * 1024 * 1024

_NO_LENGTHS: Final[list[int]] = []

#: So many known messages in one list are a history; what follows in its span is stored at first sight.
_HISTORY: Final = 2

#: A stored frame may claim no more than this; bodies are bounded far below at the doors.
_FRAME_BOUND_BYTES: Final = 2**31

#: Either serves one thread at a time: frames are made and opened on the event loop.
_compress: Final = zstandard.ZstdCompressor(level=_LEVEL).compress

_decompress: Final = zstandard.ZstdDecompressor().decompress

#: Hashes, joined, and literals.
_Entry = tuple[bytes, list[bytes]]
_raw_frame: Final = msgspec.msgpack.Decoder(list[msgspec.Raw])
_entries: Final = msgspec.msgpack.Decoder(list[tuple[bytes, bytes, list[bytes]]])
_bytes: Final = msgspec.msgpack.Decoder(bytes)
_all_bytes: Final = msgspec.msgpack.Decoder(list[bytes])
_all_lengths: Final = msgspec.msgpack.Decoder(list[list[int]])
_raw_list = msgspec.json.Decoder(list[msgspec.Raw])


class Parts(msgspec.Struct, eq=False, gc=False):
    """A span without what was seen before, and those messages, by hash. Not frozen: one for each span.

    `others` are the lengths of what others than the system said in a history, by the place of the hash, 0 for
    any other message; what lies behind the last is 0 too. `digest` is that of the whole span, a signed
    integer of 64 bits: of two with one identity it says whether they are the same to the byte.
    """

    hashes: bytes
    literals: list[bytes]
    messages: dict[bytes, bytes]
    digest: int
    others: list[int] | None = None


class Seen:
    """Which texts were seen lately: a table of fixed size, where a newer text may take an older one's place.

    Decoder processes share one `memory` of `SEEN_BYTES`; a process without one has its own. Nothing hangs on
    an answer but size: a text taken for seen is stored as a message, another stays inline. So nobody locks,
    and a slot that two write at once does no harm.
    """

    def __init__(self, memory: mmap | None = None) -> None:
        self.slots = memoryview(memory or mmap(-1, SEEN_BYTES)).cast("Q")


class Packer:
    """Takes spans apart and remembers what it has seen. One for a process; called by the decoder alone."""

    def __init__(self, seen: Seen | None = None) -> None:
        self._slots = (seen or Seen()).slots
        #: By marks: texts that came again lately, their digests, and whether `said_by_others` says so.
        self._named: dict[int, tuple[bytes, bytes, bool]] = {}
        self._named_bytes = 0

    def take_apart(self, project_id: int, day: date, span: WireSpan) -> Parts:
        """The parts of a span that starts on `day`, in UTC."""
        body = envelope(span)
        slots = self._slots
        mask = len(slots) - 1
        # Of integers alone, whose hashes are the same in every process.
        where = hash((project_id, day.toordinal())) & 0xFFFF_FFFF_FFFF_FFFF
        literals: list[bytes] = []
        hashes: list[bytes] = []
        messages: dict[bytes, bytes] = {}
        position = 0
        repeats = 0
        lengths: list[int] | None = None
        lists, history = _texts(span)
        for list_index, texts in enumerate(lists):
            if repeats < _HISTORY:
                repeats = 0
            for text in texts:
                # SHA-256 names what is stored; it is asked for what came before alone, this for every text.
                mark = xxh3_64_intdigest(text, where)
                if slots[mark & mask] == mark:
                    repeats += 1
                else:
                    slots[mark & mask] = mark
                    if repeats < _HISTORY:
                        continue
                start = _find(body, text, position)
                if start < 0:
                    continue
                entry = self._named.get(mark)
                if entry is None or entry[0] != text:
                    entry = self._name(mark, text)
                if entry[2] and list_index == history:
                    if lengths is None:
                        lengths = []
                    while len(lengths) < len(hashes):
                        lengths.append(0)
                    lengths.append(len(text))
                digest = entry[1]
                literals.append(body[position:start])
                hashes.append(digest)
                messages[digest] = text
                position = start + len(text)
        literals.append(body[position:])
        return Parts(b"".join(hashes), literals, messages, xxh3_64_intdigest(body) - _HALF, lengths)

    def _name(self, mark: int, text: bytes) -> tuple[bytes, bytes, bool]:
        """A text with the digest that names it, see `_named`; a shorter one is remembered so."""
        entry = (text, sha256(text).digest()[:_HASH_BYTES], said_by_others(text))
        if len(text) <= _NAMED_TEXT_BYTES:
            if self._named_bytes > _NAMED_BYTES:
                self._named.clear()
                self._named_bytes = 0
            self._named[mark] = entry
            self._named_bytes += len(text)
        return entry


def _find(body: bytes, text: bytes, start: int) -> int:
    """Where the text begins at or after `start`, -1 for nowhere.

    The search that Python uses for long needles costs 6 µs for each of 1 KB (measured November 2026), a
    search for its head and a comparison next to nothing. Texts with many false heads get the long one.
    """
    head = text[:_HEAD_BYTES]
    for _ in range(_HEAD_TRIES):
        start = body.find(head, start)
        if start < 0 or body.startswith(text, start):
            return start
        start += 1
    return body.find(text, start)


def _texts(span: WireSpan) -> tuple[list[list[bytes]], int]:
    """The parts of a span that another span may repeat, list by list, in the order of the envelope; and which
    of the lists is the history, -1 for none.
    """
    texts: list[list[bytes]] = []
    if len(span.resource.raw) >= _LEAST_BYTES:
        texts.append([span.resource.raw])
    history = _add_texts(texts, span.attributes)
    for event in span.events:
        _add_texts(texts, event.attributes)
    return texts, history


def _add_texts(texts: list[list[bytes]], attributes: dict[str, Any]) -> int:
    history = -1
    for key, value in attributes.items():
        if type(value) is str and len(value) >= _LEAST_BYTES:
            if key == HISTORY_KEY:
                history = len(texts)
            texts.append(_pieces(value))
    return history


def _pieces(text: str) -> list[bytes]:
    """A JSON array piece by piece, because a conversation grows by its last messages; other texts whole."""
    data = text.encode("utf-8")
    if text[0] == "[":
        try:
            return [bytes(piece) for piece in _raw_list.decode(data) if len(piece) >= _LEAST_BYTES]
        except msgspec.DecodeError:
            pass
    return [data]


def pack_message(text: bytes) -> bytes:
    """A message as it is stored."""
    return _compress(text)


def unpack_messages(stored: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
    """The texts of stored messages, by hash; a damaged one is as good as gone."""
    texts: dict[bytes, bytes] = {}
    for digest, body in stored.items():
        with suppress(Unreadable):
            texts[digest] = _inflated(body)
    return texts


def frames(spans: Iterable[tuple[bytes, Parts]]) -> Iterator[tuple[list[bytes], bytes]]:
    """The frames of spans of one trace and day, given with their ids: the ids in each, and its body."""
    entries: list[tuple[bytes, bytes, list[bytes]]] = []
    lengths: list[list[int]] = []
    size = 0
    for span_id, parts in spans:
        entries.append((span_id, parts.hashes, parts.literals))
        lengths.append(parts.others or _NO_LENGTHS)
        size += sum(map(len, parts.literals))
        if size >= _FRAME_BYTES:
            yield [entry[0] for entry in entries], _framed(entries, lengths)
            entries, lengths, size = [], [], 0
    if entries:
        yield [entry[0] for entry in entries], _framed(entries, lengths)


def _framed(entries: list[tuple[bytes, bytes, list[bytes]]], lengths: list[list[int]]) -> bytes:
    pieces = [_VERSION, entries, lengths] if any(lengths) else [_VERSION, entries]
    return _compress(msgspec.msgpack.encode(pieces))


class Frame:
    """An opened frame. Opening it raises `Unreadable`."""

    def __init__(self, body: bytes) -> None:
        self._entries: dict[bytes, _Entry] = {}
        self._others: dict[bytes, list[int]] = {}
        self._only: _Entry | None = None
        try:
            pieces = _raw_frame.decode(_inflated(body))
            version = msgspec.msgpack.decode(pieces[0])
            if version == _VERSION:
                for span_id, hashes, literals in _entries.decode(pieces[1]):
                    self._entries[span_id] = (hashes, literals)
                if len(pieces) > 2 and len(lengths := _all_lengths.decode(pieces[2])) == len(self._entries):
                    self._others = dict(zip(self._entries, lengths, strict=True))
            elif version == _ONE_SPAN_VERSION:
                self._only = (_bytes.decode(pieces[1]), _all_bytes.decode(pieces[2]))
            else:
                raise Unreadable("the payload was written by a later release")
        except (msgspec.DecodeError, IndexError):
            raise Unreadable("the payload is damaged") from None

    def needed(self, span_ids: Iterable[bytes] | None = None, *, lean: bool = False) -> set[bytes]:
        """The hashes of the messages that these spans refer to, of all spans when none are named; without
        those that `lean` does without.
        """
        if self._only is not None:
            return set(_split(self._only[0]))
        digests: set[bytes] = set()
        for span_id in self._entries if span_ids is None else span_ids:
            if (entry := self._entries.get(span_id)) is not None:
                hashes = _split(entry[0])
                if lean and (lengths := self._others.get(span_id)):
                    digests.update(
                        [digest for index, digest in enumerate(hashes) if not _length(lengths, index)]
                    )
                else:
                    digests.update(hashes)
        return digests

    def span(self, span_id: bytes, messages: Mapping[bytes, bytes]) -> WireSpan:
        """A span of it; `messages` are the texts of the stored ones by hash. Raises `Unreadable`."""
        return open_envelope(self.envelope(span_id, messages))

    def lean(self, span_id: bytes, messages: Mapping[bytes, bytes]) -> tuple[WireSpan, int]:
        """A span in whose history one stands in wherever users, models and tools repeat themselves, and how
        many there are: as good for whoever asks only what the system says there. Raises `Unreadable`.
        """
        data, spared = self.lean_envelope(span_id, messages)
        return open_envelope(data), spared

    def lean_envelope(self, span_id: bytes, messages: Mapping[bytes, bytes]) -> tuple[bytes, int]:
        """The same, not opened. Raises `Unreadable`."""
        if not (lengths := self._others.get(span_id)):
            return self.envelope(span_id, messages), 0
        hashes, literals = self._entry(span_id)
        parts, spared = [literals[0]], 0
        for index, digest in enumerate(_split(hashes)):
            if length := _length(lengths, index):
                spared += 1
                parts.append(stand_in(length))
            elif (message := messages.get(digest)) is None:
                raise Unreadable("a message of the payload is gone")
            else:
                parts.append(message)
            parts.append(literals[index + 1])
        return b"".join(parts), spared

    def envelope(self, span_id: bytes, messages: Mapping[bytes, bytes]) -> bytes:
        """The span as it came, not opened. Raises `Unreadable`."""
        hashes, literals = self._entry(span_id)
        if not hashes:
            return literals[0]
        parts = [literals[0]]
        for digest, literal in zip(_split(hashes), literals[1:], strict=True):
            if (message := messages.get(digest)) is None:
                raise Unreadable("a message of the payload is gone")
            parts.append(message)
            parts.append(literal)
        return b"".join(parts)

    def literals(self, span_id: bytes) -> list[bytes]:
        """What stands before, between and behind the messages of a span. Raises `Unreadable`."""
        return self._entry(span_id)[1]

    def envelope_bytes(self, span_id: bytes, message_bytes: Mapping[bytes, int]) -> int:
        """How long the envelope of a span is; `message_bytes` says it of messages. Raises `Unreadable`."""
        hashes, literals = self._entry(span_id)
        try:
            # A text that a span repeats is stored once and stands in the envelope as often as it came.
            text_bytes = sum(message_bytes[digest] for digest in _split(hashes))
        except KeyError:
            raise Unreadable("a message of the payload is gone") from None
        return text_bytes + sum(map(len, literals))

    def _entry(self, span_id: bytes) -> _Entry:
        entry = self._entries.get(span_id, self._only)
        if entry is None:
            raise Unreadable("the frame does not hold the span")
        return entry


def _length(lengths: list[int], index: int) -> int:
    """How long a message is that a lean span does without, 0 for one that it needs."""
    length = lengths[index] if index < len(lengths) else 0
    # Whatever stands in a damaged frame.
    return length if length >= _LEAST_BYTES else 0


def _split(hashes: bytes) -> list[bytes]:
    return [hashes[start : start + _HASH_BYTES] for start in range(0, len(hashes), _HASH_BYTES)]


#: The beginning of a stored text that says how long it is when it is inflated (RFC 8878, 3.1.1.1).
HEAD_BYTES: Final = 18


def inflated_bytes(head: bytes) -> int:
    """How long a stored frame or message is, by its first `HEAD_BYTES`; without inflating any of it."""
    try:
        size = zstandard.frame_content_size(head)
    except zstandard.ZstdError:
        return 0
    return max(size, 0)


def _inflated(frame: bytes) -> bytes:
    try:
        return _decompress(frame, max_output_size=_FRAME_BOUND_BYTES)
    except zstandard.ZstdError:
        raise Unreadable("a stored frame is damaged") from None
