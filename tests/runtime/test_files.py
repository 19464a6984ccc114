"""Laws of the log when descriptors run out: one line a minute, and everything else as it is."""

from __future__ import annotations

import errno
import logging
import sys

from svc.runtime.files import QUIET_S, OncePerMinute


def record(message: str, error: Exception | None = None, *arguments: object) -> logging.LogRecord:
    told = None
    if error is not None:
        try:
            raise error
        except Exception:
            told = sys.exc_info()
    return logging.LogRecord("trio.serve_listeners", logging.ERROR, "x", 1, message, arguments, told)


def test_a_want_of_descriptors_is_told_once_a_minute() -> None:
    now_s = 0.0
    once = OncePerMinute(lambda: now_s)
    told = 0
    for second in range(int(3 * QUIET_S)):
        now_s = float(second)
        told += once.filter(record("accept returned EMFILE", OSError(errno.EMFILE, "too many open files")))
        told += once.filter(
            record("a stray asyncio failure: %s", None, "socket.accept() out of system resource")
        )
    assert told == 3


def test_other_records_pass() -> None:
    once = OncePerMinute(lambda: 0.0)
    for _ in range(5):
        assert once.filter(record("something else", OSError(errno.EPIPE, "broken pipe")))
        assert once.filter(record("something else"))
