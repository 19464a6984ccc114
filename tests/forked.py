"""Our commands from a process that has loaded their code, which is most of what a start takes.

Hundreds of tests start one. From its start to its stop a service took 3.2 s of processor time and 2.7 s, and
takes 1.9 and 1.3; a command 0.45 and 0.2 (November 2026, idle machine). What is run is the same `main` with
the same words, environment and streams; its processes, database and files are its own. Starts as users have
them are those of `make run`, of first starts and benches, of other installations, and of what replaces
itself.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any, Final

from tests import fork_server

#: What decides about code as it is loaded: a process with another value loads its own.
_OF_LOADING: Final = ("PYTHON", "SVC_COMPILED_MODULES", "OPENBLAS_", "OMP_", "MALLOC_", "LD_")
_lock = threading.Lock()


@cache
def _control() -> socket.socket:
    """The socket to the process that forks, which is started now."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-P", fork_server.__file__, str(theirs.fileno())],
            cwd="/",
            stdin=subprocess.DEVNULL,
            pass_fds=(theirs.fileno(),),
            # A library of numbers begins no thread of its own: a fork would lose it.
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        )

    def end() -> None:
        ours.close()
        process.wait(60)

    atexit.register(end)
    return ours


def loads_alike(env: Mapping[str, str]) -> bool:
    """Whether a process with this environment would load the same code as this one."""
    names = {name for name in (*env, *os.environ) if name.startswith(_OF_LOADING)}
    return all(env.get(name) == os.environ.get(name) for name in names)


class Forked(subprocess.Popen[str]):
    """A command of ours, as `Popen` would have started it.

    Without `stdin` it reads nothing, without `stdout` it writes to a pipe.
    """

    def __init__(
        self,
        words: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: str,
        stderr: IO[Any],
        stdin: IO[Any] | None = None,
        stdout: IO[Any] | None = None,
    ) -> None:
        # What `Popen` itself asks of an instance.
        self.args, self.returncode, self.stdin, self.stdout, self.stderr = list(words), None, None, None, None
        self._child_created, self._sigint_wait_secs = True, 0.25
        message = json.dumps({"words": self.args, "env": dict(env), "cwd": cwd}).encode()
        self._status, status = os.pipe()
        passed = [status]
        if stdout is None:
            read_end, write_end = os.pipe()
            self.stdout = open(read_end, encoding="utf-8")  # noqa: SIM115
            passed.append(write_end)
        else:
            write_end = stdout.fileno()
        with Path(os.devnull).open("rb") as nothing, _lock:
            fds = [(stdin or nothing).fileno(), write_end, stderr.fileno(), status]
            socket.send_fds(_control(), [message], fds)
            self.pid = int(_control().recv(fork_server.MESSAGE_BYTES))
        for fd in passed:
            os.close(fd)

    def _internal_poll(self, _deadstate: int | None = None) -> int | None:
        return self._ended_within(0.0)

    def _wait(self, timeout: float | None) -> int:
        code = self._ended_within(timeout)
        if code is None:
            assert timeout is not None
            raise subprocess.TimeoutExpired(self.args, timeout)
        return code

    def _ended_within(self, seconds: float | None) -> int | None:
        if self.returncode is None:
            poll = select.poll()
            poll.register(self._status, select.POLLIN)
            if poll.poll(None if seconds is None else seconds * 1000):
                # Nothing: who forks was killed.
                self.returncode = int(os.read(self._status, 16) or -signal.SIGKILL)
                os.close(self._status)
        return self.returncode


def ran_raw(
    words: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: str | Path = ".",
    stdin: bytes | None = None,
    timeout_s: float,
) -> subprocess.CompletedProcess[bytes]:
    """What a command of ours wrote, and its status, once it ended, as `subprocess.run` tells it."""
    env = os.environ if env is None else env
    if not loads_alike(env):
        return subprocess.run(
            words, env=dict(env), cwd=cwd, input=stdin, capture_output=True, timeout=timeout_s, check=False
        )
    with TemporaryFile() as told, TemporaryFile() as out, TemporaryFile() as errors:
        told.write(stdin or b"")
        told.seek(0)
        folder = os.path.abspath(cwd)
        with Forked(words, env=env, cwd=folder, stdin=told, stdout=out, stderr=errors) as process:
            try:
                status = process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
        out.seek(0)
        errors.seek(0)
        return subprocess.CompletedProcess(list(words), status, out.read(), errors.read())


def ran(
    words: Sequence[str], *, env: Mapping[str, str] | None = None, cwd: str | Path = ".", timeout_s: float
) -> subprocess.CompletedProcess[str]:
    """The same as text."""
    done = ran_raw(words, env=env, cwd=cwd, timeout_s=timeout_s)
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())
