"""Laws of what follows a statistic: states and their reasons, severity, confirmation, joining, recovery."""

from __future__ import annotations

import itertools
import math

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from svc.domain.detect.engine import change_point
from svc.domain.detect.engine.change_point import Onset
from svc.domain.detect.engine.drift_engine import DriftSettings, DriftState
from svc.domain.detect.engine.rate_engine import RateSettings, RateState, judge_rates
from svc.domain.detect.findings import case_rules, severity
from svc.domain.detect.findings.case_rules import Candidate, Evidence, cases, failing, joined, roles
from svc.domain.detect.findings.states import BucketReport, drift_view, rate_view, report
from tests.domain.detect.engine.size_traffic import drifted, sizes
from tests.domain.detect.engine.test_rate_engine import random, rates, reference
from tests.domain.detect.engine.traffic import DAY, START, failures, from_slot, judged

SETTINGS = RateSettings()

# --- states ----------------------------------------------------------------------------------------------


def told(state: RateState, now: int | None = None) -> BucketReport:
    return report(rate_view(state, SETTINGS), state.cursor if now is None else now)


def test_a_bucket_without_traffic_says_so() -> None:
    assert told(RateState.start(START)) == BucketReport("quiet", "no_traffic")
    assert report(drift_view(DriftState.start(START), DriftSettings()), START).reason == "no_traffic"


def test_a_learning_bucket_says_how_far_it_is_and_when_it_will_be_done() -> None:
    state = judged(failures(random(1), 3, 50, 0.02), 3).state
    learning = told(state)
    assert (learning.state, learning.reason, learning.need) == ("learning", None, 200)
    assert learning.have == state.learned
    assert 110 <= state.learned <= 190
    assert learning.eta_days == pytest.approx(4, abs=0.1)
    busy = told(
        judge_rates(
            failures(random(2), 1, 600, 0.02), SETTINGS, RateState.start(START), START + DAY // 2
        ).state
    )
    assert busy.need == 500
    assert busy.eta_days == pytest.approx(0.5, abs=0.15)


def test_a_bucket_that_would_learn_for_months_is_below_the_minimum() -> None:
    rare = told(judged(failures(random(3), 14, 2, 0.02), 14).state)
    assert (rare.state, rare.reason) == ("quiet", "below_minimum")
    assert rare.eta_days is not None
    assert rare.eta_days > 35


def test_an_armed_bucket_is_armed_until_it_has_judged_something() -> None:
    assert (
        told(
            attrs.evolve(
                RateState.start(START, reference(5_000, 50)), first_seen=START - 9, last_seen=START - 1
            )
        ).state
        == "armed"
    )


def test_a_quiet_bucket_says_how_far_from_its_bar_it_is_and_what_it_would_have_seen() -> None:
    state = judged(failures(random(4), 30, 400, 0.02), 30).state
    quiet = told(state)
    assert (quiet.state, quiet.reason) == ("quiet", "within_bar")
    assert quiet.ratio is not None
    assert 0 <= quiet.ratio < 1
    assert quiet.smallest is not None
    assert 0.02 < quiet.smallest < 0.06
    # What it says it would have seen within a week, it sees within two.
    worse = failures(random(5), 50, 400, rates(50, 0.02, quiet.smallest, 30 * DAY))
    fired = [alarm.fired for alarm in judged(worse, 50).rises if alarm.fired > START + 30 * DAY]
    assert fired
    assert fired[0] < START + 44 * DAY


def test_a_live_alarm_is_the_state_of_its_bucket() -> None:
    assert (
        told(judged(failures(random(6), 12, 400, rates(12, 0.02, 0.4, 10 * DAY)), 12).state).state == "alarm"
    )
    shifted = drifted(sizes(random(7), 24, 200, shift=from_slot(24, 22 * DAY, math.log(3))), 24).state
    assert report(drift_view(shifted, DriftSettings()), shifted.cursor).state == "alarm"


