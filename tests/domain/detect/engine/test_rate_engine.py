"""Laws of the rate engine: silent by chance, quick on a change."""

from __future__ import annotations

import attrs
import numpy as np
import pytest

from svc.domain.detect.engine.arrays import Floats
from svc.domain.detect.engine.rate_engine import RateSettings, RateState, arms_of, judge_rates
from svc.domain.detect.engine.rate_reference import Gathered, RateReference, expected_reference, reference_of
from svc.domain.detect.engine.slots import SLOTS_PER_WINDOW
from svc.domain.detect.engine.tallies import RateTallies
from tests.cost import least, taken_s
from tests.domain.detect.engine.traffic import DAY, HOUR, START, failures, from_slot, hiccups, judged

WHOLE = RateSettings()


def random(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


def reference(units: int, failed: int, days: int = 21, phi: float = 1.0) -> RateReference:
    """A sealed reference of so many units before the start."""
    made = reference_of(Gathered(units, failed, START - days * DAY, START, 2**28 - 1), sealed=True)
    return attrs.evolve(made, phi=phi)


def rates(days: int, usual: float, change: float, first: int, end: int | None = None) -> Floats:
    return usual + from_slot(days, first, change - usual, end)


@pytest.mark.parametrize(("changed", "sooner"), [(0.075, 1.5), (0.3, 4.0)])
def test_the_rise_that_people_set_is_the_one_that_is_found_sooner(changed: float, sooner: float) -> None:
    first = 4 * DAY

    def fired(rise: float) -> float:
        settings = RateSettings.tuned(WHOLE.months, {"rise": rise})
        slots = []
        for seed in range(10):
            tallies = failures(random(seed), 34, 500, rates(34, 0.05, changed, first))
            state = RateState.start(START, reference(45_000, 2_250))
            rises = judge_rates(tallies, settings, state, START + 34 * DAY).rises
            slots.append(next((alarm.fired for alarm in rises if alarm.fired >= START + first), 34 * DAY))
        return float(np.median(slots))

    assert fired(sooner) < fired(2.0)


def test_a_rate_that_has_doubled_for_good_is_not_taken_for_recovered() -> None:
    first, over = 5 * DAY, 0
    for seed in range(12):
        tallies = failures(random(seed), 15, 1_000, rates(15, 0.04, 0.08, first))
        state = RateState.start(START, reference(90_000, 3_600))
        rises = judge_rates(tallies, WHOLE, state, START + 15 * DAY).rises
        over += sum(alarm.recovered is not None for alarm in rises if alarm.fired >= START + first)
    # By a likelihood of a hundred alone it is every one of them.
    assert over <= 4


# --- the reference ---------------------------------------------------------------------------------------


def test_a_bucket_arms_after_a_week_of_two_hundred_or_a_day_of_five_hundred_units() -> None:
    slow = judged(failures(random(1), 10, 40, 0.05), 10)
    quick = judged(failures(random(2), 10, 2_000, 0.05), 10)
    assert judged(failures(random(1), 6, 40, 0.05), 6).state.armed is None
    assert slow.state.armed is not None
    assert 7 * DAY - 20 <= slow.state.armed - START <= 7 * DAY + 20
    assert quick.state.armed is not None
    assert DAY <= quick.state.armed - START <= DAY + 3


def test_a_reference_is_refined_while_quiet_and_then_stays() -> None:
    tallies = failures(random(3), 40, 150, 0.05)
    early, sealed, late = (judged(tallies, days).state.reference for days in (12, 22, 40))
    assert early is not None
    assert sealed is not None
    assert early.units < sealed.units
    assert not early.sealed
    assert sealed.sealed
    assert sealed == late
    assert sealed.units == int(tallies.between(START, sealed.end).units.sum())


def test_a_busy_bucket_is_refined_for_a_whole_week() -> None:
    made = judged(failures(random(4), 14, 8_000, 0.02), 14).state.reference
    assert made is not None
    assert 7 * DAY - 12 <= made.end - made.first <= 7 * DAY + DAY
    assert made.blocks == 2**28 - 1


def test_the_reference_rate_is_the_upper_bound_of_four_fifths() -> None:
    made = reference(500, 5)
    assert made.p0 == pytest.approx(0.01459, rel=0.021)
    assert made.p0_low < made.rate < made.p0
    assert made.phi == 1


def test_slots_of_a_confirmed_finding_never_enter_a_reference() -> None:
    bad = (2 * DAY, 4 * DAY)
    tallies = failures(random(5), 30, 400, rates(30, 0.02, 0.9, *bad))
    barred = RateSettings(barred=((START + bad[0], START + bad[1]),))
    made = judged(tallies, 30, barred).state.reference
    assert made is not None
    assert made.rate == pytest.approx(0.02, abs=0.006)


def test_an_alarm_keeps_its_slots_out_of_the_reference() -> None:
    bad = (9 * DAY, 11 * DAY)
    judgement = judged(failures(random(6), 35, 300, rates(35, 0.02, 0.5, *bad)), 35)
    made = judgement.state.reference
    assert len(judgement.rises) == 1
    assert made is not None
    assert made.sealed
    assert made.rate == pytest.approx(0.02, abs=0.006)


def test_what_came_after_an_onset_stands_in_the_present_alone() -> None:
    # So few a day that the first failures are taken in at midnight, before it is known that they are many.
    first, taken_in = 12 * DAY + 18 * HOUR, 0
    for seed in range(5):
        tallies = failures(random(seed), 16, 26, rates(16, 0.02, 0.4, first))
        for alarm in judged(tallies, 16).rises:
            usual = alarm.reference
            assert usual.end <= alarm.onset.median or usual.sealed
            before = tallies.between(START, usual.end)
            assert (usual.units, usual.failures) == (before.units.sum(), before.failures.sum())
            taken_in += usual.end == alarm.onset.median
    assert taken_in


def test_a_reference_that_a_change_leaves_nothing_of_stays() -> None:
    whole, none = reference(50, 5, days=2), failures(random(1), 2, 100, 0.5)
    assert whole.before(START, none) == whole
    assert whole.before(START + DAY, none) == whole
    assert whole.before(START + 3 * DAY, none) == whole


def test_a_reference_ends_with_what_is_usual_only_once_it_is_quiet() -> None:
    tallies = failures(random(7), 14, 300, rates(14, 0.02, 0.12, 10 * DAY + 6))
    before, after = (judged(tallies, days).state.reference for days in (10, 14))
    assert before == after


def test_a_run_declared_expected_is_the_reference_from_five_hundred_units_on() -> None:
    run = failures(random(8), 3, 200, 0.3)
    assert expected_reference(run.between(START, START + DAY)) is None
    made = expected_reference(run)
    assert made is not None
    assert made.sealed
    assert made.rate == pytest.approx(0.3, abs=0.06)


def test_over_dispersion_is_that_of_hours_or_of_days_whichever_is_larger() -> None:
    even = reference_of(Gathered.of(failures(random(9), 21, 2_000, 0.05)))
    bursts = hiccups(random(10), 21, 0.02, 6, 0.5)
    by_hour = reference_of(Gathered.of(failures(random(11), 21, 5_000, bursts)))
    days = np.repeat(random(12).uniform(0.01, 0.09, 21), DAY)
    by_day = reference_of(Gathered.of(failures(random(13), 21, 2_000, days)))
    assert even.phi < 1.6
    assert 2 < by_hour.phi < 12
    assert by_day.phi > 10


def test_sums_of_two_halves_are_those_of_the_whole() -> None:
    tallies = failures(random(14), 8, 500, 0.05)
    halves = [tallies.between(START, START + 3 * DAY), tallies.between(START + 3 * DAY, START + 8 * DAY)]
    assert Gathered.of(halves[0]).add(Gathered.of(halves[1])) == Gathered.of(tallies)


# --- chance alone ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("units", "rate"), [(150, 0.01), (400, 0.03), (3_000, 0.002), (5_000, 0.02)])
def test_chance_alone_hardly_ever_fires_in_a_month(units: float, rate: float) -> None:
    # Measured 2026-11, 100 buckets a row: 0 to 0.03 in the 28 days after arming, rises and outages together.
    alarms = sum(len(judged(failures(random(100 + i), 35, units, rate), 35).rises) for i in range(20))
    assert alarms <= 2


def test_hiccups_that_the_baseline_knows_do_not_fire() -> None:
    alarms = 0
    for i in range(20):
        rates_ = hiccups(random(200 + i), 35, 0.01, 6, 0.5)
        alarms += bool(judged(failures(random(300 + i), 35, 5_000, rates_), 35).rises)
    assert alarms <= 3


def test_one_bad_five_minutes_cannot_fire_alone() -> None:
    for units in (300, 5_000, 100_000):
        rates_ = rates(10, 0.01, 1.0, 9 * DAY, 9 * DAY + 1)
        tallies = failures(random(15), 10, units, rates_)
        assert judged(tallies, 10).rises == ()


def test_the_cap_leaves_the_weight_of_a_single_failure_whole() -> None:
    (rise, outage), _ = arms_of(reference(5_000, 5), 100, WHOLE)
    assert rise is not None
    assert outage is not None
    for arm in (rise, outage):
        assert arm.cap >= arm.weights.up_grains
        assert arm.steps(np.array([1]), np.array([1]))[0] == arm.weights.up_grains


# --- a change --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("usual", "changed", "units", "stated"),
    [
        (0.001, 0.006, 5_000, 1_523),
        (0.005, 0.01, 5_000, 4_097),
        (0.05, 0.1, 2_000, 480),
        (0.2, 0.4, 2_000, 111),
    ],
)
def test_a_step_is_found_within_twice_the_stated_delay(
    usual: float, changed: float, units: int, stated: float
) -> None:
    # Stated for 5 and, the last two, 3 million units between alarms, which is what the budget gives them.
    delays = []
    first = 5 * DAY + 40
    for i in range(20):
        tallies = failures(random(400 + i), 12, units, rates(12, usual, changed, first))
        state = RateState.start(START, reference(20_000, round(20_000 * usual)))
        fired = [
            alarm
            for alarm in judge_rates(tallies, WHOLE, state, START + 12 * DAY).rises
            if alarm.fired > first
        ]
        assert fired
        seen = tallies.between(START + first, fired[0].fired + 1)
        delays.append(int(seen.units.sum()))
    assert np.median(delays) <= 2 * stated


