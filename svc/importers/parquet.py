"""What `trace-svc export spans --form parquet` wrote, taken back row by row. Wants the extra `parquet`.

Says what JSON lines say, so that it comes back as they do: as it was shown, and dated as it was stored. A
cursor is the number of a row. One batch of rows is in memory at a time, whatever the size of the row groups.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import msgspec

from protocol.operator import OperatorError
from svc.importers.exported import LEAVES, OTHERS, PAGE_BYTES, PAGE_LINES, page_of
from svc.importers.source import ImportPage, ImportWindow

_MARK: Final = b"PAR1"
#: Rows of one batch: some may hold megabytes.
_BATCH_ROWS: Final = 100
#: Cells that hold JSON.
_JSON: Final = ("attributes", "resource", "scope", "otlp", "events", "links")
_TEXT: Final = ("trace_id", "span_id", "parent_span_id", "name")
_OTHER: Final = ("created_at", "total_tokens")


def is_parquet(path: Path) -> bool:
    """Whether a file begins as Parquet does. Raises `OSError`."""
    with path.open("rb") as file:
        return file.read(len(_MARK)) == _MARK


class ParquetExport:
    """A Parquet file of spans that an export wrote."""

    name: str = "trace-svc export"
    leaves: tuple[str, ...] = LEAVES

    def __init__(self, path: Path) -> None:
        try:
            import pyarrow
            import pyarrow.parquet
        except ImportError:
            raise OperatorError("parquet wants pyarrow: pip install 'trace-svc[parquet]'") from None
        self._path = path
        try:
            self._file: Any = pyarrow.parquet.ParquetFile(path)
        except pyarrow.ArrowException:
            raise OperatorError(f"{path} is no Parquet file, or cut off") from None
        names = set(self._file.schema_arrow.names)
        if names & OTHERS:
            raise OperatorError(
                f"{path} is an export of traces or sessions; these are made of spans: export those"
            )
        self._columns = [name for name in (*_TEXT, *_OTHER, *_JSON) if name in names]
        missing = {"trace_id", "span_id", *_JSON} - names
        if missing:
            raise OperatorError(
                f"{path} is no export of ours, or of a release that did not write all of a span: it has no"
                f" column {', '.join(sorted(missing))}"
            )
        self._broken: type[Exception] = pyarrow.ArrowException
        self._at = 0
        self._rows = self._from(0)

    async def page(self, window: ImportWindow, cursor: str | None) -> ImportPage:
        """The rows behind a place. Raises `OperatorError`."""
        position = int(cursor or 0)
        if position != self._at:
            self._at, self._rows = position, self._from(position)
        rows: list[dict[str, Any]] = []
        size = count = 0
        try:
            while count < PAGE_LINES and size < PAGE_BYTES and (row := next(self._rows, None)) is not None:
                count += 1
                size += sum(len(cell) for cell in row.values() if isinstance(cell, str))
                rows.append(_fields(row))
        except (self._broken, msgspec.DecodeError, OSError):
            raise OperatorError(f"{self._path} is damaged behind row {self._at + count}") from None
        self._at += count
        return page_of(rows, str(self._at)) if count else ImportPage((), None)

    def _from(self, position: int) -> Iterator[dict[str, Any]]:
        groups, skipped = self._file.metadata, position
        first = 0
        while first < groups.num_row_groups and skipped >= groups.row_group(first).num_rows:
            skipped -= groups.row_group(first).num_rows
            first += 1
        row_groups = range(first, groups.num_row_groups)
        for batch in self._file.iter_batches(_BATCH_ROWS, row_groups=list(row_groups), columns=self._columns):
            for row in batch.to_pylist():
                if skipped:
                    skipped -= 1
                else:
                    yield row


def _fields(row: dict[str, Any]) -> dict[str, Any]:
    """A row as a line of JSON has it: what is null was not there."""
    fields: dict[str, Any] = {}
    for name, cell in row.items():
        if cell is None:
            continue
        if name in _JSON:
            fields[name] = msgspec.json.decode(cell)
        else:
            fields[name] = cell.isoformat() if isinstance(cell, datetime) else cell
    return fields
