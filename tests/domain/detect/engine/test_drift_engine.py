"""Laws of the drift engine: noise of days stays silent, shifts are found."""

from __future__ import annotations

import math

import attrs
import numpy as np
import pytest

from svc.domain.detect.engine.axis import LN_RATIO
from svc.domain.detect.engine.drift_engine import DriftSettings, DriftState, judge_drift
from svc.domain.detect.engine.drift_reference import FLOOR, MIXED, Windows, drift_reference, expected_drift
from svc.domain.detect.engine.drift_track import LocationArm, LocationTrack, Residual, step
from svc.domain.detect.engine.slots import SLOTS_PER_WINDOW, STRATA
from svc.domain.detect.engine.tallies import SizeTallies
from tests.domain.detect.engine.size_traffic import drifted, sizes
from tests.domain.detect.engine.traffic import DAY, HOUR, START, from_slot

SETTINGS = DriftSettings()
ARMED = 21 * DAY


def random(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


# --- windows ---------------------------------------------------------------------------------------------


def test_a_window_closes_on_a_six_hour_border_with_thirty_rows() -> None:
    slots = START + np.array([0] * 20 + [80] * 10 + [150] * 29 + [360] * 31)
    windows = Windows.of(SizeTallies.of_values(slots, np.arange(90)), START, START + 6 * SLOTS_PER_WINDOW)
    assert (windows.starts - START).tolist() == [0, 144]
    assert (windows.ends - START).tolist() == [144, 432]
    assert windows.rows.tolist() == [30, 60]
    assert windows.strata.tolist() == [MIXED, MIXED]
    assert windows.open_from == START + 432


def test_a_window_does_not_begin_before_its_first_row() -> None:
    slots = START + np.full(40, 5 * SLOTS_PER_WINDOW)
    windows = Windows.of(SizeTallies.of_values(slots, np.arange(40)), START, START + 6 * SLOTS_PER_WINDOW)
    assert (windows.starts[0] - START) // SLOTS_PER_WINDOW == 5
    assert windows.strata.tolist() == [1]


def test_cutting_a_history_at_an_open_window_leaves_the_windows_as_they_are() -> None:
    tallies = sizes(random(1), 12, 60)
    end = START + 12 * DAY
    whole = Windows.of(tallies, START, end)
    for days in (3, 5, 8):
        first = Windows.of(tallies, START, START + days * DAY)
        rest = Windows.of(tallies, first.open_from, end)
        assert [*first.starts, *rest.starts] == whole.starts.tolist()
        assert [*first.means, *rest.means] == whole.means.tolist()


# --- the reference ---------------------------------------------------------------------------------------


def test_there_is_no_reference_before_a_week() -> None:
    tallies = sizes(random(2), 30, 200)
    assert drift_reference(tallies.between(START, START + 6 * DAY), START, START + 6 * DAY) is None
    assert drift_reference(sizes(random(2), 10, 15), START, START + 10 * DAY) is None
    state = drifted(tallies, 30).state
    assert state.armed == START + 7 * DAY
    assert state.reference is not None
    assert state.reference.sealed
    assert state.reference.end == START + ARMED


def test_the_noise_of_days_is_measured_leaving_each_window_out() -> None:
    for noise in (0.0, 0.1):
        measured = []
        for i in range(12):
            made = drift_reference(sizes(random(i), 21, 400, day_noise=noise), START, START + ARMED)
            assert made is not None
            measured.append(math.sqrt(made.tau2))
        assert np.median(measured) == pytest.approx(noise, abs=0.03)


def test_a_season_of_the_day_is_no_noise() -> None:
    made = drift_reference(sizes(random(3), 21, 400, season=0.5), START, START + ARMED)
    flat = drift_reference(sizes(random(3), 21, 400), START, START + ARMED)
    assert made is not None
    assert flat is not None
    locations = made.locations(np.arange(STRATA))
    assert locations.max() - locations.min() > 0.4
    assert made.tau2 < flat.tau2 + 0.05**2
    assert made.location == pytest.approx(math.log(2_000), abs=0.05)


def test_a_stratum_of_few_windows_is_drawn_to_the_whole() -> None:
    tallies = sizes(random(4), 21, 400, shift=from_slot(21, 5 * DAY, 0.6, 5 * DAY + SLOTS_PER_WINDOW))
    barred = (tallies.slots < START + 6 * DAY) | (tallies.slots >= START + 7 * DAY)
    made = drift_reference(tallies.only(barred), START, START + 8 * DAY)
    assert made is not None
    saturday = made.strata[4]
    assert saturday.windows == 1
    assert saturday.location - made.location == pytest.approx(0.3, abs=0.12)


def test_the_tail_is_a_twentieth_of_the_reference() -> None:
    for kind in ({}, {"season": 0.5}, {"heavy": True}):
        made = drift_reference(sizes(random(5), 21, 400, **kind), START, START + ARMED)
        assert made is not None
        assert made.tail.rate == pytest.approx(0.05, abs=0.006)


def test_windows_that_hang_together_widen_the_bar_up_to_fourfold() -> None:
    made = drift_reference(sizes(random(6), 21, 400), START, START + ARMED)
    assert made is not None
    widenings = [attrs.evolve(made, rho=rho).widening for rho in (-0.5, 0.0, 0.2, 0.9)]
    assert widenings == pytest.approx([1, 1, 1.5, 4])


# --- chance alone ----------------------------------------------------------------------------------------

NULLS = {
    "plain": {},
    "day and night": {"season": 0.5},
    "heavy tail": {"heavy": True},
    "growing": {"growth": 2.0},
    "noise of days": {"day_noise": 0.1},
    "noise of days with a season": {"day_noise": 0.1, "season": 0.5},
}


@pytest.mark.parametrize("kind", NULLS)
def test_traffic_that_only_varies_stays_silent(kind: str) -> None:
    alarmed = 0
    for i in range(20):
        judgement = drifted(sizes(random(100 + i), 35, 200, **NULLS[kind]), 35)
        alarmed += any(alarm.fired >= START + ARMED for alarm in (*judgement.ups, *judgement.downs))
    # Measured 2026-11, 100 buckets a row: 0.01 to 0.08 in 14 days, falls included.
    assert alarmed <= 4


# --- a change --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("times", "rows", "noise", "hours"),
    [(1.2, 200, 0.0, 120), (1.5, 200, 0.0, 48), (2, 200, 0.0, 36), (1.5, 200, 0.1, 120)],
)
def test_a_shift_is_found_within_twice_the_stated_delay(
    times: float, rows: int, noise: float, hours: float
) -> None:
    delays = []
    first = ARMED + 150
    for i in range(12):
        shift = from_slot(35, first, math.log(times))
        judgement = drifted(sizes(random(200 + i), 35, rows, shift=shift, day_noise=noise), 35)
        fired = [alarm.fired for alarm in judgement.ups if alarm.fired >= START + first]
        delays.append((fired[0] + 1 - START - first) / HOUR if fired else math.inf)
    assert np.median(delays) <= hours
    assert sum(map(math.isinf, delays)) <= 1


