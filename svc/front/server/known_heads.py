"""Heads of messages that an HTTP/2 connection has carried before: unpacked, checked and packed once.

Owns what stands in for h2's way with them; the HTTP/2 of both fronts puts it there
(`svc.front.server.streams`, `svc.front.otlp.grpc_connection`). Clients that say nothing new in a head send
the same block again, and get the same back: h2 took 275 µs of a core for the two heads of a small request,
most of it for what it had just done for the one before (measured 2026-11-30). A block of HPACK that leaves
the table of its connection as it was means the same until something else changes that table, and what was
found to be a proper head is one the next time. All that h2 and hpack check for the HTTP door, `KnownHeads`
checks still, before a head is remembered; grpclib has h2 check no head, here as elsewhere. Never looks into a
body.

Secrets: heads hold keys. Remembered ones are kept as long as their connection, also those that their sender
keeps out of the table of HPACK.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, Generic, TypeVar

from h2.connection import H2Connection
from h2.utilities import (
    HeaderValidationFlags,
    normalize_inbound_headers,
    normalize_outbound_headers,
    validate_headers,
    validate_outbound_headers,
)
from hpack import Decoder, Encoder, HeaderTuple
from hpack.table import HeaderTable

#: Heads of one kind that a connection remembers; when there are more, it begins anew.
MOST_HEADS: Final = 4
#: What a remembered head may weigh, counted as HPACK counts (RFC 7541 §4.1): a tiny field takes memory too.
MOST_HEAD_BYTES: Final = 2 * 1024
_FIELD_BYTES: Final = 32

Head = tuple[tuple[bytes, bytes], ...]
Said = TypeVar("Said")
Meant = TypeVar("Meant")

_REQUEST: Final = HeaderValidationFlags(
    is_client=False, is_trailer=False, is_response_header=False, is_push_promise=False
)
_ANSWER: Final = HeaderValidationFlags(
    is_client=False, is_trailer=False, is_response_header=True, is_push_promise=False
)
#: Of a request and of an answer alike.
_END: Final = HeaderValidationFlags(
    is_client=False, is_trailer=True, is_response_header=False, is_push_promise=False
)


def is_small(head: Iterable[tuple[bytes, bytes]]) -> bool:
    """Whether a head may be remembered."""
    return sum(len(name) + len(value) + _FIELD_BYTES for name, value in head) <= MOST_HEAD_BYTES


class Remembered(Generic[Said, Meant]):
    """What the last few heads, or their blocks, came to mean."""

    def __init__(self) -> None:
        self._heads: dict[Said, Meant] = {}
        self.get = self._heads.get

    def add(self, head: Said, meaning: Meant) -> None:
        """Remember it, in place of all others when there are too many."""
        if len(self._heads) >= MOST_HEADS:
            self._heads.clear()
        self._heads[head] = meaning


class CountedTable(HeaderTable):
    """The table of HPACK, which counts how often it has changed."""

    def __init__(self) -> None:
        super().__init__()
        self.changes = 0

    def add(self, name: bytes, value: bytes) -> None:
        """Put an entry before all others, whose numbers change with it."""
        self.changes += 1
        super().add(name, value)

    @property
    def maxsize(self) -> int:
        """What its entries may weigh."""
        return self._maxsize

    @maxsize.setter
    def maxsize(self, size_bytes: int) -> None:
        self.changes += 1
        HeaderTable.maxsize.fset(self, size_bytes)  # type: ignore[attr-defined]


class HeadDecoder(Decoder):
    """hpack's, which unpacks a block once for as long as its table stays as it is."""

    def __init__(self) -> None:
        super().__init__()
        self.header_table = self._table = CountedTable()
        #: By how often the table had changed, and the block.
        self._heads: Remembered[tuple[int, bytes], Iterable[HeaderTuple]] = Remembered()

    def decode(self, data: bytes, raw: bool = False) -> Iterable[HeaderTuple]:
        """The head in a block. Raises what hpack raises."""
        assert raw, "h2 asks for bytes"
        changes = self._table.changes
        head = self._heads.get((changes, data))
        if head is None:
            head = tuple(super().decode(data, raw))
            if changes == self._table.changes and is_small(head):
                self._heads.add((changes, data), head)
        return head


class HeadEncoder(Encoder):
    """hpack's, which packs a head once for as long as its table stays as it is."""

    def __init__(self) -> None:
        super().__init__()
        self.header_table = self._table = CountedTable()
        #: By how often the table had changed, and the head.
        self._blocks: Remembered[tuple[int, Head], bytes] = Remembered()

    def encode(self, headers: Iterable[Any], huffman: bool = True) -> bytes:
        """The block of a head."""
        assert huffman, "h2 asks for the shortest"
        head, changes = tuple(headers), self._table.changes
        if self._table.resized:
            # The first block after a change of the table's size tells the client of it.
            return super().encode(head, huffman)
        block = self._blocks.get((changes, head))
        if block is None:
            block = super().encode(head, huffman)
            if changes == self._table.changes and is_small(head):
                self._blocks.add((changes, head), block)
        return block


def remember_heads(connection: H2Connection) -> None:
    """Have a connection unpack and pack its heads so. Before its first frame."""
    decoder = HeadDecoder()
    decoder.max_header_list_size = connection.decoder.max_header_list_size
    decoder.max_allowed_table_size = connection.decoder.max_allowed_table_size
    connection.decoder, connection.encoder = decoder, HeadEncoder()


class KnownHeads:
    """Judges the heads of one connection in the place of h2, which leaves it to this."""

    def __init__(self, connection: H2Connection) -> None:
        remember_heads(connection)
        connection.config.validate_inbound_headers = connection.config.normalize_inbound_headers = False
        connection.config.validate_outbound_headers = connection.config.normalize_outbound_headers = False
        self._requests: Remembered[Head, Head] = Remembered()
        self._answers: Remembered[Head, Head] = Remembered()

    def request(self, headers: Iterable[tuple[bytes, bytes]]) -> Head:
        """The head of a request as h2 hands it on. Raises `ProtocolError` of one that is not proper."""
        head = tuple(headers)
        proper = self._requests.get(head)
        if proper is None:
            joined = normalize_inbound_headers(head, _REQUEST)
            proper = _kept(self._requests, head, validate_headers(joined, _REQUEST))
        return proper

    def request_end(self, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """Check what comes after the body of a request. Raises `ProtocolError`."""
        for _ in validate_headers(normalize_inbound_headers(headers, _END), _END):
            pass

    def answer(self, headers: Iterable[tuple[bytes, bytes]]) -> Head:
        """The head of an answer as h2 sends it. Raises `ProtocolError` of one that cannot be sent."""
        head = tuple(headers)
        proper = self._answers.get(head)
        if proper is None:
            lowered = normalize_outbound_headers(head, _ANSWER, should_split_outbound_cookies=False)
            proper = _kept(self._answers, head, validate_outbound_headers(lowered, _ANSWER))
        return proper

    def answer_end(self, headers: Iterable[tuple[bytes, bytes]]) -> Head:
        """What comes after the body of an answer, as h2 sends it. Raises `ProtocolError`."""
        lowered = normalize_outbound_headers(headers, _END, should_split_outbound_cookies=False)
        return tuple(validate_outbound_headers(lowered, _END))


def _kept(heads: Remembered[Head, Head], head: Head, checked: Iterable[tuple[bytes, bytes]]) -> Head:
    proper = tuple(checked)
    if is_small(head):
        heads.add(head, proper)
    return proper