def test_a_bucket_is_stale_after_a_week_or_ten_of_its_usual_gaps() -> None:
    busy = judged(failures(random(8), 10, 400, 0.02), 10).state
    assert told(busy, START + 16 * DAY).state == "quiet"
    assert told(busy, START + 18 * DAY).state == "stale"
    rare = attrs.evolve(RateState.start(START, reference(90, 1, days=90)), first_seen=START, last_seen=START)
    assert told(rare, START + 9 * DAY).state != "stale"
    assert told(rare, START + 11 * DAY).state == "stale"


def test_what_hinders_measuring_comes_before_a_mute_and_a_mute_before_an_alarm() -> None:
    view = rate_view(judged(failures(random(6), 12, 400, rates(12, 0.02, 0.4, 10 * DAY)), 12).state, SETTINGS)
    assert report(view, START, hindrance="unpriced", muted=True) == BucketReport("quiet", "unpriced")
    assert report(view, START, muted=True).reason == "muted"


def test_a_drift_bucket_says_the_smallest_ratio_it_would_have_seen() -> None:
    state = drifted(sizes(random(9), 25, 200), 25).state
    quiet = report(drift_view(state, DriftSettings()), state.cursor)
    assert (quiet.state, quiet.reason) == ("quiet", "within_bar")
    assert quiet.smallest is not None
    assert 1.14 < quiet.smallest < 1.3
    learning = drifted(sizes(random(9), 3, 200), 3).state
    assert report(drift_view(learning, DriftSettings()), learning.cursor).state == "learning"


# --- severity --------------------------------------------------------------------------------------------


@given(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1))
def test_severity_lies_between_none_and_one_and_grows_with_reach(
    before: float, after: float, reach: float
) -> None:
    value = severity.of_rate(before, after, reach)
    assert 0 <= value <= 1
    assert value <= severity.of_rate(before, after, 1)
    assert value == severity.of_rate(after, before, reach)


def test_an_eightfold_size_everywhere_is_as_bad_as_it_gets() -> None:
    assert severity.of_ratio(8, 1) == severity.of_ratio(1 / 8, 1) == 1
    assert severity.of_ratio(2, 0.25) == pytest.approx(1 / 6 + 1 / 4)
    assert severity.of_ratio(1, 0) == 0
    with pytest.raises(ValueError, match="above 0"):
        severity.of_ratio(0, 1)


def test_bands_begin_where_they_say_and_improvements_are_info() -> None:
    assert [severity.band(s) for s in (0.0, 0.32, 0.33, 0.65, 0.66, severity.SECRET)] == [
        "low",
        "low",
        "medium",
        "medium",
        "high",
        "high",
    ]
    assert severity.band(1, harmful=False) == "info"


# --- confirmed by rule -----------------------------------------------------------------------------------

SOUND = Evidence(
    harmful=True,
    rarer=True,
    slots=3,
    traces=5,
    sessions=2,
    reference=(START - 7 * DAY, START),
    blocks=2**28 - 1,
    seen_at=START + 100,
    rate=(0.02, 0.04),
)


def test_a_finding_is_confirmed_when_all_six_conditions_hold() -> None:
    assert failing(SOUND) == ()


@pytest.mark.parametrize(
    ("change", "condition"),
    [
        ({"harmful": False}, "direction"),
        ({"rarer": False}, "rarity"),
        ({"slots": 2}, "spread"),
        ({"traces": 4}, "spread"),
        ({"sessions": 1}, "spread"),
        ({"rate": (0.02, 0.035)}, "size"),
        ({"rate": None, "ratio": 1.24}, "size"),
        ({"rate": None}, "size"),
        ({"reference": (START - 6 * DAY, START)}, "reference"),
        ({"blocks": 0b01}, "reference"),
        ({"explained_by": "tool_error_rate:search:up"}, "explained"),
    ],
)
def test_each_condition_withholds_alone_and_has_its_sentence(
    change: dict[str, object], condition: case_rules.Condition
) -> None:
    assert failing(attrs.evolve(SOUND, **change)) == (condition,)
    assert case_rules.REASONS[condition]


