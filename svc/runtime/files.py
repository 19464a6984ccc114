"""File descriptors: the three that every process has, as many more as the machine gives, and a log that stays
readable when they are used up.

Called once at the start. What is done about connections then is the doors' (`svc.front.server.connection`).
"""

from __future__ import annotations

import errno
import logging
import os
import resource
import sys
import time
from collections.abc import Callable
from typing import Final

#: Errors of `accept` for want of descriptors or memory.
_CAPACITY: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
#: Where our listeners tell of them: Trio's, and asyncio's for gRPC, each several times a second.
_LOGGERS: Final = ("trio.serve_listeners", "svc.runtime.asyncio_loop", "asyncio")
QUIET_S: Final = 60.0
_KEPT_FILES: Final = 256


def open_standard_streams() -> None:
    """Open what this process was started without of input, output and errors, on the null device.

    Whatever is opened next would have its number, and what is printed or inherited would go there.
    """
    for fd, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(fd)
        except OSError:
            # It has the lowest number that is free.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
        if getattr(sys, name) is None:
            setattr(sys, name, open(fd, mode, encoding="utf-8", closefd=False))  # noqa: SIM115 - as long as we


def raise_file_limit() -> int:
    """Raise the soft limit of open files to the hard one. Returns the limit in force."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (ValueError, OSError):
        # Where the hard limit is boundless the kernel has one of its own all the same.
        return soft
    return hard


def file_limit() -> int:
    """How many files this process may have open now."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def connections_allowed() -> int:
    """How many connections of clients there may be, beside what database, spool and children need."""
    limit = file_limit()
    return max(limit // 2, limit - _KEPT_FILES)


class OncePerMinute(logging.Filter):
    """Lets one record a minute through that tells of a want of descriptors; all others pass."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock, self._told_s = clock, float("-inf")

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a record is logged."""
        if not _tells_of_capacity(record):
            return True
        now_s = self._clock()
        if now_s - self._told_s < QUIET_S:
            return False
        self._told_s = now_s
        # One line says it; a traceback of `accept` says nothing more.
        record.exc_info = None
        return True


def quiet_capacity_errors() -> None:
    """Put one filter before all loggers that tell of it."""
    once = OncePerMinute()
    for name in _LOGGERS:
        logging.getLogger(name).addFilter(once)


def _tells_of_capacity(record: logging.LogRecord) -> bool:
    error = record.exc_info[1] if record.exc_info else None
    if isinstance(error, OSError):
        return error.errno in _CAPACITY
    return "out of system resource" in str(record.msg) or any(
        "out of system resource" in str(argument) for argument in (record.args or ())
    )
