"""Laws of the detecting process's keeper: whatever the process does, the service knows how it stands.

The process of these tests is a task at the other end of a memory stream that does what it is told; the real
one is met in `tests/detecting` and `tests/e2e`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import attrs
import pytest
import trio
from trio.testing import MockClock, memory_stream_pair

from actors.child_pipe import ASLEEP
from actors.detecting import (
    BUSY_LOOK_S,
    GLANCE_S,
    NAP_S,
    REST_S,
    SILENCE_S,
    START_TIMEOUT_S,
    Detecting,
    DetectingProcess,
)
from actors.supervision import FIRST_REST_S, LONGEST_REST_S, Board
from protocol.detecting import IngestBusy, Report, RoundReport, framed_message, read_to_detecting
from protocol.framing import Frames
from tests.actors.every_await import Strike, at_every_await

FOLDING = RoundReport("trace-folder", "running", counts={"traces": 5})
Manner = Callable[[trio.abc.Stream], Awaitable[None]]


def saying(*reports: Report) -> Manner:
    async def say(stream: trio.abc.Stream) -> None:
        for report in reports:
            await stream.send_all(framed_message(report))
        await trio.sleep_forever()

    return say


async def live(stream: trio.abc.Stream) -> None:
    """Give a sign of life now and then, with nothing new in it."""
    while True:
        await stream.send_all(framed_message(Report((FOLDING,))))
        await trio.sleep(30.0)


async def report_and_die(stream: trio.abc.Stream) -> None:
    await stream.send_all(framed_message(Report((FOLDING,))))


async def die(stream: trio.abc.Stream) -> None:
    """End without a word."""


async def babble(stream: trio.abc.Stream) -> None:
    await stream.send_all(b"\x00\x00\x00\x02no")
    await trio.sleep_forever()


async def boast(stream: trio.abc.Stream) -> None:
    await stream.send_all(b"\x7f\x00\x00\x00")
    await trio.sleep_forever()


@attrs.define(eq=False)
class House:
    """A keeper with processes of these manners, the last one's for all that follow."""

    manners: list[Manner]
    board: Board = attrs.field(factory=Board)
    busy: bool = False
    #: What arrived and was asked so far; with `lively`, there is always more.
    stirs: int = 0
    lively: bool = False
    pause_s: float = 0.0
    launched_s: list[float] = attrs.field(factory=list)
    detecting: Detecting = attrs.field(init=False)
    keeper: DetectingProcess = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.detecting = Detecting(self.board)
        self.keeper = DetectingProcess(
            detection=self.detecting,
            launch=self.launch,
            busy=lambda: self.busy,
            stirs=self.stirring,
            vitals=self.board.enrol("detecting", spare=True),
            pause_s=self.pause_s,
        )

    def stirring(self) -> int:
        self.stirs += self.lively
        return self.stirs

    @asynccontextmanager
    async def launch(self) -> AsyncIterator[trio.abc.Stream]:
        manner = self.manners[min(len(self.launched_s), len(self.manners) - 1)]
        self.launched_s.append(trio.current_time())
        ours, theirs = memory_stream_pair()

        async def process() -> None:
            async with theirs:
                await manner(theirs)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(process)
            yield ours
            nursery.cancel_scope.cancel()

    async def run_for(self, seconds: float) -> None:
        with trio.move_on_after(seconds):
            await self.keeper.run()

    def state(self, name: str) -> str:
        return {vitals.name: vitals.state for vitals in self.board.all()}[name]


async def test_the_first_process_waits_for_the_start_to_be_over(autojump_clock: MockClock) -> None:
    house = House([saying(Report((FOLDING,)))], pause_s=5.0)
    began_s = trio.current_time()
    async with trio.open_nursery() as nursery:
        await nursery.start(house.keeper.run)
        assert trio.current_time() == began_s
        await trio.sleep(6)
        assert [at_s - began_s for at_s in house.launched_s] == [5.0]
        nursery.cancel_scope.cancel()


