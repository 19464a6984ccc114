"""The service's end of the detecting process: how it is launched, and what it is told first.

The wiring hands `detecting_process` to the actor that keeps it. Nothing heavy is imported here: numpy, RE2
and the detectors belong to the child.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Final

import trio

from protocol.detecting import StartDetecting, framed_message
from svc.runtime.child import child

#: Numeric libraries begin a thread for each core as they are imported; one is what detection gets.
_ONE_THREAD: Final = {
    name: "1"
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
}


def detecting_process(start: StartDetecting) -> Callable[[], AbstractAsyncContextManager[trio.abc.Stream]]:
    """How to launch a process that begins with this."""
    return partial(child, "svc.detecting", first=framed_message(start), env=_ONE_THREAD)
