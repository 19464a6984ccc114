"""What commands print: tables, JSON, figures, and how a long command reports where it is.

Lines of progress go to standard error: each on a terminal once a second, else one every ten seconds. A
command that waits for somebody else is never silent: `beat` says that it waits where nothing was printed for
a while. Nothing in what is printed steers a terminal: names and titles come from strangers.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final
from uuid import UUID

import msgspec
import trio

from protocol.operator import OperatorError
from protocol.rest.query import jsonable
from svc.domain.quantities import count, writer


def printable(text: str) -> str:
    """The text without what steers a terminal: names and titles come from strangers."""
    return "".join(char if char.isprintable() else "\ufffd" for char in text)


def id_of(text: str, missing: str) -> UUID:
    """An id that somebody typed. Raises `OperatorError`, which says `missing`, for what can be none."""
    try:
        return UUID(text)
    except ValueError:
        raise OperatorError(missing) from None


def print_columns(rows: Sequence[Sequence[str]]) -> None:
    """Print rows of equally many cells, the first being the heads."""
    rows = [[printable(cell) for cell in row] for row in rows]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


_TERMINAL_S: Final = 1.0
_LOG_S: Final = 10.0
#: The longest silence, about.
BEAT_S: Final = 5.0


class Teller:
    """Takes lines of progress and prints some of them, on standard error."""

    def __init__(self) -> None:
        self._every_s = _TERMINAL_S if sys.stderr.isatty() else _LOG_S
        self._last_s = time.monotonic()

    def __call__(self, line: str) -> None:
        """One line; printed when the last one is long enough ago."""
        if time.monotonic() - self._last_s >= self._every_s:
            self.say(line)

    def say(self, line: str) -> None:
        """One line that is printed whenever the last one was."""
        self._last_s = time.monotonic()
        print(printable(line), file=sys.stderr, flush=True)

    async def beat(self, sentence: str) -> None:
        """Say for ever that it goes on, where nothing was said for a while."""
        while True:
            quiet_s = time.monotonic() - self._last_s
            if quiet_s >= BEAT_S:
                self.say(f"{sentence}, {count(round(quiet_s))} s since the last line")
            await trio.sleep(BEAT_S)


def lists_bare(parser: argparse.ArgumentParser, listing: argparse.ArgumentParser) -> None:
    """Without a verb a command does what `list` does without arguments."""
    parser.set_defaults(**vars(listing.parse_args([])), verb="list")


def offer_json(parser: argparse.ArgumentParser) -> None:
    """Add `--json`."""
    parser.add_argument("--json", action="store_true", help="print JSON, as the REST API answers it")


def print_json(value: Any) -> None:
    """One value, on lines of its own. What steers a terminal is escaped, so that the value is the same."""
    text = msgspec.json.format(msgspec.json.encode(value, enc_hook=jsonable), indent=2).decode()
    print("".join(char if char.isprintable() or char == "\n" else _escaped(char) for char in text))


def _escaped(char: str) -> str:
    """A character as JSON writes it in ASCII: within a text, the only place where one is not printable."""
    units = char.encode("utf-16-be")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


def minute(instant: str | None) -> str:
    """An instant to the minute, `-` for none."""
    return "-" if instant is None else f"{instant[:10]} {instant[11:16]}"


def value_line(subject: dict[str, Any]) -> str:
    """What the metric of a case or finding came to, and what is usual."""
    write = writer(subject["metric"])
    return f"{write(subject['current_value'])}, usually {write(subject['baseline_value'])}"


def print_listed(heads: Mapping[str, str], subjects: Sequence[Mapping[str, Any]]) -> None:
    """Print cases or findings: the fields below these heads, then since when, by which detector, and what."""
    rows = [[*heads, "SINCE", "LAST SEEN", "DETECTOR", "TITLE"]]
    for subject in subjects:
        fields = [subject[name] for name in heads.values()]
        instants = minute(subject["onset_at"]), minute(subject["last_seen_at"])
        rows.append([*fields, *instants, subject["detector"], subject["title"]])
    print_columns(rows)
