"""Laws of the drainers: what was accepted ends stored or buried, whatever breaks on the way.

The store of these tests keeps words. A batch is a line of words, one word a span; what a word begins with
says what becomes of it: `good` is stored, `refused` is refused by the store, `broken` cannot be decoded.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from itertools import count
from types import SimpleNamespace

import attrs
import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock, wait_all_tasks_blocked

from actors.drainer import GROUP, MANY_BATCHES, PACE_S, Drainer, GroupSize, Tally
from actors.spool.memory import MAX_TRIES, MemorySpool
from actors.supervision import CrashLoop, Vitals, keep
from protocol.storage import Batch, Letter, Outage, SinkLost, StoreRefused, WriteFailed, Written
from tests.actors.every_await import Strike, at_every_await
from tests.examples import examples

RECEIVED = datetime(2026, 11, 1, tzinfo=UTC)


def batch(line: str) -> Batch:
    return Batch(7, line.encode(), len(line.split()), RECEIVED, 0.0)


def decode(batch: Batch) -> Iterator[str]:
    for word in batch.body.decode().split():
        if word.startswith("broken"):
            raise ValueError(f"cannot map {word}")
        yield word


def split(batch: Batch) -> Sequence[Batch]:
    return [attrs.evolve(batch, body=word.encode(), spans=1) for word in batch.body.decode().split()]


@attrs.define
class Sink:
    """A store of words. The next calls meet `troubles`, in their order; None is no trouble."""

    stored: set[str] = attrs.field(factory=set)
    letters: list[Letter] = attrs.field(factory=list)
    writes: list[str] = attrs.field(factory=list)
    troubles: list[Exception | None] = attrs.field(factory=list)
    bury_troubles: list[Exception] = attrs.field(factory=list)

    decode: Callable[[Batch], Iterator[str]] = decode

    async def write(self, batches: Sequence[Batch]) -> Written:
        rows = [word for batch in batches for word in self.decode(batch)]
        await trio.lowlevel.checkpoint()
        if self.troubles and (trouble := self.troubles.pop(0)) is not None:
            raise trouble
        self.writes.append(" ".join(rows))
        if any(word.startswith("refused") for word in rows):
            raise StoreRefused("NumericValueOutOfRangeError")
        new = set(rows) - self.stored
        self.stored |= new
        # A commit that the writer may not live to hear of.
        await trio.lowlevel.checkpoint()
        return Written(len(new), len(rows) - len(new))

    async def bury(self, letters: Sequence[Letter]) -> None:
        await trio.lowlevel.checkpoint()
        if self.bury_troubles:
            raise self.bury_troubles.pop(0)
        self.letters.extend(letters)
        await trio.lowlevel.checkpoint()

    def buried(self) -> list[str]:
        return [letter.body.decode() for letter in self.letters]


@attrs.define
class Lane:
    """A spool, a store, and the drainers between them."""

    spool: MemorySpool = attrs.field(factory=lambda: MemorySpool(1 << 30))
    sink: Sink = attrs.field(factory=Sink)
    tally: Tally = attrs.field(factory=Tally)
    vitals: Vitals = attrs.field(factory=lambda: Vitals("drainer"))
    settled: list[Batch] = attrs.field(factory=list)

    def drainer(self, vitals: Vitals | None = None, **parts: object) -> Drainer:
        given = {
            "split": split,
            "sink": self.sink,
            "graveyard": self.sink,
            "on_stored": self.settled.append,
        }
        return Drainer(spool=self.spool, tally=self.tally, vitals=vitals or self.vitals, **(given | parts))

    def offer(self, *lines: str) -> None:
        for line in lines:
            assert self.spool.offer(batch(line)).known == "accepted"

    async def drain(self, **parts: object) -> None:
        """Close the spool and drain it with one drainer."""
        self.spool.close()
        await self.drainer(**parts).run()
        self.assert_empty()

    def assert_empty(self) -> None:
        assert (self.spool.state().depth, self.spool.state().bytes) == (0, 0)


@pytest.fixture
def lane() -> Lane:
    return Lane()


# The straight way.


async def test_waiting_batches_are_stored_in_one_write_and_their_bytes_freed(lane: Lane) -> None:
    lane.offer("good1 good2", "good3")
    await lane.drain()
    assert lane.sink.writes == ["good1 good2 good3"]
    assert lane.tally == Tally(stored=3, groups=1)
    assert lane.settled == [batch("good1 good2"), batch("good3")]


async def test_a_group_keeps_to_its_measured_size(lane: Lane) -> None:
    line = " ".join(f"good{number}" for number in range(GROUP.spans // 2))
    lane.offer(line, line, "good")
    await lane.drain()
    assert [len(write.split()) for write in lane.sink.writes] == [GROUP.spans, 1]
    heavy = "good " + " " * (GROUP.bytes // 2)
    fresh = Lane()
    fresh.offer(heavy, heavy)
    await fresh.drain()
    assert fresh.sink.writes == ["good", "good"]


async def begun_at(lane: Lane, *batches: str, then: str, **parts: object) -> list[float]:
    """When the writes began, on Trio's clock: of these batches, and of one that came right after them."""
    began_s: list[float] = []
    settled = trio.Event()

    def on_stored(batch: Batch) -> None:
        lane.settled.append(batch)
        if len(lane.settled) > len(batches):
            settled.set()

    async def write(batches: Sequence[Batch]) -> Written:
        began_s.append(trio.current_time())
        if len(began_s) == 1:
            lane.offer(then)
        return await lane.sink.write(batches)

    lane.offer(*batches)
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            sink = SimpleNamespace(write=write)
            nursery.start_soon(lane.drainer(sink=sink, on_stored=on_stored, **parts).run)
            await settled.wait()
            lane.spool.close()
    return began_s