def test_a_small_subject_sees_an_outage_after_about_three_units() -> None:
    needed = []
    for i in range(20):
        tallies = failures(random(500 + i), 20, 60, rates(20, 0.01, 0.95, 10 * DAY))
        state = RateState.start(START, reference(5_000, 50, days=90))
        rises = judge_rates(tallies, WHOLE, state, START + 20 * DAY).rises
        alarm = next(alarm for alarm in rises if alarm.fired >= START + 10 * DAY)
        needed.append(int(tallies.between(START + 10 * DAY, alarm.fired + 1).units.sum()))
    assert np.median(needed) <= 4


def test_a_busy_subject_sees_an_outage_within_half_an_hour() -> None:
    delays = []
    for i in range(10):
        first = 30 * DAY + 100
        rates_ = np.maximum(hiccups(random(600 + i), 32, 0.01, 0.2, 0.5), from_slot(32, first, 0.6))
        alarm = judged(failures(random(700 + i), 32, 5_000, rates_), 32).rises[-1]
        delays.append(alarm.fired + 1 - START - first)
    assert np.median(delays) <= 6


@pytest.mark.parametrize("units", [600, 2_500])
def test_half_an_hour_in_which_all_fails_is_found_and_made_rarer(units: int) -> None:
    first = 21 * DAY + 14 * HOUR
    share = np.where(np.arange(24 * DAY) // HOUR % 24 // 12 == 1, 1.5, 0.5)
    for i in range(8):
        busy = random(900 + i).poisson(units * share / DAY)
        rates_ = np.maximum(from_slot(24, 0, 0.01), from_slot(24, first, 0.95, first + 6))
        failed = random(950 + i).binomial(busy, rates_)
        seen = np.flatnonzero(busy)
        tallies = RateTallies(seen + START, busy[seen], failed[seen])
        alarm = next(a for a in judged(tallies, 24).rises if a.fired >= START + first)
        assert alarm.fired < START + first + 6
        assert alarm.confirmed is not None
        assert abs(alarm.onset.median - START - first) <= 1


def test_the_onset_is_found_and_its_interval_holds_it() -> None:
    errors, held = [], 0
    for i in range(40):
        first = 5 * DAY + 40
        tallies = failures(random(800 + i), 12, 1_000, rates(12, 0.02, 0.06, first))
        state = RateState.start(START, reference(20_000, 400))
        alarm = next(
            a for a in judge_rates(tallies, WHOLE, state, START + 12 * DAY).rises if a.fired > START + first
        )
        onset = alarm.onset
        errors.append(abs(onset.median - START - first))
        held += onset.low <= START + first <= onset.high
    # Measured 2026-11, 100 changes: median error 1.1 hours; the 90 % interval holds the onset in 0.89.
    assert np.median(errors) <= 3 * HOUR
    assert held >= 32


def test_fewer_failures_are_told_only_where_there_were_some() -> None:
    tallies = failures(random(16), 20, 1_000, rates(20, 0.1, 0.03, 10 * DAY))
    state = RateState.start(START, reference(20_000, 2_000))
    judgement = judge_rates(tallies, WHOLE, state, START + 20 * DAY)
    assert [alarm.arm for alarm in judgement.falls] == ["fewer"]
    assert judgement.falls[0].present.rate < 0.05
    assert judgement.rises == ()
    assert arms_of(reference(20_000, 100), 1_000, WHOLE)[1] == (None,)


def test_bad_from_day_one_is_said_while_learning() -> None:
    early = judged(failures(random(17), 2, 40, 0.6), 2).state.early
    assert early is not None
    assert early.seen.units >= 20
    assert early.seen.rate > 0.25
    assert judged(failures(random(18), 2, 40, 0.2), 2).state.early is None


# --- while an alarm lives --------------------------------------------------------------------------------


def test_an_alarm_grows_rarer_and_recovers_when_the_old_rate_is_back() -> None:
    first, end = 10 * DAY, 12 * DAY
    tallies = failures(random(19), 16, 600, rates(16, 0.02, 0.2, first, end))
    state = RateState.start(START, reference(20_000, 400))
    (alarm,) = judge_rates(tallies, WHOLE, state, START + 16 * DAY).rises
    assert alarm.confirmed is not None
    assert alarm.fired <= alarm.confirmed < START + end
    assert alarm.present.interval[0] < 0.2 < alarm.present.interval[1]
    assert alarm.recovered is not None
    assert alarm.recovery_known is not None
    assert abs(alarm.recovered - START - end) < 6 * HOUR
    assert alarm.recovery_known + 1 - alarm.recovered >= SLOTS_PER_WINDOW


def test_silence_is_no_recovery() -> None:
    tallies = failures(random(20), 12, 600, rates(12, 0.02, 0.5, 10 * DAY)).between(START, START + 11 * DAY)
    state = RateState.start(START, reference(20_000, 400))
    (alarm,) = judge_rates(tallies, WHOLE, state, START + 40 * DAY).rises
    assert alarm.recovered is None


def test_three_failures_of_three_do_not_make_one_success_a_recovery() -> None:
    rows = [(START + 20 * i, 1, 1) for i in range(3)]
    rows += [(START + 60 + 90 * i, 1, 0) for i in range(2)]
    state = RateState.start(START, reference(5_000, 50, days=90))
    (alarm,) = judge_rates(RateTallies.of(rows), WHOLE, state, START + DAY).rises
    assert (alarm.arm, alarm.at_firing.failures) == ("outage", 3)
    assert alarm.recovered is None


def test_a_statistic_that_falls_and_climbs_again_is_a_recurrence() -> None:
    flaps = rates(30, 0.05, 0.2, 2 * DAY, 2 * DAY + 72)
    for day in (2.6, 3.2):
        flaps += from_slot(30, int(day * DAY), 0.3, int(day * DAY) + 50)
    tallies = failures(random(21), 30, 1_000, flaps)
    state = RateState.start(START, reference(20_000, 1_000))
    alarms = judge_rates(tallies, WHOLE, state, START + 30 * DAY).rises
    assert sum(1 + alarm.recurrences for alarm in alarms) >= 2
    assert all(alarm.last_fired >= alarm.fired for alarm in alarms)


# --- as if live ------------------------------------------------------------------------------------------

HISTORY = failures(
    random(22),
    40,
    700,
    rates(40, 0.03, 0.15, 24 * DAY + 50, 26 * DAY) + from_slot(40, 9 * DAY, 0.2, 10 * DAY),
)


def test_the_path_stands_above_one_where_an_alarm_fires() -> None:
    judgement = judge_rates(HISTORY, WHOLE, RateState.start(START), START + 40 * DAY, path=True)
    assert len(judgement.rises) == 2
    assert judgement.path is not None
    crossed = judgement.path.slots[judgement.path.rise >= 1]
    assert int(crossed[0]) == judgement.rises[0].fired
    assert judged(HISTORY, 40).path is None


def test_a_month_of_a_bucket_is_judged_in_milliseconds() -> None:
    # Measured 2026-11: 0.01 s; a hundred buckets of a project in a second.
    assert least(lambda: taken_s(lambda: judged(HISTORY, 40)), below=0.2) < 0.2


def test_resolving_clears_the_statistic_and_keeps_the_reference() -> None:
    live = judged(failures(random(23), 12, 400, rates(12, 0.02, 0.4, 10 * DAY)), 12).state
    assert live.rise.alarm is not None
    cleared = live.cleared()
    assert cleared.rise.alarm is None
    assert cleared.rise.climbs[0].height == 0
    assert cleared.reference == live.reference
    usual = expected_reference(failures(random(24), 3, 400, 0.4))
    again = judge_rates(failures(random(25), 30, 400, 0.4), WHOLE, live.cleared(usual), START + 30 * DAY)
    assert again.rises == ()


def test_a_bucket_that_is_never_quiet_keeps_what_it_began_with() -> None:
    state = judged(failures(random(26), 40, 300, rates(40, 0.02, 0.3, 8 * DAY)), 40).state
    assert state.rise.alarm is not None
    assert state.reference is not None
    assert state.reference.sealed
    assert state.reference.end < START + 9 * DAY


def test_slots_of_a_resolved_alarm_stay_out_of_the_reference() -> None:
    tallies = failures(random(27), 30, 300, rates(30, 0.02, 0.6, 10 * DAY, 11 * DAY + 100))
    live = judge_rates(tallies, WHOLE, RateState.start(START), START + 11 * DAY + 100).state
    assert live.rise.alarm is not None
    made = judge_rates(tallies, WHOLE, live.cleared(), START + 30 * DAY).state.reference
    assert made is not None
    assert made.sealed
    assert made.rate < 0.04


def test_a_reference_that_is_handed_in_is_never_refined() -> None:
    handed = attrs.evolve(reference(600, 12, days=3), sealed=False)
    state = RateState.start(START, handed)
    made = judge_rates(failures(random(28), 10, 300, 0.02), WHOLE, state, START + 10 * DAY).state.reference
    assert made == attrs.evolve(handed, sealed=True)
