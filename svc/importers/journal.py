"""What an import remembers between runs: how far it is, what it counted, and which spans it was given.

One SQLite file for each import, in `SVC_DATA_DIR/import`, removed when the import is whole. A page is noted
in one transaction after its spans are stored, so that a crash repeats at most one page. The spans seen are on
disk and not in memory: counts stay exact however long the history is.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Final

import attrs
import msgspec

from protocol.operator import OperatorError
from protocol.paths import Obstacle, obstacle
from svc.importers.source import Identity, ImportWindow

#: A file of another form is of another release, and begun anew.
_FORM: Final = "1"


@attrs.define
class MovedSpans:
    """What an import did so far, over all its runs."""

    pages: int = 0
    read: int = 0
    stored: int = 0
    known: int = 0
    expired: int = 0
    outside: int = 0
    without_model: int = 0
    without_session: int = 0
    refused: dict[str, int] = attrs.field(factory=dict)
    oldest: str | None = None
    newest: str | None = None

    def refuse(self, reasons: Mapping[str, int]) -> None:
        """Count what was refused, by reason."""
        for reason, n in reasons.items():
            self.refused[reason] = self.refused.get(reason, 0) + n


@attrs.frozen
class SourceSums:
    """What the source gave, each span once: traces, spans, and tokens where it says any."""

    traces: int
    spans: int
    tokens: int | None


@attrs.define(eq=False)
class Journal:
    """The memory of one import. Made by `journal`."""

    _database: sqlite3.Connection
    window: ImportWindow
    cursor: str | None
    moved: MovedSpans
    #: Whether an earlier run got somewhere.
    resumed: bool

    def note(self, cursor: str | None, usages: Mapping[Identity, int | None]) -> None:
        """A page is stored: these spans were in it, and the next one is behind this cursor."""
        with self._database:
            # Of a span that is given again the later tokens count, as the later span does.
            self._database.executemany(
                "insert into span (id, tokens) values (?, ?)"
                " on conflict (id) do update set tokens = excluded.tokens",
                usages.items(),
            )
            self._keep(cursor)
        self.cursor = cursor

    def told(self) -> SourceSums:
        """The sums over all spans seen."""
        spans, tokens = self._database.execute("select count(*), sum(tokens) from span").fetchone()
        # The first half of an identity is the trace.
        (traces,) = self._database.execute(
            "select count(*) from (select distinct substr(id, 1, 16) from span)"
        ).fetchone()
        return SourceSums(traces, spans, tokens)

    def seen(self, chunk: int) -> Iterator[list[Identity]]:
        """All spans seen, in order, a chunk at a time."""
        behind = b""
        while True:
            # A stretch along the key.
            rows = self._database.execute(
                "select id from span where id > ? order by id limit ?", (behind, chunk)
            ).fetchall()
            if not rows:
                return
            yield [row[0] for row in rows]
            behind = rows[-1][0]

    def _keep(self, cursor: str | None) -> None:
        progress = {"cursor": cursor, "moved": attrs.asdict(self.moved)}
        self._database.execute(
            "insert into state (key, value) values ('kept', ?)"
            " on conflict (key) do update set value = excluded.value",
            (msgspec.json.encode(progress).decode(),),
        )


@contextmanager
def journal(file: Path, window: ImportWindow) -> Iterator[Journal]:
    """The journal in this file, made when it is not there; `window` is for a new one.

    Raises `OperatorError` while another process has it.
    """
    try:
        database = sqlite3.connect(file, timeout=1.0)
    except sqlite3.OperationalError:
        raise OperatorError(_unusable(file)) from None
    with closing(database):
        try:
            # Held until the end: two that import the same thing at once would only be in each other's way.
            database.execute("pragma locking_mode = exclusive")
            database.execute("pragma journal_mode = wal")
            database.execute("begin exclusive")
            journal_ = _opened(database, window)
            database.commit()
        except sqlite3.OperationalError as error:
            busy = error.sqlite_errorcode in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
            text = f"another process is at this very import (it holds {file})" if busy else _unusable(file)
            raise OperatorError(text) from None
        except sqlite3.DatabaseError:
            text = f"{file} is damaged. Move it to another place, and the import begins anew"
            raise OperatorError(text) from None
        yield journal_


def _unusable(file: Path) -> str:
    """SQLite does not say why it cannot open or write a file."""
    fault = obstacle(file if file.is_dir() else file.parent) or Obstacle(
        f"the journal {file} cannot be written", "Check its disk"
    )
    return fault.text("SVC_DATA_DIR")


def forget(file: Path) -> None:
    """Remove a journal: the next run begins anew."""
    for name in (file, file.with_name(file.name + "-wal"), file.with_name(file.name + "-shm")):
        name.unlink(missing_ok=True)


def _opened(database: sqlite3.Connection, window: ImportWindow) -> Journal:
    database.execute("create table if not exists state (key text primary key, value text not null)")
    database.execute("create table if not exists span (id blob primary key, tokens integer) without rowid")
    state_rows = dict(database.execute("select key, value from state").fetchall())
    if state_rows.get("form") != _FORM:
        database.execute("delete from state")
        database.execute("delete from span")
        first = {
            "form": _FORM,
            "low": "" if window.low is None else window.low.isoformat(),
            "high": window.high.isoformat(),
        }
        database.executemany("insert into state (key, value) values (?, ?)", first.items())
        return Journal(database, window, None, MovedSpans(), resumed=False)
    low = state_rows["low"]
    window = ImportWindow(
        datetime.fromisoformat(low) if low else None, datetime.fromisoformat(state_rows["high"])
    )
    if "kept" not in state_rows:
        return Journal(database, window, None, MovedSpans(), resumed=False)
    state = msgspec.json.decode(state_rows["kept"])
    return Journal(database, window, state["cursor"], MovedSpans(**state["moved"]), resumed=True)