def test_a_large_shift_is_seen_by_the_tail_first() -> None:
    first = ARMED + 150
    delays = []
    for i in range(10):
        alarm = drifted(sizes(random(300 + i), 28, 120, shift=from_slot(28, first, math.log(4))), 28).ups[-1]
        delays.append((alarm.fired + 1 - START - first) / HOUR)
        assert alarm.parts[0] in alarm.tails
    assert np.median(delays) <= 8


def test_a_tail_alone_is_found() -> None:
    first = ARMED + 10
    found = 0
    for i in range(8):
        judgement = drifted(sizes(random(400 + i), 35, 200, tail=(first, 0.1, 6.0)), 35)
        found += any(alarm.fired >= START + first and alarm.tails for alarm in judgement.ups)
    assert found >= 7


def test_faster_is_told_downwards() -> None:
    judgement = drifted(sizes(random(7), 35, 200, shift=from_slot(35, 25 * DAY, -math.log(2))), 35)
    (alarm,) = judgement.downs
    assert alarm.shown is not None
    assert alarm.shown.ratio == pytest.approx(0.5, abs=0.08)
    assert all(up.fired < START + 25 * DAY for up in judgement.ups)


def test_a_shift_below_the_floor_is_hardly_ever_told() -> None:
    told = 0
    for i in range(6):
        shift = from_slot(35, 22 * DAY, math.log(1.06))
        judgement = drifted(sizes(random(500 + i), 35, 3_000, shift=shift), 35)
        told += any(alarm.locations for alarm in judgement.ups)
    assert told <= 1