def test_any_of_the_sizes_is_enough() -> None:
    assert failing(attrs.evolve(SOUND, rate=(0.3, 0.35))) == ()
    # A doubling as it is measured.
    assert failing(attrs.evolve(SOUND, rate=(0.04, 0.073))) == ()
    assert failing(attrs.evolve(SOUND, rate=(0.04, 0.071))) == ("size",)
    assert failing(attrs.evolve(SOUND, rate=None, ratio=1.25)) == ()
    assert failing(attrs.evolve(SOUND, rate=None, ratio=1.1, dollars_a_day=10.0)) == ()


def test_all_that_fails_is_named_in_order() -> None:
    worst = attrs.evolve(
        SOUND, harmful=False, rarer=False, slots=0, rate=(0.5, 0.5), blocks=0, explained_by="x"
    )
    assert failing(worst) == tuple(case_rules.REASONS)


# --- joining ---------------------------------------------------------------------------------------------


def candidate(
    key: str, cause: str, at: int = 0, traces: range = range(0), subjects: str = "", width: int = 0
) -> Candidate:
    return Candidate(
        key,
        cause,
        Onset(START + at - width // 2, START + at, START + at + width - width // 2),
        frozenset(n.to_bytes(4, "big") for n in traces),
        frozenset(subjects.split()),
    )


def test_findings_of_one_outage_join_by_half_the_traces_of_the_smaller() -> None:
    one = candidate("a", "tool_error", traces=range(100))
    assert joined(one, candidate("b", "cost", DAY, range(90, 110)))
    assert not joined(one, candidate("b", "cost", DAY, range(91, 111)))
    assert not joined(one, candidate("b", "cost"))


def test_findings_join_by_a_shared_subject() -> None:
    one = candidate("a", "tool_error", subjects="search chat")
    assert joined(one, candidate("b", "turn_duration", subjects="chat"))
    assert not joined(one, candidate("b", "turn_duration", subjects="mail"))


def test_findings_join_only_when_they_began_within_a_day_or_their_onset_intervals() -> None:
    one = candidate("a", "tool_error", subjects="s")
    assert joined(one, candidate("b", "cost", DAY, subjects="s"))
    assert not joined(one, candidate("b", "cost", DAY + 1, subjects="s"))
    assert joined(one, candidate("b", "cost", 2 * DAY, subjects="s", width=2 * DAY))


def test_secrets_never_join() -> None:
    one = candidate("a", "secret_leak", traces=range(10), subjects="s")
    assert not joined(one, candidate("b", "secret_leak", traces=range(10), subjects="s"))
    assert not joined(candidate("c", "tool_error", traces=range(10)), one)


def test_of_failures_and_their_new_kind_the_failures_lead_whichever_began_first() -> None:
    for rate_key, kind_key in (("a", "b"), ("b", "a")):
        rate = candidate(rate_key, "tool_error", traces=range(10))
        new_kind = candidate(kind_key, "new_signature", traces=range(10))
        assert min(rate, new_kind, key=lambda finding: finding.rank) is rate
        earlier = candidate(kind_key, "new_signature", -1, range(10))
        assert min(rate, earlier, key=lambda finding: finding.rank) is rate


def test_one_outage_is_one_case_whatever_the_order_of_its_findings() -> None:
    outage = [
        candidate("cost:chat", "cost", 20, range(50), "chat"),
        candidate("turn:chat", "turn_duration", 10, range(40, 90), "chat"),
        candidate("tool:search", "tool_duration", 5, range(60, 80), "search"),
        candidate("err:search", "tool_error", 8, range(60, 70)),
    ]
    other = candidate("err:mail", "tool_error", 9, range(900, 950), "mail")
    for order in itertools.permutations([*outage, other]):
        found = cases(order)
        assert [[f.key for f in case] for case in found] == [
            ["err:search", "tool:search", "turn:chat", "cost:chat"],
            ["err:mail"],
        ]


def test_two_tools_of_a_call_site_that_break_hours_apart_are_two_cases_whatever_both_slow_down() -> None:
    search = candidate("search", "tool_error", 0, range(100), "tool:search site:desk", width=12)
    pay = candidate("pay", "tool_error", 72, range(100, 140), "tool:pay site:desk", width=12)
    turn = candidate("turn", "turn_duration", 36, range(60, 140), "site:desk", width=100)
    for order in itertools.permutations([search, pay, turn]):
        assert [[f.key for f in case] for case in cases(order)] == [["search"], ["pay", "turn"]] or [
            [f.key for f in case] for case in cases(order)
        ] == [["search", "turn"], ["pay"]]
    at_once = candidate("pay", "tool_error", 8, range(100, 140), "tool:pay site:desk", width=12)
    assert [len(case) for case in cases([search, at_once, turn])] == [3]


def test_causes_have_an_order_and_equal_ones_go_by_onset() -> None:
    ordered = [candidate(cause, cause, -i) for i, cause in enumerate(case_rules.CAUSE_ORDER)]
    assert sorted(ordered, key=lambda c: c.rank)[2:] == ordered[2:]
    assert candidate("a", "tool_error", 1).rank < candidate("b", "new_signature", 2).rank
    assert candidate("a", "unheard_of").rank > candidate("b", "cost").rank


def test_an_effect_is_listed_under_the_cause_that_explains_half_of_it() -> None:
    case = [candidate("t", "turn_duration"), candidate("e", "tool_error"), candidate("c", "cost")]
    told_ = roles(case, {("t", "e"): 0.8, ("c", "e"): 0.3, ("c", "t"): 0.49})
    assert [(r.key, r.role, r.under, r.explained_share) for r in told_] == [
        ("e", "cause", None, None),
        ("t", "effect", "e", 0.8),
        ("c", "cause", None, None),
    ]


def test_an_explained_share_lies_between_none_and_all() -> None:
    assert case_rules.explained_share(100, 25) == 0.75
    assert case_rules.explained_share(100, 140) == 0
    assert case_rules.explained_share(-0.2, 0.1) == 1
    assert case_rules.explained_share(0, 5) == 0
    assert case_rules.explained_by_tool(300, 400) == 0.75
    assert case_rules.explained_by_tool(300, 0) == 0


# --- the end of a case -----------------------------------------------------------------------------------


def test_a_case_is_over_when_every_cause_has_recovered() -> None:
    assert change_point.recovered([True, True])
    assert not change_point.recovered([True, False])
    assert not change_point.recovered([])


def test_a_cause_that_returns_within_a_week_reopens_its_case() -> None:
    resolved = START + 10 * DAY
    assert change_point.returned(resolved, START, START) == "same"
    assert change_point.returned(resolved, START, resolved + 7 * DAY) == "reopened"
    assert change_point.returned(resolved, START, resolved + 7 * DAY + 1) == "new"


def test_a_rise_of_severity_by_a_tenth_is_told() -> None:
    assert change_point.escalated(0.4, 0.5)
    assert not change_point.escalated(0.4, 0.49)


@given(st.integers(1, 200), st.floats(0.001, 0.4))
def test_on_the_way_back_successes_climb_and_failures_fall(failed: int, p0: float) -> None:
    way = change_point.rate_return(p0, min(2 * p0, 0.99), failed + 5, failed, 100, 1.0)
    assert way.success > 0 > way.failure
    fewer = change_point.rate_return(p0, p0 / 2, 500, 0, 100, 1.0)
    assert fewer.failure > 0 > fewer.success
