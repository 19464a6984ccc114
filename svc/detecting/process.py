"""The service's end of the detecting process: how it is launched, and what it is told first.

The wiring hands `detecting_process` to the actor that keeps it. Nothing heavy is imported here: numpy, RE2
and the detectors belong to the child.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Final

import trio

from protocol.database_address import Address
from protocol.detecting import StartDetecting, framed_message
from svc.runtime.child import END_TIMEOUT_S, child

#: Numeric libraries begin a thread for each core as they are imported; one is what detection gets.
_ONE_THREAD: Final = {
    name: "1"
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
}


def detecting_process(
    address: Address,
    log_level: str,
    log_format: str,
    *,
    pool_size: int,
    secret_key: bytes,
    interval_s: float,
    false_alarms_per_month: float,
    encoder_url: str | None,
    encoder_key: str | None,
    alone: bool,
) -> Callable[[], AbstractAsyncContextManager[trio.abc.Stream]]:
    """How to launch a process that reads from and writes to this database."""
    start = StartDetecting(
        address=address,
        log_level=log_level,
        log_format=log_format,
        pool_size=pool_size,
        secret_key=secret_key,
        interval_s=interval_s,
        false_alarms_per_month=false_alarms_per_month,
        encoder_url=encoder_url,
        encoder_key=encoder_key,
        alone=alone,
    )

    @asynccontextmanager
    async def launched() -> AsyncIterator[trio.abc.Stream]:
        async with child("svc.detecting", env=_ONE_THREAD) as stream:
            with trio.fail_after(END_TIMEOUT_S):
                await stream.send_all(framed_message(start))
            yield stream

    return launched
