"""Opaque keyset cursors: the place of the last row of a page, bound to the list it came from.

Owns their form. A cursor that cannot be read, is stale or belongs to another list reads as None, which means
the newest page (spec, tool rule 10). Never holds more than the key of one row.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Final, Literal
from uuid import UUID

import attrs
import msgspec

from protocol.rest.query import jsonable

KeyType = Literal["moment", "bytes", "uuid", "text", "integer", "small integer", "big integer"]


def _moment(value: object) -> datetime:
    return datetime.strptime(str(value), "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=UTC)


def _integer(bits: int) -> Callable[[object], int]:
    """Reads a number that PostgreSQL's signed integer of so many bits can be compared with."""

    def read(value: object) -> int:
        if type(value) is not int or not 0 <= value < 2 ** (bits - 1):
            raise ValueError
        return value

    return read


def _text(value: object) -> str:
    if type(value) is not str or "\x00" in value:
        raise ValueError
    return value


_READERS: Final[dict[KeyType, Callable[[object], Any]]] = {
    "moment": _moment,
    "bytes": lambda value: bytes.fromhex(str(value)),
    "uuid": lambda value: UUID(str(value)),
    "text": _text,
    "integer": _integer(32),
    "small integer": _integer(16),
    "big integer": _integer(64),
}


@attrs.frozen
class Keyset:
    """The order of one list: its name, and the columns of its key with their types."""

    name: str
    columns: tuple[tuple[str, KeyType], ...]

    def cursor(self, row: Any) -> str:
        """The cursor behind a row."""
        packed = msgspec.json.encode([self.name, *(jsonable(row[column]) for column, _ in self.columns)])
        return urlsafe_b64encode(packed).rstrip(b"=").decode()

    def place(self, cursor: str | None) -> list[Any] | None:
        """The key behind a cursor, or None for the newest page."""
        if not cursor:
            return None
        try:
            padded = cursor.encode("ascii") + b"=" * (-len(cursor) % 4)
            name, *values = msgspec.json.decode(urlsafe_b64decode(padded), type=list[str | int])
            if name != self.name or len(values) != len(self.columns):
                return None
            return [_READERS[kind](value) for (_, kind), value in zip(self.columns, values, strict=True)]
        except (ValueError, Base64Error, msgspec.DecodeError, UnicodeError, OverflowError):
            return None

    def page(self, rows: Sequence[Any], limit: int) -> tuple[Sequence[Any], str | None]:
        """The page of rows that were read with one row more, and the cursor behind it if there is more."""
        page_rows = rows[:limit]
        return page_rows, self.cursor(page_rows[-1]) if len(rows) > limit else None
