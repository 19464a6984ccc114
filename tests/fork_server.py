"""A process that has loaded the code of every command, and forks one whenever a test asks for it.

`tests.forked` starts it and speaks to it; it imports nothing of the tests. Each message on the socket is the
words and the environment of a command with its standard streams and a pipe, on which its exit status comes.
Ends with the process that started it.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import select
import socket
import sys
import time
from contextlib import suppress
from typing import Any

#: What a message and its descriptors take at most: an environment.
MESSAGE_BYTES = 128 * 1024
_DESCRIPTORS = 4


def load() -> None:
    """Load what any command may need: the service, and the modules of all commands."""
    gc.disable()
    from svc.__main__ import main as main
    from svc.commands.table import COMMANDS
    from svc.runtime.logging import set_up as set_up

    importlib.import_module("svc.serve")
    for command in COMMANDS:
        command.entry()
    # Pages that nobody writes to stay shared.
    gc.collect()
    gc.freeze()
    gc.enable()


def serve(control: socket.socket) -> dict[str, Any] | None:
    """Fork until the other end is gone (None). In each child: what it was asked for."""
    poll = select.poll()
    poll.register(control, select.POLLIN)
    children: dict[int, tuple[int, int]] = {}
    while True:
        for fd, _ in poll.poll():
            if fd != control.fileno():
                poll.unregister(fd)
                pid, pipe = children.pop(fd)
                code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                # Nobody may wait for it any more.
                with suppress(BrokenPipeError):
                    os.write(pipe, str(code).encode())
                os.close(fd)
                os.close(pipe)
                continue
            message, descriptors, *_ = socket.recv_fds(control, MESSAGE_BYTES, _DESCRIPTORS)
            if not message:
                return None
            pid = os.fork()
            if pid == 0:
                for pidfd, (_, pipe) in children.items():
                    os.close(pidfd)
                    os.close(pipe)
                os.close(descriptors[3])
                control.close()
                return {**json.loads(message), "streams": descriptors[:3]}
            for stream in descriptors[:3]:
                os.close(stream)
            pidfd = os.pidfd_open(pid)
            children[pidfd] = (pid, descriptors[3])
            poll.register(pidfd, select.POLLIN)
            control.send(str(pid).encode())


def become(command: dict[str, Any]) -> int:
    """Be the process that was asked for. Returns its exit status."""
    for number, stream in enumerate(command["streams"]):
        os.dup2(stream, number)
        os.close(stream)
    os.environ.clear()
    os.environ.update(command["env"])
    time.tzset()
    os.chdir(command["cwd"])
    sys.argv[:] = command["words"]
    sys.orig_argv[:] = [sys.executable, *command["words"]]
    from svc.__main__ import main

    return main()


if __name__ == "__main__":
    load()
    asked = serve(socket.socket(fileno=int(sys.argv[1])))
    sys.exit(0 if asked is None else become(asked))
