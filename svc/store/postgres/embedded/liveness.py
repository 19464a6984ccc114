"""Whether a living server accepts sessions, works towards it or stands still, and the end of one that does.

Called by `svc.store.postgres.embedded.server` while it waits for a server and while it watches one. Never
starts a server, never speaks SQL.
"""

from __future__ import annotations

import os
import signal
import struct
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

import structlog
import trio

from svc.store.postgres.embedded import cluster as disk
from svc.store.postgres.embedded.postmaster import Postmaster, read_postmaster, works_in

PROBE_TIMEOUT_S: Final = 5.0
#: A server that neither accepts nor works towards it for so long is started anew; twice as long each time
#: that this did not help, so that one whose work cannot be seen comes to its end some day.
STANDSTILL_S: Final = 60.0
LONGEST_STANDSTILL_S: Final = 3600.0
#: Between two looks at a server that is watched.
LOOK_S: Final = 5.0
#: When it is first said that a server is waited for; then after twice as long each time, up to the longest.
SAY_S: Final = 3.0
LONGEST_SAY_S: Final = 300.0
LONGEST_REST_S: Final = 0.5
QUIT_S: Final = 10.0
KILL_S: Final = 5.0
_POLL_S: Final = 0.02

log = structlog.get_logger(__name__)


async def refusal(socket: Path) -> str | None:
    """Why the server does not begin a session; None when it does, with a question for the password.

    While it starts, recovers or stops, it answers with an error (SQLSTATE 57P03) instead. Too many sessions
    (53300) is an answer of a server that is up.
    """
    body = b"user\0%b\0database\0%b\0\0" % (disk.USER.encode(), disk.DATABASE.encode())
    with trio.move_on_after(PROBE_TIMEOUT_S):
        try:
            async with await trio.open_unix_socket(str(socket)) as stream:
                await stream.send_all(struct.pack("!II", len(body) + 8, 196608) + body)  # protocol 3.0
                answer = bytes(await stream.receive_some(1024))
        except (OSError, trio.BrokenResourceError):
            return "nobody listens"
        if answer.startswith(b"R") or b"C53300\0" in answer:
            return None
        fields = {field[:1]: field[1:] for field in answer[5:].split(b"\0")}
        return fields.get(b"M", b"").decode(errors="replace")[:200] or "it ends each session"
    return f"no answer within {PROBE_TIMEOUT_S:.0f} s"


class Standstill:
    """For how long the living server of a folder has neither accepted a session nor worked towards it."""

    def __init__(self, pgdata: Path) -> None:
        self._pgdata = pgdata
        self._work: object
        self.accepted()

    def accepted(self) -> None:
        """It accepts sessions."""
        self._moved_s, self._work = trio.current_time(), None
        self._pause_s, self._say_at_s = SAY_S, trio.current_time() + SAY_S
        self._rest_s = _POLL_S

    async def rest(self) -> None:
        """The pause between two questions. It grows: a server that starts writes each into its log."""
        await trio.sleep(self._rest_s)
        self._rest_s = min(1.2 * self._rest_s, LONGEST_REST_S)

    def refused(self, reason: str) -> float:
        """It does not, and why; for how long it has stood still, in seconds. Says so now and then."""
        postmaster = read_postmaster(self._pgdata)
        work = None if postmaster is None else _recovery(postmaster.pid)
        if work is not None and work != self._work:
            self._moved_s, self._work = trio.current_time(), work
        still_s = trio.current_time() - self._moved_s
        if trio.current_time() >= self._say_at_s:
            self._pause_s = min(2 * self._pause_s, LONGEST_SAY_S)
            self._say_at_s = trio.current_time() + self._pause_s
            pid = None if postmaster is None else postmaster.pid
            log.warning(
                "waiting for the database server", reason=reason, pid=pid, stands_still_s=round(still_s)
            )
        return still_s


def _recovery(postmaster: int) -> object:
    """What changes while a server recovers: titles and processor time of who replays and of who writes."""
    work = []
    for pid in _children(postmaster):
        with suppress(OSError):
            title = Path(f"/proc/{pid}/cmdline").read_bytes()
            if b" startup" in title or b" checkpointer" in title:
                stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                work.append((b" startup" in title, pid, title, *stat[11:13]))
    return work if any(replays for replays, *_ in work) else None


def _children(pid: int) -> list[int]:
    with suppress(OSError):
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


async def end_by_force(pgdata: Path, alive: Callable[[], bool]) -> None:
    """End a server that no longer serves: as after a crash, and what does not obey is killed.

    `alive` says whether any process of it is left. The next start recovers what was committed.
    """
    postmaster = read_postmaster(pgdata)
    if postmaster is None or not alive():
        return
    log.warning("the database server does not respond; restarting it", pid=postmaster.pid)
    with suppress(ProcessLookupError):
        os.kill(postmaster.pid, signal.SIGQUIT)
    if await _end(alive, QUIT_S):
        return
    for pid in _processes(postmaster, pgdata):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    await _end(alive, KILL_S)


def _processes(postmaster: Postmaster, pgdata: Path) -> list[int]:
    """The server's processes, the first one first: it must make no new ones."""
    pids = [postmaster.pid]
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            # Anybody may stand in its folder, as an operator's shell does.
            if (entry / "comm").read_text() == "postgres\n" and works_in(int(entry.name), pgdata):
                pids.append(int(entry.name))
    return pids


async def _end(alive: Callable[[], bool], within_s: float) -> bool:
    with trio.move_on_after(within_s):
        while alive():  # noqa: ASYNC110 - another program's state, nobody sets an event
            await trio.sleep(_POLL_S)
        return True
    return False
