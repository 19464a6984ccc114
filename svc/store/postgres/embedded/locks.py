"""Files whose locks say who uses the embedded cluster; what each of them means stands in `server`.

Called by whoever starts, stops or replaces the cluster. The kernel frees a lock when its holder dies.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import trio

from svc.store.postgres.embedded.cluster import EmbeddedServerError

_POLL_S: Final = 0.02


@contextmanager
def opened(path: Path, flags: int = os.O_RDWR) -> Iterator[int]:
    """A descriptor of the file, made 0600 when missing; a link in its place is refused."""
    try:
        fd = os.open(path, flags | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise EmbeddedServerError(f"cannot open {path}: {error.strerror}") from error
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
    """Wait for a lock that `holder` has. Raises `EmbeddedServerError`."""
    with trio.move_on_after(timeout_s):
        while not try_lock(fd, how):  # noqa: ASYNC110 - the kernel sets no event of ours
            await trio.sleep(_POLL_S)
        return
    raise EmbeddedServerError(f"waited {timeout_s:.0f} s for {holder}")
