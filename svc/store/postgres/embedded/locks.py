"""Files whose locks say who uses the embedded cluster; what each of them means stands in `server`.

Called by whoever starts, stops or replaces the cluster. The kernel frees a lock when its holder dies.
"""

from __future__ import annotations

import fcntl
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from math import inf
from pathlib import Path
from typing import Final

import trio

from protocol.paths import path_refusal
from svc.store.postgres.embedded.cluster import EmbeddedServerError

_POLL_S: Final = 0.02
_SAY_S: Final = 3.0

log = logging.getLogger(__name__)


@contextmanager
def opened(path: Path, flags: int = os.O_RDWR) -> Iterator[int]:
    """A descriptor of the file, made 0600 when missing; a link in its place is refused."""
    try:
        fd = os.open(path, flags | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise EmbeddedServerError(path_refusal(path, error, "SVC_DATA_DIR")) from error
    try:
        yield fd
    finally:
        os.close(fd)


def try_lock(fd: int, how: int) -> bool:
    """Take the lock if it is free. A failed attempt gives up what `fd` held of it before."""
    try:
        fcntl.flock(fd, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


async def wait_lock(fd: int, how: int, holder: str, timeout_s: float) -> None:
    """Wait for a lock that `holder` has, and say so when it takes long. Raises `EmbeddedServerError`."""
    say_at_s = trio.current_time() + _SAY_S
    with trio.move_on_after(timeout_s):
        while not try_lock(fd, how):
            if trio.current_time() >= say_at_s:
                log.warning("waiting for %s, up to %.0f s", holder, timeout_s)
                say_at_s = inf
            await trio.sleep(_POLL_S)
        return
    raise EmbeddedServerError(f"waited {timeout_s:.0f} s for {holder}")