async def test_small_requests_that_come_quickly_share_their_transactions(
    lane: Lane, autojump_clock: MockClock
) -> None:
    many = [f"good-{number}" for number in range(MANY_BATCHES)]
    first_s, second_s = await begun_at(lane, *many, then="good-last")
    assert second_s - first_s == pytest.approx(PACE_S)


@pytest.mark.parametrize("batches", [1, MANY_BATCHES - 1])
async def test_few_requests_wait_for_nothing(lane: Lane, batches: int, autojump_clock: MockClock) -> None:
    few = [f"good-{number}" for number in range(batches)]
    first_s, second_s = await begun_at(lane, *few, then="good-last")
    assert second_s == first_s


@pytest.mark.parametrize("full_of", ["spans", "bytes"])
async def test_after_a_group_that_is_half_full_nothing_is_waited_for(
    lane: Lane, full_of: str, autojump_clock: MockClock
) -> None:
    many = [f"good-{number}" for number in range(MANY_BATCHES)]
    measure = MemorySpool(1 << 30)
    for line in many:
        measure.offer(batch(line))
    half = GroupSize(2 * MANY_BATCHES, GROUP.bytes)
    if full_of == "bytes":
        half = GroupSize(GROUP.spans, 2 * measure.state().bytes)
    first_s, second_s = await begun_at(lane, *many, then="good-last", group=half)
    assert second_s == first_s


async def test_a_span_sent_again_is_a_duplicate_and_not_an_error(lane: Lane) -> None:
    lane.offer("good1", "good1 good2")
    await lane.drain()
    assert (lane.tally.stored, lane.tally.duplicates, lane.tally.dead_lettered) == (2, 1, 0)


# Outages.


async def test_an_outage_is_waited_out_and_is_no_try(lane: Lane, autojump_clock: MockClock) -> None:
    lane.sink.troubles = [Outage("the database is away")] * (2 * MAX_TRIES + 1)
    lane.offer("good1", "good2 good3")
    before = trio.current_time()
    await lane.drain()
    assert trio.current_time() - before == pytest.approx(0.1 + 0.2 + 0.5 + 1.0 + 2.0 + 2.0 + 2.0)
    # Still one group: nothing was taken apart, nothing put back.
    assert lane.sink.writes == ["good1 good2 good3"]
    assert lane.tally == Tally(stored=3, groups=1)


async def test_an_outage_is_shown_while_it_lasts(lane: Lane, autojump_clock: MockClock) -> None:
    lane.sink.troubles = [Outage("the database is away")] * 5
    lane.offer("good1")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lane.drainer().run)
        await trio.sleep(1.0)
        assert lane.vitals.snapshot() == {
            "state": "waiting",
            "crashes": 0,
            "waiting_for": "the database is away",
        }
        await trio.sleep(10.0)
        assert lane.vitals.snapshot() == {"state": "running", "crashes": 0}
        lane.spool.close()


async def test_after_an_outage_the_next_one_is_met_with_short_pauses_again(
    lane: Lane, autojump_clock: MockClock
) -> None:
    away = Outage("away")
    lane.sink.troubles = [away, away, away, away, None, away]
    lane.offer("good1")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lane.drainer().run)
        await trio.sleep(60.0)
        lane.offer("good2")
        before = trio.current_time()
        lane.spool.close()
    assert trio.current_time() - before == pytest.approx(0.1)


