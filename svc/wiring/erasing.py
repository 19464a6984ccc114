"""Wiring of erasure: the eraser of the service, and where what must be erased again is written down."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

import trio

from actors.eraser import Eraser
from actors.supervision import Board, Loop
from svc.backup.erased import ErasedNotes
from svc.config.table import Settings
from svc.runtime.clock import now
from svc.store.postgres.database import Database
from svc.store.retention.erasing import Erasing
from svc.store.retention.erasures import ErasureStore


def erased_notes(settings: Settings) -> ErasedNotes:
    """The notes in the data folder and, where backups go to a folder, beside them."""
    folders = [settings.data_dir, *([] if settings.backup_dir is None else [settings.backup_dir])]
    return ErasedNotes(tuple(folder.expanduser() for folder in folders))


def writing_down(settings: Settings, database: Database) -> Callable[[], Awaitable[None]]:
    """Writes down what nobody has written down yet. Raises `Outage`, `OSError`."""
    notes, store = erased_notes(settings), ErasureStore(database)

    async def write_down() -> None:
        while rows := await store.unnoted():
            await trio.to_thread.run_sync(partial(notes.add, [note for _, note in rows]))
            await store.noted([erasure_id for erasure_id, _ in rows], now())

    return write_down


def eraser_loop(settings: Settings, database: Database, board: Board) -> Loop:
    """How to build the eraser, and its vitals on the board."""
    store, write_down = Erasing(database), writing_down(settings, database)
    return board.spare("eraser", partial(Eraser, store=store, write_down=write_down, now=now))