async def test_rounds_stand_on_the_board_as_they_were_reported(autojump_clock: MockClock) -> None:
    failed = RoundReport(
        "judge", "failed", crashes=3, last_error="ValueError: no", rests_s=4.0, counts={"slots": 2}
    )
    house = House([saying(Report((FOLDING, failed)))])
    async with trio.open_nursery() as nursery:
        await nursery.start(house.keeper.run)
        await trio.sleep(0.1)
        shown = {vitals.name: vitals.snapshot() for vitals in house.board.all()}
        assert shown == {
            "detecting": {"state": "running", "crashes": 0},
            "trace-folder": {"state": "running", "crashes": 0},
            "judge": {"state": "failed", "crashes": 3, "last_error": "ValueError: no", "rests_s": 4.0},
        }
        assert all(vitals.spare for vitals in house.board.all())
        assert house.detecting.counts("trace-folder")["traces"] == 5
        assert house.detecting.counts("judge") == {"slots": 2}
        nursery.cancel_scope.cancel()


async def test_a_process_that_dies_is_started_anew_after_growing_rests(autojump_clock: MockClock) -> None:
    house = House([die])
    await house.run_for(7.5)
    gaps = [b - a for a, b in zip(house.launched_s, house.launched_s[1:], strict=False)]
    assert gaps == pytest.approx([FIRST_REST_S, 2 * FIRST_REST_S, 4 * FIRST_REST_S])
    await house.run_for(50 * LONGEST_REST_S)
    assert house.launched_s[-1] - house.launched_s[-2] == pytest.approx(LONGEST_REST_S)


async def test_one_that_lived_for_long_is_not_made_to_wait(autojump_clock: MockClock) -> None:
    async def live_a_while(stream: trio.abc.Stream) -> None:
        await report_and_die(stream)
        await trio.sleep(100.0)

    house = House([die, die, live_a_while, die])
    await house.run_for(105.0)
    assert house.launched_s[3] - house.launched_s[2] == pytest.approx(100.0 + FIRST_REST_S)


@pytest.mark.parametrize("manner", [die, babble, boast, saying(Report((RoundReport("x", "odd"),)))])
async def test_one_that_dies_or_speaks_nonsense_is_told_and_replaced(
    manner: Manner, autojump_clock: MockClock
) -> None:
    house = House([manner, saying(Report((FOLDING,)))])
    async with trio.open_nursery() as nursery:
        await nursery.start(house.keeper.run)
        await trio.sleep(0.5)
        (vitals, *_) = house.board.all()
        assert (vitals.state, vitals.rests_s) == ("waiting", FIRST_REST_S)
        assert "the detecting process is away" in (vitals.waiting_for or "")
        await trio.sleep(1.0)
        assert (vitals.state, house.state("trace-folder")) == ("running", "running")
        assert house.detecting.deaths == 1
        nursery.cancel_scope.cancel()


async def test_what_was_counted_stays_counted_when_the_process_dies(autojump_clock: MockClock) -> None:
    house = House([report_and_die, saying(Report((FOLDING,)))])
    async with trio.open_nursery() as nursery:
        await nursery.start(house.keeper.run)
        await trio.sleep(0.5)
        assert house.detecting.counts("trace-folder") == {"traces": 5}
        assert house.state("trace-folder") == "waiting"
        await trio.sleep(1.0)
        assert house.detecting.counts("trace-folder") == {"traces": 10}
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("manner", "patience_s"),
    [(saying(), START_TIMEOUT_S), (saying(Report((FOLDING,))), SILENCE_S)],
)
async def test_a_process_that_falls_silent_is_ended(
    manner: Manner, patience_s: float, autojump_clock: MockClock
) -> None:
    house = House([manner], lively=True)
    await house.run_for(patience_s + 2 * FIRST_REST_S)
    assert house.launched_s[1] - house.launched_s[0] == pytest.approx(patience_s + FIRST_REST_S)


