"""What the embedded server wrote into its log: its last lines for an error, and a bound on the file.

Called by `svc.store.postgres.embedded.server`. Never interprets a line.
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Final

LOG_CAP_BYTES: Final = 8 * 1024 * 1024


def log_tail(path: Path, offset: int) -> str:
    """The last lines that the server wrote after `offset`, on one line."""
    with path.open("rb") as file:
        file.seek(max(offset, os.fstat(file.fileno()).st_size - 4096))
        lines = file.read().decode(errors="replace").split("\n")
    return " / ".join(line.strip() for line in lines[-8:] if line.strip())


def cap_log(path: Path) -> None:
    """Move a log past its cap to `server.log.1` and empty it in place: the server keeps it open to append."""
    with suppress(OSError):
        if path.stat().st_size > LOG_CAP_BYTES:
            with suppress(OSError):  # a full disk has no room for the copy, and needs the room of the log
                shutil.copyfile(path, path.with_name(f"{path.name}.1"))
            os.truncate(path, 0)
