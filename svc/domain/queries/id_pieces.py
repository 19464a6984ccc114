"""Ids by any piece of their hexadecimal form: the signature of many ids, by which most of those that lack a
piece are passed over, and the search in what is left.

Pure. A signature never lies: where it lacks a mark of a piece, no id has the piece. The index of ids of
traces, and whoever asks it, call it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from svc.domain.lazy_numpy import np

#: Bytes of an id, and characters of the pieces that are marked: one of five stands in one of 40,000 ids, one
#: of four in one of 2,300, which fill a page soon enough without any signature.
ID_BYTES: Final = 16
PIECE: Final = 5
#: Marks that are asked for of a piece; shorter ones have fewer, and repeat them.
MARKS: Final = 4

_CHARS: Final = 2 * ID_BYTES
#: A signature has at least so many bits an id. With half of them a million ids took a quarter less room, and
#: a piece of six characters left three times as much to be looked through (measured November 2026).
_BITS_AN_ID: Final = 128
_MOST_BITS: Final = 16**PIECE


def signature(ids: bytes) -> bytes:
    """One bit for each piece of five characters of these ids, by its number; a power of two of them."""
    pairs = np.frombuffer(ids, np.uint8).reshape(-1, ID_BYTES)
    chars = np.empty((len(pairs), _CHARS), np.uint32)
    chars[:, 0::2], chars[:, 1::2] = pairs >> 4, pairs & 15
    places = _CHARS - PIECE + 1
    pieces: Any = chars[:, :places]
    for offset in range(1, PIECE):
        pieces = pieces << 4 | chars[:, offset : offset + places]
    bits = min(1 << (_BITS_AN_ID * len(pairs) - 1).bit_length(), _MOST_BITS)
    marked = np.zeros(bits, bool)
    marked[pieces & (bits - 1)] = True
    return np.packbits(marked, bitorder="little").tobytes()


def marks(part: str) -> list[int]:
    """The numbers of some of the pieces of a part, which is of five hexadecimal characters or more.

    The bit of a number is the number within the length of the signature.
    """
    last_offset = len(part) - PIECE
    offsets = (last_offset * mark // (MARKS - 1) for mark in range(MARKS))
    return [int(part[offset : offset + PIECE], 16) for offset in offsets]


def having(ids: bytes, part: str) -> Iterator[bytes]:
    """Those of these ids that have the part, in lower case; one that has it twice may come twice."""
    digits = ids.hex()
    offset = digits.find(part)
    while offset >= 0:
        number = offset // _CHARS
        # What begins in one id and ends in the next is in neither.
        if (offset + len(part) - 1) // _CHARS == number:
            yield ids[number * ID_BYTES : (number + 1) * ID_BYTES]
        offset = digits.find(part, offset + 1)