def test_a_statistic_above_its_bar_for_a_shift_below_the_floor_is_no_alarm() -> None:
    made = drift_reference(sizes(random(12), 21, 400), START, START + ARMED)
    assert made is not None
    arm = LocationArm.of(1, made, FLOOR, 6_000)
    track = LocationTrack()
    for i in range(40):
        at = START + i * SLOTS_PER_WINDOW
        track, over = step(track, arm, Residual(at, at + SLOTS_PER_WINDOW, 100, 0.9 * FLOOR, 0.006))
        assert over is None
        assert track.alarm is None
    assert track.below_floor(arm)
    assert not track.quiet(arm)


def test_an_alarm_shows_the_distributions_and_recovers_when_windows_are_back() -> None:
    first, end = 22 * DAY + 100, 26 * DAY
    judgement = drifted(sizes(random(8), 35, 300, shift=from_slot(35, first, math.log(1.8), end)), 35)
    (alarm,) = judgement.ups
    assert alarm.shown is not None
    assert alarm.shown.ratio == pytest.approx(1.8, rel=0.1)
    assert alarm.shown.p50 / alarm.shown.usual_p50 == pytest.approx(1.8, rel=0.12)
    assert alarm.shown.p95 / alarm.shown.usual_p95 == pytest.approx(1.8, rel=0.2)
    assert abs(alarm.onset.median - START - first) < DAY // 2
    assert alarm.confirmed is not None
    assert alarm.recovered is not None
    assert abs(alarm.recovered - START - end) < 2 * DAY
    assert judgement.state.needs_from > START + 30 * DAY


@pytest.mark.parametrize(("a_day", "times"), [(45, 2.5), (300, 2.0)])
def test_the_interval_of_an_onset_holds_it_however_long_a_window_is(a_day: int, times: float) -> None:
    found = held = 0
    for seed in range(16):
        first = 22 * DAY + seed * 37 % DAY
        shift = from_slot(30, first, math.log(times))
        alarms = drifted(sizes(random(seed), 30, a_day, shift=shift), 30).ups
        for onset in [alarm.locations[0].onset for alarm in alarms if alarm.locations]:
            assert onset.low <= onset.median <= onset.high
            found += 1
            held += onset.low <= START + first <= onset.high
    # Nine of ten, and what chance leaves of so few.
    assert found >= 12
    assert held >= 0.7 * found


def test_silence_is_no_recovery() -> None:
    tallies = sizes(random(9), 24, 300, shift=from_slot(24, 22 * DAY, math.log(2)))
    (alarm,) = drifted(tallies, 34).ups
    assert alarm.recovered is None


# --- as if live ------------------------------------------------------------------------------------------

HISTORY = sizes(
    random(11),
    36,
    250,
    shift=from_slot(36, 11 * DAY + 30, math.log(1.7), 13 * DAY) + from_slot(36, 29 * DAY, math.log(2)),
)


def test_the_path_stands_above_one_where_an_alarm_fires() -> None:
    judgement = judge_drift(HISTORY, SETTINGS, DriftState.start(START), START + 36 * DAY, path=True)
    assert judgement.path is not None
    tail = judgement.path.slots[judgement.path.tail >= 1]
    windows = judgement.path.windows[judgement.path.up >= 1]
    assert judgement.ups[0].fired in (int(tail[0]), int(windows[0]))
    assert drifted(HISTORY, 36).path is None


def test_the_axis_is_fine_enough_for_the_floor() -> None:
    assert LN_RATIO * 2 < FLOOR


def test_a_run_declared_expected_is_the_reference_with_no_less_noise_than_before() -> None:
    shifted = sizes(random(13), 35, 200, day_noise=0.1, shift=from_slot(35, 25 * DAY, math.log(2)))
    live = drifted(shifted, 30).state
    assert live.reference is not None
    assert live.up.alarm is not None
    begun, now = START + 25 * DAY, START + 30 * DAY
    assert expected_drift(shifted.between(begun, begun + DAY), begun, begun + DAY, live.reference) is None
    usual = expected_drift(shifted.between(begun, now), begun, now, live.reference)
    assert usual is not None
    assert usual.sealed
    assert usual.tau2 >= live.reference.tau2
    assert usual.location - live.reference.location == pytest.approx(math.log(2), abs=0.2)
    again = judge_drift(shifted, SETTINGS, live.cleared(usual), START + 35 * DAY)
    assert again.ups == ()


def test_a_bucket_that_is_never_quiet_keeps_what_it_began_with() -> None:
    state = drifted(sizes(random(14), 35, 200, shift=from_slot(35, 8 * DAY, math.log(3))), 35).state
    assert state.reference is not None
    assert state.reference.sealed
    assert state.reference.end <= START + 9 * DAY
    assert state.needs_from > START + 25 * DAY