async def test_where_nothing_stirs_the_process_ends_and_begins_with_the_next_sign_of_life(
    autojump_clock: MockClock,
) -> None:
    house = House([live])
    async with trio.open_nursery() as nursery:
        await nursery.start(house.keeper.run)
        await trio.sleep(REST_S - 1.0)
        house.stirs += 1
        await trio.sleep(REST_S - 1.0)
        (detecting, folder) = house.board.all()
        assert detecting.note is None
        await trio.sleep(2.0)
        assert (detecting.state, detecting.note, house.detecting.deaths) == ("running", ASLEEP, 0)
        # It is not away, and what it counted stays counted.
        assert (folder.state, house.detecting.counts("trace-folder")) == ("running", {"traces": 5})
        await trio.sleep(NAP_S / 2)
        assert len(house.launched_s) == 1
        house.stirs += 1
        await trio.sleep(1.0)
        assert (len(house.launched_s), detecting.note) == (2, None)
        assert house.detecting.counts("trace-folder") == {"traces": 10}
        # It stays as long as the first.
        await trio.sleep(REST_S - 2.0)
        assert detecting.note is None
        nursery.cancel_scope.cancel()


async def test_what_only_time_brings_is_looked_at_now_and_then(autojump_clock: MockClock) -> None:
    house = House([live])
    await house.run_for(REST_S + 2 * (NAP_S + GLANCE_S) + 10.0)
    gaps = [b - a for a, b in zip(house.launched_s, house.launched_s[1:], strict=False)]
    assert gaps == pytest.approx([REST_S + NAP_S, GLANCE_S + NAP_S], abs=2.0)


async def test_a_process_with_work_in_hand_does_not_rest(autojump_clock: MockClock) -> None:
    async def work(stream: trio.abc.Stream) -> None:
        for number in range(100):
            done = RoundReport("trace-folder", "running", counts={"traces": number})
            await stream.send_all(framed_message(Report((done,))))
            await trio.sleep(REST_S / 2)

    house = House([work])
    await house.run_for(5 * REST_S)
    assert len(house.launched_s) == 1


async def test_one_that_dies_after_a_rest_is_told(autojump_clock: MockClock) -> None:
    house = House([live, die, live])
    async with trio.open_nursery() as nursery:
        await nursery.start(house.keeper.run)
        await trio.sleep(REST_S + 10.0)
        house.stirs += 1
        await trio.sleep(0.9)
        assert (house.state("detecting"), house.state("trace-folder")) == ("waiting", "waiting")
        await trio.sleep(FIRST_REST_S)
        assert (house.state("detecting"), house.state("trace-folder")) == ("running", "running")
        nursery.cancel_scope.cancel()


async def test_it_hears_when_ingest_gets_busy_and_when_it_is_over(autojump_clock: MockClock) -> None:
    heard: list[object] = []

    async def listen(stream: trio.abc.Stream) -> None:
        await stream.send_all(framed_message(Report((FOLDING,))))
        frames = Frames()
        async for data in stream:
            frames.feed(data)
            while (message := frames.next()) is not None:
                heard.append(read_to_detecting(message))

    house = House([listen])
    async with trio.open_nursery() as nursery:
        await nursery.start(house.keeper.run)
        for busy in (False, True, True, False):
            house.busy = busy
            await trio.sleep(2 * BUSY_LOOK_S)
        nursery.cancel_scope.cancel()
    assert heard == [IngestBusy(True), IngestBusy(False)]


def test_struck_at_any_await_it_leaves_no_round_that_seems_to_work() -> None:
    async def scenario(strike: Strike) -> None:
        house = House([report_and_die, saying(Report((FOLDING,)))])
        with trio.move_on_after(3.0):
            await strike.run(house.keeper.run)
        assert {house.state(vitals.name) for vitals in house.board.all()[1:]} <= {"waiting"}

    assert at_every_await(scenario) > 5
