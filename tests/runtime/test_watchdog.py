"""Laws of the watchdog: what a step took, whose it was and where it stood, by clocks that a test turns."""

from __future__ import annotations

import logging
import threading
import time

import pytest
import trio

from svc.runtime.watchdog import LOG_S, QUIET_S, WINDOW_S, LoopWatchdog


class Clocks:
    """The wall clock and the processor clock of a loop: both go on only when told to."""

    def __init__(self) -> None:
        self.monotonic_s, self.cpu_s = 1000.0, 10.0

    def watchdog(self) -> LoopWatchdog:
        return LoopWatchdog(lambda: self.monotonic_s, lambda: self.cpu_s)

    def work(self, seconds: float, *, cpu_seconds: float | None = None) -> None:
        self.monotonic_s += seconds
        self.cpu_s += seconds if cpu_seconds is None else cpu_seconds


async def stepped(watchdog: LoopWatchdog, *steps: tuple[str, float, float]) -> None:
    """One pass of the loop over these tasks: name, seconds, seconds of the processor."""
    task = trio.lowlevel.current_task()
    before = task.name
    watchdog.after_io_wait(0)
    for name, seconds, cpu_seconds in steps:
        task.name = name
        watchdog.before_task_step(task)
        CLOCKS.work(seconds, cpu_seconds=cpu_seconds)
        watchdog.after_task_step(task)
    task.name = before
    watchdog.before_io_wait(0)


CLOCKS = Clocks()


async def test_the_longest_and_the_costliest_step_are_told_with_their_tasks() -> None:
    watchdog = CLOCKS.watchdog()
    await stepped(watchdog, ("reader", 0.01, 0.01), ("writer", 0.3, 0.05), ("roller", 0.2, 0.2))
    told = watchdog.snapshot()
    assert (told["longest_step_ms"], told["longest_step"]) == (300, "writer")
    # What the machine kept from it is no cost of its own; short steps before it are counted along.
    assert (told["longest_step_cpu_ms"], told["costliest_step"]) == (200, "roller")
    assert told["stalls"] == 2


async def test_what_arrives_waits_for_the_whole_pass_and_the_longest_is_forgotten_in_a_minute() -> None:
    watchdog = CLOCKS.watchdog()
    await stepped(watchdog, ("a", 0.2, 0.2), ("b", 0.3, 0.3))
    assert watchdog.snapshot()["late_ms"] == 500
    CLOCKS.work(WINDOW_S + 1)
    await stepped(watchdog, ("a", 0.1, 0.1))
    assert watchdog.snapshot()["late_ms"] == 500
    CLOCKS.work(WINDOW_S + 1)
    await stepped(watchdog, ("a", 0.1, 0.1))
    assert watchdog.snapshot()["late_ms"] == 100
    assert watchdog.snapshot()["longest_step_ms"] == 300


async def test_a_held_loop_is_one_line_of_the_log_in_ten_seconds(caplog: pytest.LogCaptureFixture) -> None:
    watchdog = CLOCKS.watchdog()
    with caplog.at_level(logging.WARNING):
        await stepped(watchdog, *(("roller", LOG_S + 0.01, 0.1),) * 3, ("short", LOG_S - 0.01, 0.1))
        CLOCKS.work(QUIET_S)
        await stepped(watchdog, ("roller", LOG_S + 0.01, 0.1))
    lines = [record.getMessage() for record in caplog.records]
    assert lines == [
        "the event loop was blocked for 0.26 s (0.10 s of CPU) by roller; 1 such steps so far",
        "the event loop was blocked for 0.26 s (0.10 s of CPU) by roller; 5 such steps so far",
    ]


async def test_a_real_step_that_holds_the_loop_is_named_with_its_task_and_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    watchdog = LoopWatchdog()
    # What it does stands in a file of ours: it waits for the other thread to have looked at it.
    with caplog.at_level(logging.WARNING), watchdog.watching():
        await trio.lowlevel.checkpoint()
        deadline_s = time.monotonic() + 30
        namespace = {"watchdog": watchdog, "time": time, "deadline_s": deadline_s, "longer_s": LOG_S}
        source = (
            "while not watchdog._sample[1] and time.monotonic() < deadline_s: time.sleep(0.01)\n"
            "time.sleep(longer_s)"
        )
        exec(compile(source, "/anywhere/svc/store/spans/planted.py", "exec"), namespace)
        await trio.lowlevel.checkpoint()
    (line,) = [record.getMessage() for record in caplog.records]
    assert "planted.py:1" in line
    assert "test_a_real_step_that_holds_the_loop" in line
    assert watchdog.stalls == 1


async def test_what_it_costs_and_leaves_behind_is_nothing_once_it_is_over() -> None:
    watchdog = LoopWatchdog()
    with watchdog.watching():
        (thread,) = [one for one in threading.enumerate() if one.name == "loop-watchdog"]
    await trio.to_thread.run_sync(thread.join, 30)
    assert not thread.is_alive()
    before = watchdog.snapshot()
    time.sleep(0.03)  # noqa: ASYNC251 - a step that would be looked at
    await trio.lowlevel.checkpoint()
    assert watchdog.snapshot() == before
