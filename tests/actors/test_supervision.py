"""Laws of `keep` and of the board."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from itertools import pairwise

import attrs
import pytest
import trio
from trio.testing import MockClock

from actors.supervision import FIRST_REST_S, LONGEST_REST_S, Board, CrashLoop, Vitals, keep
from tests.actors.every_await import Strike, at_every_await

pytestmark = pytest.mark.errors_expected

PAUSE_S = 0.05


class Bug(Exception):
    """What the actors of these tests crash with."""


@attrs.define
class Life:
    """One incarnation: it reports ready, lives `lasts_s`, then crashes or ends."""

    lasts_s: float = 0.0
    crash: BaseException | None = None
    ready: bool = True

    async def run(self, *, task_status: trio.TaskStatus[None]) -> None:
        if self.ready:
            task_status.started()
        await trio.sleep(self.lasts_s)
        if self.crash is not None:
            raise self.crash


def lives(*those: Life) -> Callable[[], Life]:
    """Builds these, in this order; a birth too many is an error of its own."""
    return partial(next, iter(those))


async def test_an_actor_that_ends_by_itself_is_not_built_again(autojump_clock: MockClock) -> None:
    vitals = Vitals("actor")
    await keep(lives(Life()), vitals)
    assert (vitals.state, vitals.crashes, vitals.alive) == ("ended", 0, False)


async def test_a_crashed_actor_is_built_anew_after_a_pause(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    vitals = Vitals("actor")
    born_s: list[float] = []
    build = lives(Life(1.0, Bug("oops")), Life())

    def build_and_note() -> Life:
        born_s.append(trio.current_time())
        return build()

    await keep(build_and_note, vitals)
    assert born_s[1] - born_s[0] == pytest.approx(1.0 + PAUSE_S)
    assert (vitals.state, vitals.crashes, vitals.last_error) == ("ended", 1, "Bug: oops")
    [record] = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert "actor crashed" in record.getMessage()


async def test_between_a_crash_and_the_next_start_an_actor_is_not_alive(autojump_clock: MockClock) -> None:
    vitals = Vitals("actor")
    async with trio.open_nursery() as nursery:
        await nursery.start(partial(keep, lives(Life(1.0, Bug()), Life(1.0)), vitals))
        assert vitals.alive
        await trio.sleep(1.0 + PAUSE_S / 2)
        assert (vitals.state, vitals.alive) == ("restarting", False)
        await trio.sleep(PAUSE_S)
        assert (vitals.state, vitals.alive) == ("running", True)


async def test_five_crashes_within_a_minute_end_the_process(autojump_clock: MockClock) -> None:
    vitals = Vitals("actor")
    fifth = Bug("the fifth")
    with pytest.raises(CrashLoop, match="actor crashed 5 times") as caught:
        await keep(lives(*[Life(crash=Bug()) for _ in range(4)], Life(crash=fifth)), vitals)
    assert caught.value.__cause__ is fifth
    assert vitals.crashes == 5


async def test_four_crashes_within_a_minute_do_not(autojump_clock: MockClock) -> None:
    vitals = Vitals("actor")
    await keep(lives(*[Life(crash=Bug()) for _ in range(4)], Life()), vitals)
    assert (vitals.state, vitals.crashes) == ("ended", 4)


@pytest.mark.parametrize(("lasts_s", "loop"), [(14.9, True), (15.0, False)])
async def test_the_minute_is_a_sliding_one(lasts_s: float, loop: bool, autojump_clock: MockClock) -> None:
    # Four gaps of 14.95 s make 59.8 s; four of 15.05 s make 60.2 s.
    build = lives(*[Life(lasts_s, Bug()) for _ in range(9)], Life())
    if loop:
        with pytest.raises(CrashLoop):
            await keep(build, Vitals("actor"))
    else:
        await keep(build, Vitals("actor"))


async def test_old_crashes_are_forgiven(autojump_clock: MockClock) -> None:
    four = [Life(crash=Bug()) for _ in range(4)]
    vitals = Vitals("actor")
    await keep(lives(*four, Life(61.0, Bug()), *four[:3], Life()), vitals)
    assert vitals.crashes == 8


async def test_a_crash_before_the_first_start_goes_up_unchanged(autojump_clock: MockClock) -> None:
    boot = Bug("no such folder")
    vitals = Vitals("actor")
    with pytest.raises(Bug) as caught:
        await keep(lives(Life(crash=boot, ready=False)), vitals)
    assert caught.value is boot
    assert (vitals.alive, vitals.last_error) == (False, "Bug: no such folder")


async def test_a_boot_failure_reaches_whoever_waits_for_the_start(autojump_clock: MockClock) -> None:
    async with trio.open_nursery() as nursery:
        with pytest.raises(Bug):
            await nursery.start(partial(keep, lives(Life(crash=Bug(), ready=False)), Vitals("actor")))


async def test_a_later_incarnation_may_crash_before_it_is_ready(autojump_clock: MockClock) -> None:
    vitals = Vitals("actor")
    await keep(lives(Life(crash=Bug()), Life(crash=Bug(), ready=False), Life()), vitals)
    assert (vitals.state, vitals.crashes) == ("ended", 2)


async def test_the_starter_is_told_once_however_often_the_actor_starts(autojump_clock: MockClock) -> None:
    vitals = Vitals("actor")
    async with trio.open_nursery() as nursery:
        # A nursery raises RuntimeError when it is told twice.
        await nursery.start(partial(keep, lives(Life(1.0, Bug()), Life(1.0, Bug()), Life()), vitals))
        assert vitals.crashes == 0
    assert (vitals.state, vitals.crashes) == ("ended", 2)


async def test_the_starter_waits_until_the_actor_is_ready(autojump_clock: MockClock) -> None:
    class Slow:
        async def run(self, *, task_status: trio.TaskStatus[None]) -> None:
            await trio.sleep(3.0)
            assert vitals.state == "starting"
            task_status.started()

    vitals = Vitals("actor")
    before = trio.current_time()
    async with trio.open_nursery() as nursery:
        await nursery.start(partial(keep, Slow, vitals))
        assert trio.current_time() - before == pytest.approx(3.0)


async def test_a_crash_inside_a_nursery_of_the_actor_counts_as_one(autojump_clock: MockClock) -> None:
    class Branching:
        async def run(self, *, task_status: trio.TaskStatus[None]) -> None:
            task_status.started()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(Life(crash=Bug()).run)
                nursery.start_soon(trio.sleep_forever)

    vitals = Vitals("actor")
    builds = iter([Branching(), Life()])
    await keep(lambda: next(builds), vitals)
    assert (vitals.state, vitals.crashes) == ("ended", 1)


async def test_what_is_no_exception_is_not_restarted(autojump_clock: MockClock) -> None:
    with pytest.raises(KeyboardInterrupt):
        await keep(lives(Life(crash=KeyboardInterrupt())), Vitals("actor"))


def test_a_cancelled_actor_is_left_and_not_built_again_wherever_it_is_struck() -> None:
    async def scenario(strike: Strike) -> None:
        born: list[Life] = []
        born_when_struck: list[int] = []
        vitals = Vitals("actor")
        build = lives(Life(1.0, Bug()), Life(1.0, Bug()), Life(1.0))

        def build_and_note() -> Life:
            born.append(build())
            return born[-1]

        with trio.CancelScope() as scope:

            def cancel() -> None:
                born_when_struck.append(len(born))
                scope.cancel()

            await strike.run(partial(keep, build_and_note, vitals), cancel)
        assert scope.cancelled_caught is strike.fell
        assert not strike.fell or born_when_struck == [len(born)]
        assert (vitals.state == "ended") is not strike.fell

    assert at_every_await(scenario) >= 5


def test_an_outage_is_logged_when_it_begins_and_when_it_ends(caplog: pytest.LogCaptureFixture) -> None:
    vitals = Vitals("actor")
    vitals.works()
    for _ in range(3):
        vitals.waits("the database is away")
    assert (vitals.state, vitals.alive) == ("waiting", True)
    assert vitals.snapshot() == {"state": "waiting", "crashes": 0, "waiting_for": "the database is away"}
    vitals.works()
    vitals.works()
    assert vitals.snapshot() == {"state": "running", "crashes": 0}
    assert [record.getMessage() for record in caplog.records] == [
        "actor waits: the database is away",
        "actor goes on",
    ]


async def test_an_actor_that_starts_into_an_outage_is_shown_waiting(autojump_clock: MockClock) -> None:
    class Held:
        async def run(self, *, task_status: trio.TaskStatus[None]) -> None:
            vitals.waits("the database is away")
            task_status.started()
            await trio.sleep(1.0)

    vitals = Vitals("actor")
    async with trio.open_nursery() as nursery:
        await nursery.start(partial(keep, Held, vitals))
        assert vitals.snapshot()["waiting_for"] == "the database is away"
        assert vitals.state == "waiting"


async def test_a_crash_ends_the_waiting(autojump_clock: MockClock) -> None:
    class CrashesWaiting:
        async def run(self, *, task_status: trio.TaskStatus[None]) -> None:
            task_status.started()
            vitals.waits("the database is away")
            raise Bug("while waiting")

    vitals = Vitals("actor")
    builds = iter([CrashesWaiting(), Life(1.0)])
    async with trio.open_nursery() as nursery:
        await nursery.start(partial(keep, lambda: next(builds), vitals))
        await trio.sleep(0.5)
        assert vitals.snapshot() == {"state": "running", "crashes": 1, "last_error": "Bug: while waiting"}


async def test_a_long_error_is_cut_for_the_board(autojump_clock: MockClock) -> None:
    vitals = Vitals("actor")
    await keep(lives(Life(crash=Bug("x" * 1000)), Life()), vitals)
    assert vitals.last_error is not None
    assert len(vitals.last_error) == 300


def test_the_board_lists_everyone_in_the_order_of_enrolment() -> None:
    board = Board()
    enrolled = tuple(board.enrol(name) for name in ("roller", "drainer-1", "cache"))
    assert board.all() == enrolled
    assert [vitals.state for vitals in board.all()] == ["starting"] * 3


def test_a_name_is_enrolled_once() -> None:
    board = Board()
    board.enrol("roller")
    with pytest.raises(ValueError, match="'roller' is already on the board"):
        board.enrol("roller")
    assert len(board.all()) == 1


# --- spare actors -----------------------------------------------------------------------------------------


def always_crashing(born_s: list[float], lasts_s: float = 0.0) -> Callable[[], Life]:
    def build() -> Life:
        born_s.append(trio.current_time())
        return Life(lasts_s, Bug(f"number {len(born_s)}"))

    return build


async def test_a_spare_actor_that_always_crashes_rests_longer_each_time_up_to_an_hour(
    autojump_clock: MockClock,
) -> None:
    vitals, born_s = Vitals("spare", spare=True), list[float]()
    with trio.move_on_after(5 * LONGEST_REST_S):
        await keep(always_crashing(born_s), vitals)
    rests_s = [later - earlier for earlier, later in pairwise(born_s)]
    assert rests_s[:5] == pytest.approx([FIRST_REST_S * 2**n for n in range(5)])
    assert rests_s == sorted(rests_s)
    assert rests_s[-1] == pytest.approx(LONGEST_REST_S)
    assert (vitals.state, vitals.crashes, vitals.alive) == ("failed", len(born_s), False)
    assert vitals.snapshot()["last_error"] == f"Bug: number {len(born_s)}"
    assert vitals.snapshot()["rests_s"] == LONGEST_REST_S


async def test_a_spare_actor_that_fails_before_it_is_ready_holds_nobody_up(autojump_clock: MockClock) -> None:
    vitals = Vitals("spare", spare=True)
    async with trio.open_nursery() as nursery:
        await nursery.start(partial(keep, lives(Life(0.0, Bug("early"), ready=False), Life(1e6)), vitals))
        assert (vitals.state, vitals.last_error) == ("failed", "Bug: early")
        nursery.cancel_scope.cancel()


async def test_a_spare_actor_that_lived_longer_than_its_rest_begins_with_a_short_one_again(
    autojump_clock: MockClock,
) -> None:
    vitals, born_s = Vitals("spare", spare=True), list[float]()
    with trio.move_on_after(100.0):
        await keep(always_crashing(born_s, lasts_s=10.0), vitals)
    assert [later - earlier for earlier, later in pairwise(born_s)] == pytest.approx(
        [10.0 + FIRST_REST_S] * (len(born_s) - 1)
    )


async def test_a_failed_spare_actor_is_shown_as_failed_until_it_works(autojump_clock: MockClock) -> None:
    vitals = Vitals("spare", spare=True)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(keep, lives(Life(0.0, Bug()), Life(1e6)), vitals))
        await trio.sleep(FIRST_REST_S * 1.5)
        assert vitals.state == "failed"
        vitals.works()
        assert (vitals.state, vitals.alive, "rests_s" in vitals.snapshot()) == ("running", True, False)
        nursery.cancel_scope.cancel()
