"""Tables on a terminal: columns as wide as their widest cell, and nothing in them that steers it."""

from __future__ import annotations

from collections.abc import Sequence


def printable(text: str) -> str:
    """The text without what steers a terminal: names and titles come from strangers."""
    return "".join(char if char.isprintable() else "\ufffd" for char in text)


def print_columns(rows: Sequence[Sequence[str]]) -> None:
    """Print rows of equally many cells, the first being the heads."""
    rows = [[printable(cell) for cell in row] for row in rows]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
