"""Laws of launching decoders: those begun ahead are taken first, and nobody is left behind."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from protocol.database_address import Address
from svc.domain.pricing.prices import PriceBook
from svc.ingest.launching import DecoderLauncher

#: Nobody answers there; a decoder that was told so waits.
NOWHERE = Address("/nowhere", 1, "nobody", "", "none")


@pytest.fixture
def decoders() -> Callable[[], set[int]]:
    """Which processes this one has begun since, ended ones apart."""
    before = children()
    return lambda: children() - before


def children() -> set[int]:
    """The processes of this one. What they run is not to be read in the moment in which they begin."""
    threads = Path(f"/proc/{os.getpid()}/task").glob("*/children")
    return {int(child) for thread in threads for child in thread.read_text().split()}


async def test_processes_begun_ahead_are_launched_first(decoders: Callable[[], set[int]]) -> None:
    launcher = DecoderLauncher()
    launch = launcher.process(NOWHERE, "ERROR", "text", PriceBook(), pool_size=1, trace_days=30)
    async with launcher.ahead(2):
        ahead = decoders()
        assert len(ahead) == 2
        async with AsyncExitStack() as stack:
            for _ in range(2):
                await stack.enter_async_context(launch())
            assert decoders() == ahead
            await stack.enter_async_context(launch())
            assert len(decoders() - ahead) == 1
    assert decoders() == set()


async def test_a_start_that_fails_ends_the_processes_that_it_began(
    decoders: Callable[[], set[int]],
) -> None:
    async def start() -> None:
        async with DecoderLauncher().ahead(2):
            assert len(decoders()) == 2
            raise ValueError("the port is taken")

    with pytest.raises(ValueError, match="the port is taken"):
        await start()
    assert decoders() == set()
