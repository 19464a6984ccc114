"""Tables on a terminal: columns as wide as their widest cell."""

from __future__ import annotations

from collections.abc import Sequence


def print_columns(rows: Sequence[Sequence[str]]) -> None:
    """Print rows of equally many cells, the first being the heads."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
