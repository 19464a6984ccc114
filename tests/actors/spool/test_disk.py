"""The disk spool on a real file: acknowledged means on disk, a crash loses nothing, a full disk says so."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

import attrs
import pytest
import trio

from actors.drainer import Drainer, Tally
from actors.spool.disk import DiskSpool, DiskWriter, SpoolDamaged, SpoolInUse
from actors.spool.memory import SpoolEmpty, Ticket
from actors.supervision import Vitals
from protocol.storage import Batch, Letter, SinkLost, Written
from tests.small_disk import small_disk

WALL = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)


def batch(name: str, size: int = 100) -> Batch:
    return Batch(7, name.encode().ljust(size, b"."), 3, WALL, trio.current_time(), "key")


def name_of(found: Batch) -> str:
    return found.body.rstrip(b".").decode()


@asynccontextmanager
async def opened(
    folder: Path,
    *,
    writer: bool = True,
    max_bytes: int = 10_000_000,
    memory_bytes: int = 10_000_000,
    floor_bytes: int = 0,
) -> AsyncIterator[tuple[DiskSpool, Vitals]]:
    """A spool on a folder with its writer; closed as after a crash: no flush, nothing said."""
    spool = DiskSpool(folder, max_bytes=max_bytes, memory_bytes=memory_bytes, floor_bytes=floor_bytes)
    await spool.recover(trio.current_time(), WALL.timestamp() + 5)
    vitals = Vitals("spool-writer")
    try:
        async with trio.open_nursery() as nursery:
            if writer:
                await nursery.start(DiskWriter(spool=spool, vitals=vitals).run)
            yield spool, vitals
            nursery.cancel_scope.cancel()
    finally:
        with trio.CancelScope(shield=True):
            await spool.shut()


async def accepted(ticket: Ticket) -> str:
    return await ticket.answer(10)


async def lease_all(spool: DiskSpool, *, done: bool) -> list[str]:
    names = []
    while spool.state().depth:
        with await spool.lease(10, 10_000_000) as lease:
            names += [name_of(found) for found in lease.batches]
            if done:
                lease.done()
            else:
                break
    return names


async def test_an_accepted_batch_is_found_by_the_next_process(tmp_path: Path) -> None:
    async with opened(tmp_path) as (spool, _):
        sent = batch("a")
        assert await accepted(spool.offer(sent)) == "accepted"
    async with opened(tmp_path) as (spool, _):
        state = spool.state()
        assert (state.depth, state.recovered_spans, state.accepted_spans) == (1, 3, 0)
        assert 5 <= state.oldest_age_s < 6
        with await spool.lease(10, 10_000) as lease:
            (found,) = lease.batches
            assert (found.body, found.project_id, found.spans) == (sent.body, 7, 3)
            assert (found.received_at, found.key_id) == (WALL, "key")


async def test_an_offer_is_not_accepted_before_it_is_on_disk(tmp_path: Path) -> None:
    async with opened(tmp_path, writer=False) as (spool, _):
        ticket = spool.offer(batch("a"))
        assert ticket.known is None
        assert spool.state().accepted_batches == 0
        await spool.commit_once()
        assert ticket.known == "accepted"


async def test_offers_that_gather_share_one_commit(tmp_path: Path) -> None:
    async with opened(tmp_path, writer=False) as (spool, _):
        tickets = [spool.offer(batch(str(n))) for n in range(20)]
        await spool.commit_once()
        assert [ticket.known for ticket in tickets] == ["accepted"] * 20
        assert await lease_all(spool, done=True) == [str(n) for n in range(20)]


async def test_a_finished_batch_is_gone_for_the_next_process(tmp_path: Path) -> None:
    async with opened(tmp_path) as (spool, _):
        for n in range(3):
            await accepted(spool.offer(batch(str(n))))
        with await spool.lease(3, 10_000) as lease:
            lease.done()
        await spool.flush()
    async with opened(tmp_path) as (spool, _):
        assert await lease_all(spool, done=False) == ["1", "2"]


async def test_an_unfinished_lease_comes_back_now_and_after_a_crash(tmp_path: Path) -> None:
    async with opened(tmp_path) as (spool, _):
        await accepted(spool.offer(batch("a")))
        with await spool.lease(10, 10_000):
            pass
        with await spool.lease(10, 10_000) as lease:
            assert lease.tries == 1
    async with opened(tmp_path) as (spool, _):
        assert await lease_all(spool, done=False) == ["a"]


async def test_bodies_beyond_the_memory_budget_are_read_from_disk(tmp_path: Path) -> None:
    async with opened(tmp_path, memory_bytes=3_000) as (spool, _):
        for n in range(10):
            assert await accepted(spool.offer(batch(str(n), 1_000))) == "accepted"
        assert await lease_all(spool, done=True) == [str(n) for n in range(10)]
        await spool.flush()
        assert spool._held_bytes == 0
        assert spool.state().bytes == 0


async def test_what_waits_for_a_slow_disk_is_bounded_by_the_memory_budget(tmp_path: Path) -> None:
    async with opened(tmp_path, writer=False, memory_bytes=3_100) as (spool, _):
        answers = [spool.offer(batch(str(n), 1_000)).known for n in range(4)]
        assert answers == [None, None, "full", "full"]


async def test_the_budget_on_disk_holds_until_batches_are_finished(tmp_path: Path) -> None:
    body = os.urandom(1_000).hex()
    async with opened(tmp_path, max_bytes=4_000) as (spool, _):
        assert await accepted(spool.offer(batch(body))) == "accepted"
        answers = []
        while "full" not in answers:
            answers.append(await accepted(spool.offer(batch(body))))
        assert spool.offer(batch("x", 5_000)).known == "never"
        with await spool.lease(1, 10_000) as lease:
            lease.done()
        assert await accepted(spool.offer(batch(body))) == "accepted"


async def test_a_closed_spool_hands_out_what_it_has_and_then_ends(tmp_path: Path) -> None:
    async with opened(tmp_path) as (spool, _):
        ticket = spool.offer(batch("a"))
        spool.close()
        assert spool.offer(batch("b")).known == "closed"
        with trio.fail_after(60):
            lease = await spool.lease(10, 10_000)
        with lease:
            assert [name_of(found) for found in lease.batches] == ["a"]
            lease.done()
        assert ticket.known == "accepted"
        with pytest.raises(SpoolEmpty), trio.fail_after(60):
            await spool.lease(10, 10_000)


async def test_two_processes_cannot_share_a_spool(tmp_path: Path) -> None:
    async with opened(tmp_path):
        with pytest.raises(SpoolInUse, match="another process"):
            await DiskSpool(tmp_path, max_bytes=1, memory_bytes=1).recover(0, 0)


async def test_a_file_that_is_no_spool_is_named(tmp_path: Path) -> None:
    (tmp_path / "spool.db").write_bytes(b"not a database" * 100)
    spool = DiskSpool(tmp_path, max_bytes=1, memory_bytes=1)
    with pytest.raises(SpoolDamaged, match=r"spool\.db cannot be opened"):
        await spool.recover(0, 0)
    await spool.shut()


@attrs.define
class Store:
    """A store that takes everything, and a graveyard that is away at first."""

    stored: list[str] = attrs.field(factory=list)
    letters: list[Letter] = attrs.field(factory=list)
    troubles: list[Exception] = attrs.field(factory=list)

    async def write(self, batches: Sequence[Batch]) -> Written:
        await trio.lowlevel.checkpoint()
        if self.troubles:
            raise self.troubles.pop()
        self.stored += [name_of(found) for found in batches]
        return Written(sum(found.spans for found in batches), 0)

    async def bury(self, letters: Sequence[Letter]) -> None:
        await trio.lowlevel.checkpoint()
        self.letters += letters


@pytest.mark.errors_expected
@pytest.mark.parametrize("damage", [b"\x00\xff\x00", b"", None])
@pytest.mark.parametrize("trouble", [[], [SinkLost("it died")]])
async def test_a_damaged_batch_is_buried_whole_and_the_ledger_stays_balanced(
    tmp_path: Path, damage: bytes | None, trouble: list[Exception]
) -> None:
    async with opened(tmp_path) as (spool, _):
        for name in "abc":
            await accepted(spool.offer(batch(name)))
    if damage is not None:
        with sqlite3.connect(tmp_path / "spool.db") as db:
            db.execute("update batch set data = ? where id = 2", (damage,))
        db.close()
    store, tally = Store(troubles=list(trouble)), Tally()
    async with opened(tmp_path) as (spool, _):
        if damage is None:
            # Somebody else took it out of the file meanwhile.
            assert spool._db is not None
            spool._db.execute("delete from batch where id = 2")
        drainer = Drainer(
            spool=spool,
            split=lambda found: [found],
            sink=store,
            graveyard=store,
            tally=tally,
            vitals=Vitals("drainer"),
            on_stored=lambda _found: None,
        )
        spool.close()
        await drainer.run()
        await spool.flush()
        state = spool.state()
        assert sorted(store.stored) == ["a", "c"]
        [letter] = store.letters
        assert (letter.body, letter.spans, letter.project_id) == (damage or b"", 3, 0)
        assert letter.reason.startswith("a spooled batch ")
        assert letter.received_at == (datetime.fromtimestamp(0, UTC) if damage is None else WALL)
        assert state.recovered_spans == tally.stored + tally.dead_lettered == 9
        assert (state.waiting_spans, state.bytes, state.depth) == (0, 0, 0)
    async with opened(tmp_path) as (spool, _):
        assert spool.state().depth == 0


async def test_a_nearly_full_disk_answers_full_and_recovers_when_there_is_room(tmp_path: Path) -> None:
    async with opened(tmp_path, floor_bytes=2**60) as (spool, vitals):
        assert await accepted(spool.offer(batch("a"))) == "full"
        assert vitals.state == "waiting"
        assert "nearly full" in (vitals.waiting_for or "")
        assert spool.state().bytes == 0
        spool._floor_bytes = 0
        answers = []
        while "accepted" not in answers:
            answers.append(await accepted(spool.offer(batch("b"))))
        assert vitals.state == "running"
        assert await lease_all(spool, done=True) == ["b"]


@pytest.fixture
def eight_megabytes(tmp_path: Path) -> Iterator[Path]:
    """A disk of that size."""
    with small_disk(tmp_path / "disk", "8m") as folder:
        yield folder


async def test_a_disk_that_the_spool_fills_goes_on_once_batches_are_finished(eight_megabytes: Path) -> None:
    kept = []
    async with opened(eight_megabytes, floor_bytes=3_000_000) as (spool, _):
        answer = "accepted"
        while answer == "accepted":
            body = f"{len(kept):03}" + os.urandom(50_000).hex()
            answer = await accepted(spool.offer(batch(body)))
            kept += [body] if answer == "accepted" else []
        assert answer == "full"
        assert len(kept) > 10
    async with opened(eight_megabytes, floor_bytes=1_000_000) as (spool, _):
        assert await lease_all(spool, done=True) == kept
        await spool.flush()
        assert await accepted(spool.offer(batch("again"))) == "accepted"


async def test_a_disk_that_somebody_else_fills_corrupts_nothing(eight_megabytes: Path) -> None:
    def body(n: int) -> str:
        return f"{n:03}" + os.urandom(20_000).hex()

    kept = [body(n) for n in range(10)]
    async with opened(eight_megabytes) as (spool, vitals):
        for sent in kept:
            assert await accepted(spool.offer(batch(sent))) == "accepted"
        ballast = eight_megabytes / "ballast"
        with suppress(OSError), ballast.open("wb") as file:
            while True:
                file.write(bytes(4096))
        while await accepted(spool.offer(batch(sent := body(len(kept))))) == "accepted":
            kept.append(sent)
        assert vitals.state == "waiting"
        ballast.unlink()
        with trio.fail_after(60):
            while await accepted(spool.offer(batch(sent))) != "accepted":
                pass
        kept.append(sent)
    async with opened(eight_megabytes) as (spool, _):
        assert await lease_all(spool, done=True) == kept


async def test_a_cancelled_commit_loses_no_offer(tmp_path: Path) -> None:
    async with opened(tmp_path, writer=False) as (spool, _):
        ticket = spool.offer(batch("a"))
        with trio.CancelScope() as scope:
            scope.cancel()
            await spool.commit_once()
        if ticket.known is None:
            await spool.commit_once()
        assert ticket.known == "accepted"
        assert await lease_all(spool, done=True) == ["a"]


async def test_files_are_private(tmp_path: Path) -> None:
    folder = tmp_path / "spool"
    async with opened(folder) as (spool, _):
        await accepted(spool.offer(batch("a")))
        assert folder.stat().st_mode & 0o777 == 0o700
        assert {path.stat().st_mode & 0o077 for path in folder.iterdir()} == {0}


async def test_bodies_that_lie_on_disk_make_room_for_one_that_comes_in(tmp_path: Path) -> None:
    async with opened(tmp_path, memory_bytes=10_000) as (spool, _):
        for n in range(5):
            assert await accepted(spool.offer(batch(str(n), 1_000))) == "accepted"
        held_before = spool._held_bytes
        with spool.reservation() as room, spool.reservation() as other:
            assert room.hold(8_000) == "held"
            assert spool._held_bytes <= 2_000 < held_before
            assert other.hold(3_000) == "full"
        assert spool.state().reserved_bytes == 0
        assert await lease_all(spool, done=True) == [str(n) for n in range(5)]
        assert spool._held_bytes == 0


async def test_a_lease_is_bounded_by_what_its_batches_are_in_memory(tmp_path: Path) -> None:
    async with opened(tmp_path) as (spool, _):
        for n in range(6):
            # Packed, each is some dozens of bytes.
            assert await accepted(spool.offer(batch(str(n), 100_000))) == "accepted"
        assert spool.state().bytes < 6 * 1000
        with await spool.lease(1000, 250_000) as lease:
            assert len(lease.batches) == 2
    async with opened(tmp_path, memory_bytes=100) as (again, _):
        lease = await again.lease(1000, 350_000)
        assert len(lease.batches) == 3


async def test_a_file_of_an_earlier_release_is_leased_by_what_it_inflates_to(tmp_path: Path) -> None:
    async with opened(tmp_path) as (spool, _):
        for n in range(3):
            await accepted(spool.offer(batch(str(n), 100_000)))
    with sqlite3.connect(tmp_path / "spool.db") as db:
        db.execute("alter table batch drop column inflated_bytes")
        db.execute("update batch set data = x'00' where id = 3")
    db.close()
    async with opened(tmp_path) as (again, _):
        lease = await again.lease(1000, 150_000)
        assert [name_of(found) for found in lease.batches] == ["0"]
