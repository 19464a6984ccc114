"""Laws of `Ingest`: a group is decoded with breaths, one at a time; errors come out with their names."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import attrs
import pytest
import trio

from protocol.storage import Batch, Outage, StoreRefused, WriteFailed, Written
from svc.ingest.writer import Ingest

SOME = 25


@pytest.mark.parametrize("module", ["svc.ingest.decoder", "svc.commands.importing"])
def test_what_writes_spans_does_without_the_arrays_that_judging_needs(module: str) -> None:
    """Nine megabytes for each decoder process, a tenth of a command's start."""
    told = f"import sys, {module}; print('numpy' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", told], text=True, timeout=60) == "False\n"


def batch(rows: int) -> Batch:
    return Batch(7, bytes(rows), rows, datetime(2026, 11, 1, tzinfo=UTC), 0.0)


def decode(batch: Batch) -> Iterator[list[Any]]:
    for start in range(0, len(batch.body), SOME):
        yield list(batch.body[start : start + SOME])


@attrs.define
class Spans:
    """A store that counts."""

    writes: list[int] = attrs.field(factory=list)
    trouble: Exception | None = None
    release: trio.Event = attrs.field(factory=trio.Event)

    async def write(self, rows: Sequence[Any]) -> Written:
        self.writes.append(len(rows))
        if self.trouble is not None:
            raise self.trouble
        await self.release.wait()
        return Written(len(rows), 0)


def ingest(spans: Spans, decode: Callable[[Batch], Iterator[list[Any]]] = decode) -> Ingest:
    return Ingest(decode, spans)  # type: ignore[arg-type]


async def test_requests_are_answered_while_a_large_batch_is_decoded() -> None:
    decoded_at_turn: list[int] = []
    turns = 0

    def slow(batch: Batch) -> Iterator[list[Any]]:
        for some in decode(batch):
            decoded_at_turn.append(turns)
            yield some

    async def answer_requests() -> None:
        nonlocal turns
        while True:
            turns += 1
            await trio.lowlevel.checkpoint()

    spans = Spans()
    spans.release.set()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(answer_requests)
        await ingest(spans, slow).write([batch(20 * SOME)])
        nursery.cancel_scope.cancel()
    # Trio runs every ready task once a round, so the answering task gets a turn after each piece.
    assert max(Counter(decoded_at_turn).values()) <= 2
    assert len(set(decoded_at_turn)) >= 10


async def test_a_group_is_decoded_while_another_is_written() -> None:
    spans = Spans()
    both = ingest(spans)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(both.write, [batch(3)])
        nursery.start_soon(both.write, [batch(1), batch(1)])
        await trio.testing.wait_all_tasks_blocked()
        assert sorted(spans.writes) == [2, 3]
        spans.release.set()


async def test_two_groups_are_not_decoded_at_once() -> None:
    order: list[int] = []

    def noting(batch: Batch) -> Iterator[list[Any]]:
        for some in decode(batch):
            order.append(batch.spans)
            yield some

    spans = Spans()
    spans.release.set()
    both = ingest(spans, noting)
    first, second = 3 * SOME, 2 * SOME
    async with trio.open_nursery() as nursery:
        nursery.start_soon(both.write, [batch(first)])
        nursery.start_soon(both.write, [batch(second)])
    assert order in ([first] * 3 + [second] * 2, [second] * 2 + [first] * 3)


@pytest.mark.parametrize("error", [Outage("away"), StoreRefused("DataError")])
async def test_what_the_store_says_is_passed_on(error: Exception) -> None:
    with pytest.raises(type(error)) as met:
        await ingest(Spans(trouble=error)).write([batch(1)])
    assert met.value is error


async def test_a_bug_is_named_without_quoting_it_where_it_may_be_logged() -> None:
    def broken(batch: Batch) -> Iterator[list[Any]]:
        raise ValueError("a secret\x00")
        yield

    with pytest.raises(WriteFailed) as met:
        await ingest(Spans(), broken).write([batch(1)])
    assert met.value.reason == "ValueError: a secret\ufffd"
    assert str(met.value) == met.value.place
    assert "ValueError in broken" in met.value.place
    assert "secret" not in met.value.place
