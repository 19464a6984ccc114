"""Processes of our own code: how they are started, spoken to and ended.

`program` says how one is started; nobody starts one otherwise. `child` is the parent's end of the pipe to
one (`begin_child` and `child_stream` for one that begins before it is spoken to), `parent_pipe`,
`run_for_parent`, `end_within` and `end_with_parent` are the child's. Such a child never outlives its parent:
its standard input ends. Called by whoever launches a process (`svc.ingest.launching`,
`svc.detecting.process`, `svc.wiring`).
"""

from __future__ import annotations

import fcntl
import logging
import os
import select
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Final, NamedTuple

import trio

log = logging.getLogger(__name__)

#: A group is megabytes; the kernel's own 64 KiB would hand it over in a hundred switches.
PIPE_BYTES: Final = 1 << 20
#: Linux's number for setting that; Python 3.11 knows it as `fcntl.F_SETPIPE_SZ` on Linux only.
_F_SETPIPE_SZ: Final = 1031
#: What a process gets to end after its standard input did.
END_TIMEOUT_S: Final = 3.0


class Program(NamedTuple):
    """A module of ours as a process: what is run, and in which folder."""

    words: list[str]
    cwd: str = "/"


def program(module: str, *arguments: str) -> Program:
    """How a module of ours is run: by this Python, and from the code that is installed with it.

    The current directory, which may be anybody's, is not searched for modules (`-P`) and not kept. Paths
    among the arguments are absolute.
    """
    return Program([sys.executable, "-P", "-m", "svc.runtime", module, *arguments])


def own_command() -> list[str]:
    """The command that this process was started with, by the same Python."""
    return [sys.executable, *sys.orig_argv[1:]]


async def fault_of(
    words: Sequence[str],
    *,
    timeout_s: float,
    env: Mapping[str, str] | None = None,
    cwd: str | None = None,
) -> str | None:
    """Run one of our commands to its end: what went wrong, in its own last words. None: nothing.

    Raises `trio.TooSlowError` after `timeout_s`, when it has been ended.
    """
    try:
        with trio.fail_after(timeout_s):
            process = await trio.run_process(
                list(words),
                env=env,
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                capture_stdout=True,
                capture_stderr=True,
                check=False,
            )
    except OSError as error:
        return f"it could not be started: {error.strerror}"
    if process.returncode == 0:
        return None
    lines = process.stderr.decode(errors="replace").strip().splitlines()
    return lines[-1].removeprefix("trace-svc: ") if lines else f"exit status {process.returncode}"


@asynccontextmanager
async def child(
    module: str,
    *arguments: str,
    first: bytes = b"",
    pass_fds: Sequence[int] = (),
    env: Mapping[str, str] | None = None,
) -> AsyncIterator[trio.abc.Stream]:
    """Run a module of ours in a process of its own; what it reads and writes is the stream.

    It reads `first` before all else. `env` comes on top of our own environment. Leaving is leaving
    `child_stream`.
    """
    process = await begin_child(module, *arguments, pass_fds=pass_fds, env=env)
    async with child_stream(process, first) as stream:
        yield stream


async def begin_child(
    module: str, *arguments: str, pass_fds: Sequence[int] = (), env: Mapping[str, str] | None = None
) -> trio.Process:
    """Start what `child` runs. The caller ends it, or enters its `child_stream`."""
    started = program(module, *arguments)
    process = await trio.lowlevel.open_process(
        started.words,
        cwd=started.cwd,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        pass_fds=pass_fds,
        env=None if env is None else {**os.environ, **env},
    )
    assert process.stdio is not None
    assert isinstance(process.stdin, trio.lowlevel.FdStream)
    # A system that grants less is slower, not wrong.
    with suppress(OSError):
        fcntl.fcntl(process.stdin.fileno(), _F_SETPIPE_SZ, PIPE_BYTES)
    return process


@asynccontextmanager
async def child_stream(process: trio.Process, first: bytes) -> AsyncIterator[trio.abc.Stream]:
    """Speak with a child, which reads `first` before all else.

    Leaving closes the pipe, waits a moment, and then makes sure.
    """
    assert process.stdio is not None
    try:
        with trio.fail_after(END_TIMEOUT_S):
            await process.stdio.send_all(first)
        yield process.stdio
    finally:
        with trio.CancelScope(shield=True):
            await process.stdio.aclose()
            with trio.move_on_after(END_TIMEOUT_S):
                await process.wait()
            if process.returncode is None:
                process.kill()
                with trio.move_on_after(END_TIMEOUT_S):
                    await process.wait()


def parent_pipe() -> tuple[int, int]:
    """In the child: what the parent says, and where it is answered. Nothing else reaches standard output."""
    answers = os.dup(1)
    os.dup2(2, 1)
    return os.dup(0), answers


def run_for_parent(live: Callable[[int, int], Awaitable[None]], orders: int, answers: int) -> None:
    """In the child: run `live` on both ends of the pipe. Raises what it raises while the parent lives.

    A child whose parent was killed ends in a line at most: what it had in hand breaks under it in ways that
    are no bug, and nobody reads what the interpreter says of objects that are left.
    """
    # `live` closes its own.
    watched = os.dup(orders)
    status = 0
    try:
        trio.run(live, orders, answers)
    except Exception as error:
        if not _hung_up(watched):
            raise
        log.warning("ended because the parent process ended (%s)", type(error).__name__)
        status = 1
    if _hung_up(watched):
        logging.shutdown()
        os._exit(status)


def _hung_up(pipe: int) -> bool:
    """Whether the other end of a pipe is gone."""
    poll = select.poll()
    poll.register(pipe, 0)
    return bool(poll.poll(0))


def end_within(seconds: float) -> None:
    """In the child: be gone after so long, whatever this process does until then."""
    timer = threading.Timer(seconds, os._exit, (1,))
    timer.daemon = True
    timer.start()


def end_with_parent(pipe: int, seconds: float) -> None:
    """In the child: be gone so long after the other end of the pipe, even while work holds the loop."""

    def watch() -> None:
        poll = select.poll()
        # Nothing is asked for; that the other end is gone is always told.
        poll.register(pipe, 0)
        poll.poll()
        end_within(seconds)

    threading.Thread(target=watch, daemon=True).start()
