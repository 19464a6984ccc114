"""Small pictures for the demo's messages: a receipt and a bar chart as PNG files of a few hundred bytes.

Called by the two applications of the demo's story. Pure: the same figures give the same bytes. Never reads a
file and needs no library of pictures: a PNG file is a header and rows of pixels that zlib has packed.
"""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Sequence
from typing import Final

import attrs

#: Signs of three by five pixels, a row an octal digit.
_SIGNS: Final = {
    **{"0": "75557", "1": "26227", "2": "71747", "3": "71717", "4": "55711", "5": "74717", "6": "74757"},
    **{"7": "71111", "8": "75757", "9": "75717", ".": "00002", "A": "75755", "C": "74447", "E": "74647"},
    **{"H": "55755", "I": "72227", "L": "44447", "O": "75557", "P": "75744", "Q": "75573", "R": "76655"},
    **{"S": "74717", "T": "72222"},
}
_PAPER: Final = 250
_INK: Final = 40
_SOFT: Final = 170
_BAR: Final = 110


@attrs.define(eq=False)
class _Canvas:
    """Grey pixels, row by row."""

    width: int
    height: int
    rows: list[bytearray] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.rows = [bytearray([_PAPER] * self.width) for _ in range(self.height)]

    def fill(self, x: int, y: int, width: int, height: int, grey: int) -> None:
        """Paint a rectangle."""
        for row in self.rows[y : y + height]:
            row[x : x + width] = bytes([grey]) * len(row[x : x + width])

    def write(self, text: str, x: int, y: int, scale: int = 2) -> None:
        """Write signs from left to right; one without a form is a space."""
        for sign in text:
            for line, bits in enumerate(_SIGNS.get(sign, "00000")):
                for column in range(3):
                    if int(bits) >> (2 - column) & 1:
                        self.fill(x + column * scale, y + line * scale, scale, scale, _INK)
            x += 4 * scale

    def png(self) -> bytes:
        """The file."""
        pixels = b"".join(b"\0" + bytes(row) for row in self.rows)
        header = struct.pack(">IIBBBBB", self.width, self.height, 8, 0, 0, 0, 0)
        chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(pixels, 9)), (b"IEND", b""))
        return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(name, body) for name, body in chunks)


def _chunk(name: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


def receipt(order: int, cents: int) -> bytes:
    """A shop's receipt on which one item was charged twice."""
    canvas = _Canvas(132, 124)
    canvas.write("SHOP", 34, 10, 4)
    canvas.write(f"{order}", 50, 38)
    canvas.fill(10, 54, 112, 1, _SOFT)
    for line in range(2):
        canvas.write("COAT", 12, 62 + 14 * line)
        canvas.write(f"{cents / 100:7.2f}", 64, 62 + 14 * line)
    canvas.fill(10, 92, 112, 1, _SOFT)
    canvas.write("TOTAL", 12, 100)
    canvas.write(f"{2 * cents / 100:7.2f}", 64, 100)
    return canvas.png()


def bar_chart(values: Sequence[int]) -> bytes:
    """One bar a quarter, each with its value above and its quarter below."""
    canvas = _Canvas(30 + 44 * len(values), 128)
    highest = max(values)
    for quarter, value in enumerate(values):
        x, height = 20 + 44 * quarter, 76 * value // highest
        canvas.fill(x, 104 - height, 30, height, _BAR)
        canvas.write(f"{value}", x + 15 - 4 * len(f"{value}"), 90 - height)
        canvas.write(f"Q{quarter + 1}", x + 7, 112)
    canvas.fill(10, 104, canvas.width - 20, 2, _INK)
    return canvas.png()


def as_base64(picture: bytes) -> str:
    """A file as messages carry it."""
    return base64.b64encode(picture).decode()
