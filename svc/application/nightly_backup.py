"""A backup by `trace-svc backup` in a process of its own.

The actor of the nightly backup calls it. It can neither hold up the doors nor outlive a stop.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import trio

from svc.runtime.child import fault_of, program

#: A backup may hold its snapshot for six hours.
BACKUP_TIMEOUT_S: Final = 7 * 3600.0
_FAULT_CHARS: Final = 500


async def back_up(folder: Path, keep: int, *, physical: bool = False) -> str | None:
    """Make a backup and let old ones go. Returns what went wrong, in a sentence."""
    fault = await _run("backup", str(folder), *(["--physical"] if physical else []))
    if fault is None and keep:
        fault = await _run("backup", "prune", str(folder), "--keep", str(keep))
    return fault


async def _run(*words: str) -> str | None:
    command = program("svc", *words)
    try:
        fault = await fault_of(command.words, timeout_s=BACKUP_TIMEOUT_S, cwd=command.cwd)
    except trio.TooSlowError:
        return f"it did not end within {BACKUP_TIMEOUT_S / 3600:.0f} hours"
    return fault and fault[:_FAULT_CHARS]
