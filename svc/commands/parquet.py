"""Rows of an export as a Parquet file: one table, a row group a chunk. Wants the extra `parquet`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import msgspec

from protocol.operator import OperatorError
from protocol.rest.query import jsonable
from svc.store.postgres.rows import SESSION_COLUMNS, SPAN_COLUMNS, SPAN_EXTRAS, TRACE_COLUMNS
from svc.store.reads.payloads import PAYLOAD_FIELDS

#: The columns of each table; what a row does not have is null.
COLUMNS: Final[dict[str, Sequence[str]]] = {
    "spans": tuple(
        dict.fromkeys(
            (
                *(*SPAN_COLUMNS, *SPAN_EXTRAS, "latency_ms", "total_tokens"),
                *("counts_as_call", "payload_available", *PAYLOAD_FIELDS),
                # What it takes beside to be taken back.
                *("resource", "scope", "otlp"),
            )
        )
    ),
    "traces": (*TRACE_COLUMNS, "latency_ms", "is_settled", "payload_available"),
    "sessions": SESSION_COLUMNS,
}
_FLAGS: Final = ("is_settled", "payload_available", "counts_as_call")
_WHOLE: Final = ("_tokens", "_count", "unpriced_spans")


@contextmanager
def parquet_rows(out: Path, what: str) -> Iterator[Callable[[Sequence[dict[str, Any]]], None]]:
    """A function that writes some rows. Raises `OperatorError` without pyarrow."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise OperatorError("parquet needs pyarrow: pip install 'trace-svc[parquet]'") from None
    types = {name: _type(pyarrow, name) for name in COLUMNS[what]}
    schema = pyarrow.schema(list(types.items()))
    with pyarrow.parquet.ParquetWriter(out, schema, compression="zstd") as writer:

        def write(rows: Sequence[dict[str, Any]]) -> None:
            columns = {name: [_cell(name, row.get(name)) for row in rows] for name in types}
            writer.write_table(pyarrow.table(columns, schema=schema))

        yield write


def _type(pyarrow: Any, name: str) -> Any:
    if name.endswith("_at"):
        return pyarrow.timestamp("us", tz="UTC")
    if name in _FLAGS:
        return pyarrow.bool_()
    if name.endswith(_WHOLE):
        return pyarrow.int64()
    if name.endswith(("_cost", "_ms")):
        return pyarrow.float64()
    return pyarrow.string()


def _cell(name: str, value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float):
        return value
    if name.endswith("_at"):
        return datetime.fromisoformat(value)
    # Objects and lists as JSON, which every reader of Parquet can take apart.
    return value if isinstance(value, str) else msgspec.json.encode(value, enc_hook=jsonable).decode()
