"""What a data folder says of the server that runs on it, and the end of servers that nobody wants any more.

Called by `svc.store.postgres.embedded.server`, which starts, adopts and stops its own. Never starts one.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import attrs
import trio

from svc.store.postgres.embedded.cluster import EmbeddedServerError

#: For a server that rolls back what it was at; looked at so often.
LEFT_STOP_S: Final = 20.0
LEFT_POLL_S: Final = 0.02


@attrs.frozen
class Postmaster:
    """What a running server says of itself in `postmaster.pid`; `pid` is 0 for one out of sight."""

    pid: int
    port: int
    socket_dir: Path

    @property
    def socket(self) -> Path:
        return self.socket_dir / f".s.PGSQL.{self.port}"


def read_postmaster(pgdata: Path) -> Postmaster | None:
    """What `postmaster.pid` says, if complete and its process is a living server of this folder."""
    try:
        lines = (pgdata / "postmaster.pid").read_text().splitlines()
        postmaster = Postmaster(int(lines[0]), int(lines[3]), Path(lines[4]))
    except (FileNotFoundError, IndexError, ValueError):
        return None
    return postmaster if works_in(postmaster.pid, pgdata) else None


def works_in(pid: int, pgdata: Path) -> bool:
    """Whether the process lives and PGDATA is its working folder, as it is of every PostgreSQL process.

    Root without CAP_SYS_PTRACE, as in a container, may not see another account's folder; there the command
    line has to name PGDATA. Without `/proc` (macOS) a living process has to do.
    """
    if not Path("/proc/self").exists():
        try:
            os.kill(pid, 0)
        except OSError:
            return False
        return True
    try:
        return os.path.samefile(f"/proc/{pid}/cwd", pgdata)
    except PermissionError:
        with suppress(OSError):
            return os.fsencode(pgdata) in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        pass
    return False


def clear_stale_pid_file(pgdata: Path) -> None:
    """Remove a `postmaster.pid` that names a foreign process, over which PostgreSQL would refuse to start.

    Called with `postmaster.lock` held. A server that somebody started by hand is no stale one: that raises.
    """
    file = pgdata / "postmaster.pid"
    with suppress(FileNotFoundError, IndexError, ValueError):
        pid = int(file.read_text().splitlines()[0])
        if works_in(pid, pgdata):
            raise EmbeddedServerError(
                f"a database server started by hand (process {pid}) uses {pgdata}: stop it first"
            )
    file.unlink(missing_ok=True)


async def end_left(ended: int, folders: Sequence[Path]) -> None:
    """Stop servers that a program which was cut off left behind or is starting yet: they have the lock that
    the next start wants. All that inherited the other end of `ended` are gone when it is at its end.

    Cancellation: shielded for at most `LEFT_STOP_S`.
    """
    os.set_blocking(ended, False)
    with trio.CancelScope(shield=True, deadline=trio.current_time() + LEFT_STOP_S):
        while True:
            with suppress(BlockingIOError):
                if not os.read(ended, 1):
                    return
            for data in folders:
                if (postmaster := read_postmaster(data)) is not None:
                    with suppress(ProcessLookupError):
                        os.kill(postmaster.pid, signal.SIGINT)
            await trio.sleep(LEFT_POLL_S)
