"""Rows of a file of CSV or JSON: names of columns and what stands in them.

Called by `exports`, which knows the columns. Numbers of JSON are decimal, as they were written.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from typing import Any, Final

#: The longest field that is looked into, and the longest whole number.
_FIELD_CHARS: Final = 128 * 1024
_DIGITS: Final = 30

Row = Mapping[str, Any]


class NoExport(Exception):
    """The text is no export that is known, or more than one may be. Its words are for whoever sent it."""


def rows_in(text: str) -> Iterator[Row]:
    """The rows of a file. Raises `NoExport` as they are read."""
    return _json_rows(text) if text.lstrip()[:1] in ("{", "[") else _csv_rows(text)


def _csv_rows(text: str) -> Iterator[Row]:
    head = text.partition("\n")[0]
    delimiter = max(",\t;", key=head.count)
    csv.field_size_limit(_FIELD_CHARS)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    try:
        columns = [column.strip() for column in next(reader, [])]
        for fields in reader:
            if fields:
                yield dict(zip(columns, (field.strip() for field in fields), strict=False))
    except csv.Error as error:
        raise NoExport(f"the file is no CSV: {error}") from None


def _json_rows(text: str) -> Iterator[Row]:
    """Rows of a list, of `data`, or of the buckets in it, which know the time; a row a line, too."""
    documents: Iterable[Any]
    try:
        documents = (json.loads(text, parse_float=Decimal, parse_int=_integer),)
    except (ValueError, RecursionError):
        documents = _json_lines(text)
    for document in documents:
        items = document.get("data", [document]) if isinstance(document, dict) else document
        for item in items if isinstance(items, list) else ():
            if not isinstance(item, dict):
                raise NoExport("the file is JSON, but no list of objects")
            results = item.get("results")
            if not isinstance(results, list):
                yield item
                continue
            moment = item.get("starting_at", item.get("start_time"))
            for result in results:
                if isinstance(result, dict):
                    yield {**result, "start": moment}


def _integer(digits: str) -> int:
    if len(digits) > _DIGITS:
        raise ValueError("a number of too many digits")
    return int(digits)


def _json_lines(text: str) -> Iterator[Any]:
    try:
        for line in text.splitlines():
            if line.strip():
                yield json.loads(line, parse_float=Decimal, parse_int=_integer)
    except (ValueError, RecursionError):
        raise NoExport("the file begins as JSON and is none") from None
