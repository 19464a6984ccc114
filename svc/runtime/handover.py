"""Listening sockets that outlive a process: those it was started with, and those it leaves to the next one.

`svc.serve` takes what was handed over, `trace-svc serve` starts its successor. Both ends speak the convention
of `sd_listen_fds(3)`: file descriptors from 3 on, `LISTEN_FDS` of them, for the process of `LISTEN_PID`. So a
socket unit of systemd hands over as our own predecessor does. While nobody accepts, the kernel keeps who
connects waiting. Never accepts, never listens.

Ordering: `Successor.begin` is the last that a process does. It runs another program under the same process
id, and what was open at file descriptor 3 and after it is gone.
"""

from __future__ import annotations

import fcntl
import logging
import os
import socket
import sys
from collections.abc import Mapping, MutableMapping, Sequence
from contextlib import suppress
from typing import Final, NoReturn, Self

import attrs
import trio

from svc.runtime.child import fault_of, own_command

log = logging.getLogger(__name__)

#: `SD_LISTEN_FDS_START`.
FIRST_FD: Final = 3
#: Copies lie here until all of them have been made: beyond what the convention could overwrite.
_ASIDE: Final = FIRST_FD + 64
_COUNT: Final = "LISTEN_FDS"
_PROCESS: Final = "LISTEN_PID"
_NAMES: Final = "LISTEN_FDNAMES"
#: What a successor may take to read its code and its settings.
REHEARSAL_S: Final = 60.0


@attrs.define
class Inherited:
    """The sockets that this process was started with, until a listener takes each."""

    _sockets: list[socket.socket]

    @classmethod
    def take(cls, environ: MutableMapping[str, str]) -> Self:
        """Those of this process. The variables go: they mean no process that we start."""
        count, process = environ.pop(_COUNT, ""), environ.pop(_PROCESS, "")
        environ.pop(_NAMES, None)
        sockets: list[socket.socket] = []
        if process == str(os.getpid()) and count.isdecimal():
            for fd in range(FIRST_FD, FIRST_FD + int(count)):
                os.set_inheritable(fd, False)
                sockets.append(socket.socket(fileno=fd))
        return cls(sockets)

    def at(self, port: int) -> socket.socket | None:
        """The one that is bound to this port, which is the caller's from now on."""
        for sock in self._sockets:
            if sock.family in (socket.AF_INET, socket.AF_INET6) and sock.getsockname()[1] == port:
                self._sockets.remove(sock)
                return sock
        return None

    def close(self) -> None:
        """Close what no listener wanted, and say so: whoever connects there would wait for ever."""
        for sock in self._sockets:
            log.warning("received a listening socket that no setting asks for: %s", sock.getsockname())
            sock.close()
        self._sockets.clear()


@attrs.define(eq=False)
class Successor:
    """The next process of this service: the same command under the same process id, with the code of then."""

    #: Whether this process stops in favour of it.
    awaited: bool = False
    #: Whether it is being found out whether it would start.
    rehearsing: bool = False
    _fds: list[int] = attrs.field(factory=list)

    def keep(self, *sockets: socket.socket) -> None:
        """Hold these open for it, whoever closes them here."""
        # A copy by `socket.dup` would set both to blocking, and the next `accept` would hold the loop.
        self._fds += [os.dup(sock.fileno()) for sock in sockets]

    def begin(self) -> NoReturn:
        """Become it. Raises `OSError` where the program is gone."""
        aside = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _ASIDE) for fd in self._fds]
        for fd, copy in enumerate(aside, FIRST_FD):
            os.dup2(copy, fd, inheritable=True)
        count, process = str(len(aside)), str(os.getpid())
        # What a broken pipe refuses is nothing that the successor could say better.
        with suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        command = own_command()
        env = {**os.environ, _COUNT: count, _PROCESS: process}
        os.execve(command[0], command, env)  # noqa: S606 - the command that we were started with


async def rehearse(
    command: Sequence[str], *, env: Mapping[str, str] | None = None, cwd: str | None = None
) -> str | None:
    """Why this command of a service would not start: what it says under `--check`. None: it would."""
    try:
        return await fault_of([*command, "--check"], timeout_s=REHEARSAL_S, env=env, cwd=cwd)
    except trio.TooSlowError:
        return f"it did not read its settings within {REHEARSAL_S:.0f} s"