@pytest.mark.errors_expected
async def test_an_outage_while_burying_is_waited_out(lane: Lane, autojump_clock: MockClock) -> None:
    lane.sink.bury_troubles = [Outage("away"), Outage("away")]
    lane.offer("refused1")
    await lane.drain()
    assert lane.sink.buried() == ["refused1"]


@pytest.mark.errors_expected
async def test_an_outage_while_a_batch_is_taken_apart_buries_nothing(
    lane: Lane, autojump_clock: MockClock
) -> None:
    refused, away = StoreRefused("DataError"), Outage("away")
    # The group, the batch alone, then each of its spans, every one with an outage before it.
    lane.sink.troubles = [away, refused, away, refused, away, None, away, None]
    lane.offer("good1 good2")
    await lane.drain()
    assert lane.sink.stored == {"good1", "good2"}
    assert lane.sink.letters == []


async def test_the_spool_fills_during_an_outage_and_takes_again_after_it(
    autojump_clock: MockClock,
) -> None:
    lane = Lane(MemorySpool(2 * batch("good1").size_bytes))
    lane.sink.troubles = [Outage("away")] * 8
    lane.offer("good1", "good2")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lane.drainer().run)
        await trio.sleep(5.0)
        # Both are in the drainer's hands, and count.
        assert lane.spool.offer(batch("good3")).known == "full"
        await trio.sleep(60.0)
        lane.offer("good3")
        lane.spool.close()
    assert lane.sink.stored == {"good1", "good2", "good3"}


# What cannot be stored.


@pytest.mark.errors_expected
async def test_a_refused_group_is_taken_apart_batch_by_batch_then_span_by_span(lane: Lane) -> None:
    lane.offer("good1 good2", "good3 refused1 good4", "good5")
    await lane.drain()
    assert lane.sink.writes == [
        "good1 good2 good3 refused1 good4 good5",
        "good1 good2",
        "good3 refused1 good4",
        "good3",
        "refused1",
        "good4",
        "good5",
    ]
    assert lane.sink.stored == {"good1", "good2", "good3", "good4", "good5"}
    assert lane.sink.buried() == ["refused1"]
    assert (lane.tally.stored, lane.tally.dead_lettered) == (5, 1)
    assert len(lane.settled) == 3


@pytest.mark.errors_expected
async def test_a_letter_says_whose_span_it_is_and_why_it_lies_there(lane: Lane) -> None:
    lane.offer("good1 refused1")
    await lane.drain()
    assert lane.sink.letters == [
        Letter(7, "StoreRefused: NumericValueOutOfRangeError", b"refused1", RECEIVED, 1)
    ]


@pytest.mark.errors_expected
async def test_a_bug_in_a_mapping_costs_the_span_and_nothing_else(lane: Lane) -> None:
    lane.offer("good1", "good2 broken1 good3", "good4")
    await lane.drain()
    assert lane.sink.stored == {"good1", "good2", "good3", "good4"}
    assert [(letter.body, letter.reason) for letter in lane.sink.letters] == [
        (b"broken1", "ValueError: cannot map broken1")
    ]
    assert lane.vitals.crashes == 0


@pytest.mark.errors_expected
async def test_a_batch_that_cannot_be_taken_apart_is_buried_whole(lane: Lane) -> None:
    def cannot(batch: Batch) -> Sequence[Batch]:
        raise ValueError("no spans here")

    lane.offer("good1", "good2 broken1 good3")
    await lane.drain(split=cannot)
    assert lane.sink.stored == {"good1"}
    [letter] = lane.sink.letters
    assert (letter.body, letter.spans) == (b"good2 broken1 good3", 3)
    assert lane.tally.dead_lettered == 3


@pytest.mark.errors_expected
async def test_an_unexpected_error_of_the_store_is_narrowed_down_like_a_refusal(lane: Lane) -> None:
    lane.sink.troubles = [TypeError("a bug in the store"), None]
    lane.offer("good1", "good2")
    await lane.drain()
    assert lane.sink.stored == {"good1", "good2"}
    assert lane.sink.letters == []


@pytest.mark.errors_expected
async def test_no_word_of_a_payload_reaches_the_log(lane: Lane, caplog: pytest.LogCaptureFixture) -> None:
    def cannot(batch: Batch) -> Sequence[Batch]:
        raise ValueError(f"cannot split {batch.body!r}")

    caplog.set_level(logging.DEBUG)
    lane.offer("good-secret broken-secret refused-secret")
    lane.offer("refused-secret")
    await lane.drain()
    lane = Lane()
    lane.offer("broken-secret good-secret")
    await lane.drain(split=cannot)
    assert "dead-lettered" in caplog.text
    assert "secret" not in caplog.text
    # What the log must still say: which error it was, and where.
    assert "ValueError in decode" in caplog.text


