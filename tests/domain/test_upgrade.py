"""What is made of a rehearsal: scaling, who is shut out for how long, the verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from svc.domain.upgrade import ShutOut, StatementRun, StepRun, scaled, verdict


def statement(
    took_s: float, locks: Mapping[str, str] | None = None, wal: int = 0, rewritten: Sequence[str] = ()
) -> StatementRun:
    return StatementRun("x", took_s, wal, locks or {}, rewritten)


def step(*statements: StatementRun, reads_from: int = 0, grown: int = 0, number: int = 200) -> StepRun:
    return StepRun(number, "x", "expand", reads_from, False, statements, grown)


def test_a_lock_is_held_from_its_statement_to_the_end_of_the_step() -> None:
    run = step(
        statement(1.0),
        statement(2.0, {"trace": "ShareLock"}),
        statement(4.0, {"span": "AccessExclusiveLock", "trace": "AccessExclusiveLock"}),
    )
    assert run.shut_out() == [
        ShutOut("span", "reads and writes", 4.0),
        ShutOut("trace", "reads and writes", 6.0),
    ]
    assert step(statement(1.0, {"cube": "ShareRowExclusiveLock"})).shut_out() == [
        ShutOut("cube", "writes", 1.0)
    ]


def test_what_grows_with_the_rows_is_scaled_and_the_rest_is_not() -> None:
    none = step(statement(0.5, wal=1_000), grown=8_192)
    some = step(statement(0.7, wal=3_000), grown=16_384)
    whole = scaled(none, some, 0.01)
    assert whole.took_s == pytest.approx(20.5)
    assert whole.statements[0].wal_bytes == 201_000
    assert whole.grown_bytes == 8_192 + 100 * 8_192
    assert whole.disk_bytes == whole.grown_bytes + 201_000
    # A machine that hiccuped without rows is no sign that rows make it quicker.
    assert scaled(some, none, 0.01).took_s == pytest.approx(0.7)


def test_a_lock_that_lasts_no_longer_than_a_write_is_online() -> None:
    found = verdict([step(statement(0.9, {"span": "AccessExclusiveLock"}))], 100, None)
    assert (found.text(), found.reasons) == ("online", [])
    assert verdict([step(statement(900.0))], 100, None).text() == "online"
    assert verdict([], 100, None).text() == "nothing to do"


def test_a_longer_one_is_a_pause_and_a_minute_a_window() -> None:
    pause = verdict([step(statement(7.4, {"span": "ShareLock"})), step(statement(3.0))], 100, None)
    assert pause.text() == "pause of 7.40 s"
    assert pause.reasons == ["step 200 keeps writes from span for 7.40 s"]
    assert verdict([step(statement(60.0, {"span": "ShareLock"}))], 100, None).text() == "needs a window"


def test_a_step_that_the_release_before_cannot_live_with_needs_a_window() -> None:
    assert verdict([step(statement(0.1), reads_from=100)], 100, None).text() == "online"
    found = verdict([step(statement(0.1), reads_from=101)], 100, None)
    assert found.text() == "needs a window"
    assert "stop all its copies first" in found.reasons[0]


def test_a_step_that_takes_more_than_the_disk_has_needs_a_window() -> None:
    runs = [step(statement(0.1, wal=2**30), grown=2**30), step(statement(0.1), grown=2**30)]
    assert verdict(runs, 100, 2 * 2**30).text() == "online"
    found = verdict(runs, 100, 2**30)
    assert found.text() == "needs a window"
    assert found.reasons == ["a step takes 2.0 GiB for a while, and 1.0 GiB are free"]
