"""Langfuse's blob storage export: files of observations, one a line, in either spelling of names.

A cursor is a file and a place in it; files are read in the order of their names.
"""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any, BinaryIO, Final

import msgspec

from protocol.operator import OperatorError
from svc.importers.langfuse import page_of
from svc.importers.source import ImportPage, ImportWindow, camel

_PAGE_LINES: Final = 500
_PAGE_BYTES: Final = 32 * 1024 * 1024
_MOST_BYTES: Final = 64 * 1024 * 1024
_SUFFIXES: Final = (".jsonl", ".jsonl.gz")

NO_LINE: Final = "a line that is no JSON object"


class LangfuseFiles:
    """A file, or every file below a folder."""

    name = "Langfuse files"
    leaves: tuple[str, ...] = (
        "scores, comments, datasets, prompts, media and users stay in Langfuse",
        "files of traces and scores are not read: observations say what is known of their trace",
    )

    def __init__(self, path: Path, service: str) -> None:
        paths = [path] if path.is_file() else sorted(path.rglob("*"))
        self._files = [
            file
            for file in paths
            if file.name.endswith(_SUFFIXES) and (file == path or not _is_other(file.relative_to(path)))
        ]
        if not self._files:
            raise OperatorError(f"there is no file of observations (*.jsonl, *.jsonl.gz) in {path}")
        self._service = service

    async def page(self, window: ImportWindow, cursor: str | None) -> ImportPage:
        """The lines behind a place in a file."""
        number, offset = (int(part) for part in (cursor or "0 0").split())
        if number >= len(self._files):
            return ImportPage((), None)
        rows: list[dict[str, Any]] = []
        unread, size = 0, 0
        with _opened(self._files[number]) as stream:
            stream.seek(offset)
            for _ in range(_PAGE_LINES):
                line = stream.readline(_MOST_BYTES + 1)
                if len(line) > _MOST_BYTES:
                    raise OperatorError(f"a line of {self._files[number]} is longer than {_MOST_BYTES} bytes")
                size += len(line)
                if line.strip():
                    row = _row(line)
                    if row is None:
                        unread += 1
                    else:
                        rows.append(row)
                if not line or size >= _PAGE_BYTES:
                    break
        next_cursor = f"{number} {offset + size}" if size else f"{number + 1} 0"
        page = page_of(rows, self._service, next_cursor)
        return ImportPage(
            page.bodies,
            next_cursor,
            page.told,
            unread={**page.unread, **({NO_LINE: unread} if unread else {})},
        )


def _is_other(inside: Path) -> bool:
    """Whether a file below the export's folder is of something else than observations."""
    folders = {part.lower() for part in inside.parts[:-1]}
    return bool(folders) and not any("observations" in folder for folder in folders)


def _opened(file: Path) -> BinaryIO:
    return gzip.open(file) if file.name.endswith(".gz") else file.open("rb")  # type: ignore[return-value]


def _row(line: bytes) -> dict[str, Any] | None:
    try:
        document = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return {camel(key): value for key, value in document.items()} if isinstance(document, dict) else None