@pytest.mark.errors_expected
@pytest.mark.parametrize("text", ["a\x00b", "a\ud800b", "\U0001f600" * 600])
async def test_the_reason_of_a_letter_is_always_fit_for_the_database(lane: Lane, text: str) -> None:
    def quoting(batch: Batch) -> Iterator[str]:
        raise ValueError(text)
        yield

    lane.offer("good1")
    lane.sink.decode = quoting
    await lane.drain()
    [letter] = lane.sink.letters
    assert "\x00" not in letter.reason
    assert letter.reason.encode().startswith(b"ValueError: ")
    assert len(letter.reason) <= 500


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(
        st.lists(st.sampled_from(["good", "good", "refused", "broken"]), min_size=1, max_size=4), max_size=6
    ),
    st.integers(1, 3),
    st.lists(st.sampled_from([None, Outage("away")]), max_size=12),
)
@pytest.mark.errors_expected
def test_every_accepted_span_ends_stored_or_buried(
    batches: list[list[str]], drainers: int, outages: list[Exception | None]
) -> None:
    async def scenario() -> None:
        lane = Lane()
        lane.sink.troubles = list(outages)
        numbers = count(1)
        lines = [[f"{kind}{next(numbers)}" for kind in kinds] for kinds in batches]
        words = [word for line in lines for word in line]
        lane.offer(*[" ".join(line) for line in lines])
        lane.spool.close()
        async with trio.open_nursery() as nursery:
            for _ in range(drainers):
                nursery.start_soon(lane.drainer(Vitals("drainer")).run)
        assert lane.sink.stored == {word for word in words if word.startswith("good")}
        assert sorted(lane.sink.buried()) == sorted(word for word in words if not word.startswith("good"))
        assert lane.tally.stored + lane.tally.dead_lettered == len(words)
        assert len(lane.settled) == len(batches)
        lane.assert_empty()

    trio.run(scenario, clock=MockClock(autojump_threshold=0))


@pytest.mark.errors_expected
async def test_a_writer_elsewhere_tells_the_letter_why_and_the_log_where(
    lane: Lane, caplog: pytest.LogCaptureFixture
) -> None:
    lane.sink.troubles = [WriteFailed("ValueError: quotes a secret", "ValueError in map_span")] * 3
    lane.offer("good1")
    await lane.drain()
    assert [letter.reason for letter in lane.sink.letters] == ["ValueError: quotes a secret"]
    assert "ValueError in map_span" in caplog.text
    assert "secret" not in caplog.text


# A writer that dies.


async def test_what_a_dead_writer_had_in_hand_is_written_again(lane: Lane) -> None:
    lane.sink.troubles = [SinkLost("it died")]
    lane.offer("good1", "good2")
    await lane.drain()
    # Each alone, because one of them may be to blame.
    assert lane.sink.writes == ["good1", "good2"]
    assert lane.tally == Tally(stored=2, groups=2)


@pytest.mark.errors_expected
async def test_a_span_that_kills_its_writer_each_time_is_buried_and_its_neighbours_are_stored(
    lane: Lane,
) -> None:
    def deadly(batch: Batch) -> Iterator[str]:
        if b"deadly" in batch.body:
            raise SinkLost("it died")
        return decode(batch)

    lane.sink.decode = deadly
    lane.offer("good1 deadly1 good2", "good3")
    await lane.drain()
    assert lane.sink.stored == {"good1", "good2", "good3"}
    assert lane.sink.buried() == ["deadly1"]
    lane.assert_empty()


# Crashes.


@pytest.mark.errors_expected
async def test_a_crash_puts_the_work_in_hand_back_and_the_next_life_finishes_it(
    lane: Lane, autojump_clock: MockClock
) -> None:
    lane.sink.bury_troubles = [RuntimeError("a bug")]
    lane.offer("good1 refused1", "good2")
    lane.spool.close()
    await keep(lane.drainer, lane.vitals)
    assert lane.vitals.crashes == 1
    assert lane.sink.stored == {"good1", "good2"}
    assert lane.sink.buried() == ["refused1"]
    lane.assert_empty()


@pytest.mark.errors_expected
async def test_a_crash_of_one_drainer_leaves_its_work_to_the_others(
    lane: Lane, autojump_clock: MockClock
) -> None:
    other = Vitals("other")
    lane.sink.bury_troubles = [RuntimeError("a bug")]
    lane.offer("refused1")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(keep, lane.drainer, lane.vitals))
        nursery.start_soon(partial(keep, partial(lane.drainer, other), other))
        await wait_all_tasks_blocked()
        assert lane.sink.buried() == ["refused1"]
        assert sorted([lane.vitals.crashes, other.crashes]) == [0, 1]
        lane.spool.close()
    lane.assert_empty()


