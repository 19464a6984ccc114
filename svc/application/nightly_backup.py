"""A backup by `trace-svc backup` in a process of its own, and the WAL that is copied between two of them.

The actors of the backup call it. A backup can neither hold up the doors nor outlive a stop.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import trio

from protocol.backup import CopiedWal
from protocol.operator import OperatorError
from svc.backup.wal_copying import WalCopier
from svc.runtime.child import fault_of, program

#: A backup may hold its snapshot for six hours.
BACKUP_TIMEOUT_S: Final = 7 * 3600.0
#: A first copy of a large instance over a slow line; what it sent by then is not sent again.
COPY_TIMEOUT_S: Final = 20 * 3600.0
_FAULT_CHARS: Final = 500


async def back_up(folder: Path, keep: int, *, physical: bool = False) -> str | None:
    """Make a backup and let old ones go. Returns what went wrong, in a sentence."""
    fault = await _run("backup", str(folder), *(["--physical"] if physical else []))
    if fault is None and keep:
        fault = await _run("backup", "prune", str(folder), "--keep", str(keep))
    return fault


async def copy_away(folder: Path, keep: int) -> str | None:
    """Copy the backups to SVC_BACKUP_S3_URL, and let old ones go there. Returns what went wrong."""
    words = ["backup", "push", str(folder), *(["--keep", str(keep)] if keep else [])]
    return await _run(*words, timeout_s=COPY_TIMEOUT_S)


async def copy_wal(copier: WalCopier) -> CopiedWal | str:
    """Copy the WAL that was written since the last round, or say what went wrong. Raises `Outage`."""
    try:
        return await copier.round()
    except (OperatorError, OSError) as fault:
        return str(fault)[:_FAULT_CHARS]


async def _run(*words: str, timeout_s: float = BACKUP_TIMEOUT_S) -> str | None:
    command = program("svc", *words)
    try:
        fault = await fault_of(command.words, timeout_s=timeout_s, cwd=command.cwd)
    except trio.TooSlowError:
        return f"it did not end within {timeout_s / 3600:.0f} hours"
    return fault and fault[:_FAULT_CHARS]