@pytest.mark.errors_expected
async def test_a_crash_loop_ends_with_every_batch_back_in_the_spool(
    lane: Lane, autojump_clock: MockClock
) -> None:
    lane.sink.bury_troubles = [RuntimeError("a bug")] * 10
    lane.offer("refused1", "good1")
    before = lane.spool.state()
    with pytest.raises(CrashLoop):
        await keep(lane.drainer, lane.vitals)
    assert lane.spool.state() == attrs.evolve(before, oldest_age_s=lane.spool.state().oldest_age_s)


@pytest.mark.errors_expected
@pytest.mark.parametrize(("tries", "whole_writes"), [(MAX_TRIES - 1, 2), (MAX_TRIES, 1)])
async def test_after_three_tries_a_batch_is_taken_apart_at_once(
    lane: Lane, tries: int, whole_writes: int
) -> None:
    lane.offer("good1 refused1")
    for _ in range(tries):
        with await lane.spool.lease(1, 1):
            pass
    await lane.drain()
    assert lane.sink.writes == ["good1 refused1"] * whole_writes + ["good1", "refused1"]
    assert lane.sink.stored == {"good1"}
    assert lane.sink.buried() == ["refused1"]


# Closing and cancelling.


async def test_a_drainer_ends_when_the_spool_is_closed_and_drained(lane: Lane) -> None:
    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(lane.drainer(Vitals("drainer")).run)
        await wait_all_tasks_blocked()
        lane.offer("good1", "good2")
        lane.spool.close()
    assert lane.sink.stored == {"good1", "good2"}
    lane.assert_empty()


async def test_closing_during_an_outage_waits_for_its_end(lane: Lane, autojump_clock: MockClock) -> None:
    lane.sink.troubles = [Outage("away")] * 6
    lane.offer("good1")
    ended_s: list[float] = []

    async def drain() -> None:
        await lane.drainer(Vitals("drainer")).run()
        ended_s.append(trio.current_time() - before)

    before = trio.current_time()
    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(drain)
        await wait_all_tasks_blocked()
        lane.spool.close()
    assert ended_s == pytest.approx([0.1 + 0.2 + 0.5 + 1.0 + 2.0 + 2.0] * 3)
    assert lane.sink.stored == {"good1"}


def test_a_drainer_says_that_it_is_ready_before_it_waits_for_work() -> None:
    async def scenario() -> None:
        async with trio.open_nursery() as nursery:
            await nursery.start(Lane().drainer().run)
            nursery.cancel_scope.cancel()

    trio.run(scenario)


@pytest.mark.errors_expected
def test_a_drainer_cancelled_at_any_await_loses_no_batch() -> None:
    lines = ["good1 good2", "good3 refused1 broken1", "good4", "refused2"]

    async def scenario(strike: Strike) -> None:
        lane = Lane()
        lane.sink.troubles = [Outage("away"), None, Outage("away")]
        lane.sink.bury_troubles = [Outage("away")]
        lane.offer(*lines[:2])

        async def offer_more() -> None:
            await trio.sleep(2.0)
            lane.offer(lines[2])
            await trio.sleep(0.05)
            lane.offer(lines[3])
            lane.spool.close()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(offer_more)
            await strike.run(lane.drainer().run)
        done, left = set(lane.settled), lane.spool.state()
        for line in lines:
            # A batch is told as settled only when all its words are where they belong.
            if batch(line) in done:
                assert set(line.split()) <= lane.sink.stored | set(lane.sink.buried())
        # A batch can be settled and yet come back, when the group's next one was struck; never the reverse.
        assert left.depth >= len(lines) - len(done)
        back = []
        while lane.spool.state().depth:
            with await lane.spool.lease(1, 1) as lease:
                back += lease.batches
                lease.done()
        lane.assert_empty()
        assert left.bytes == sum(each.size_bytes for each in back)
        assert set(back) | done == {batch(line) for line in lines}
        # What came back is stored by the next drainer; that it had been stored already does no harm.
        again = Lane(sink=lane.sink)
        again.offer(*[each.body.decode() for each in back])
        await again.drain()
        assert lane.sink.stored == {"good1", "good2", "good3", "good4"}
        assert set(lane.sink.buried()) == {"refused1", "broken1", "refused2"}

    assert at_every_await(scenario) >= 15
