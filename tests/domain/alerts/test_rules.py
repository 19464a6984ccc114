"""Laws of rules: what they may ask for, when they fire over a history, what a storm becomes."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any, cast
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.alerts import (
    ITEMS_NAMED,
    RULE_KINDS,
    AlertEvent,
    AlertFacts,
    AlertPlace,
    AlertRule,
    EventState,
    RuleKind,
)
from protocol.samples import BackupSample, CertificateSample, DiskSample, Sample
from svc.domain.alerts.calendar import digests_since, first_look, next_digest
from svc.domain.alerts.checking import (
    metric_path,
    saw_backup,
    saw_certificate,
    saw_disk,
    saw_down,
    saw_letters,
)
from svc.domain.alerts.composing import INCIDENTS_MOST, composed
from svc.domain.alerts.metric import HourFigures, figures_of, firings, judge, summed
from svc.domain.alerts.params import (
    PARAMS,
    BackupParams,
    BadParams,
    CertificateParams,
    DigestParams,
    DiskParams,
    DownParams,
    LettersParams,
    MetricParams,
    SilentParams,
    kept_params,
    read_params,
    typed_params,
)
from svc.domain.alerts.sampled import sampled_firings
from svc.domain.alerts.silence import Heard, silences, silent
from svc.domain.alerts.words import sentence_of

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def rule(kind: RuleKind = "case.opened") -> AlertRule:
    return AlertRule(1, UUID(int=1), kind, "rule", {}, (), NOW, NOW)


def event(number: int, state: EventState = "told", severity: str = "low") -> AlertEvent:
    facts = AlertFacts(title=f"cause {number}", severity=severity, path=f"/cases/C-{number}")  # type: ignore[arg-type]
    return AlertEvent(number, f"C-{number}", state, facts, NOW + timedelta(seconds=number))


PLACE = AlertPlace("default", "shop")


@pytest.mark.parametrize("kind", RULE_KINDS)
def test_every_kind_has_params_that_survive_being_kept_and_a_sentence(kind: RuleKind) -> None:
    given = {"dataset": "traces", "value": 1.0} if kind == "metric" else {}
    params = read_params(kind, given)
    assert read_params(kind, kept_params(params)) == params
    assert sentence_of(kind, params)[0].islower()
    with pytest.raises(BadParams, match="unknown field `nonsense`"):
        read_params(kind, given | {"nonsense": 1})
    assert set(PARAMS) == set(RULE_KINDS)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"dataset": "tool_calls", "figure": "p95_ms", "value": 1}, "only count and error_rate are known"),
        ({"dataset": "tool_calls", "figure": "cost", "value": 1}, "only count and error_rate are known"),
        ({"dataset": "classifier_events", "figure": "cost", "value": 1}, "only count is known"),
        ({"dataset": "traces", "figure": "error_rate", "value": 10}, "share from 0 to 1"),
        ({"dataset": "traces", "value": 1, "window_hours": 25}, "window_hours"),
        ({"dataset": "traces", "value": -1}, "value"),
        ({"dataset": "spans", "filters": {f"f{n}": "x" for n in range(11)}, "value": 1}, "at most 10"),
        ({"dataset": "spans", "filters": {"name": "x" * 501}, "value": 1}, "longer than 500"),
    ],
)
def test_a_figure_that_is_not_known_is_refused_by_name(given: dict[str, Any], told: str) -> None:
    with pytest.raises(BadParams, match=told):
        read_params("metric", given)


def test_texts_are_read_as_what_they_stand_for() -> None:
    typed = {"dataset": "tools", "filters.name": "lookup", "value": "0.2", "figure": "error_rate"}
    params = typed_params("metric", typed)
    assert isinstance(params, MetricParams)
    assert (params.filters, params.value) == ({"name": "lookup"}, 0.2)
    assert typed_params("case.opened", {"detectors": "a, b c"}).detectors == ["a", "b", "c"]  # type: ignore[union-attr]
    with pytest.raises(BadParams):
        typed_params("digest", {"at": "25:00"})


def metric(**more: Any) -> MetricParams:
    plain: dict[str, Any] = {"dataset": "traces", "figure": "count", "value": 10.0, "least": 0}
    return MetricParams(**(plain | more))


figures = st.builds(
    lambda n, failed, cost, bin_: figures_of(n, min(failed, n), cost, {bin_: n} if n else {}),
    st.integers(0, 50),
    st.integers(0, 50),
    st.floats(0, 5),
    st.integers(0, 319),
)


@given(st.lists(figures, min_size=30, max_size=80), st.integers(1, 6), st.floats(0, 100))
def test_over_a_history_a_rule_fires_where_its_condition_begins_to_hold(
    hours: list[HourFigures], width: int, bound: float
) -> None:
    params = metric(window_hours=width, value=bound)
    fired = firings(params, hours, NOW, NOW)
    held = [judge(params, summed(hours[end - width : end])).holds for end in range(width, len(hours) + 1)]
    begins = [
        NOW + (at + width) * HOUR for at, now in enumerate(held) if now and (at == 0 or not held[at - 1])
    ]
    assert fired == begins


@given(st.lists(figures, min_size=1, max_size=12))
def test_a_window_is_the_sum_of_its_hours(hours: list[HourFigures]) -> None:
    whole = summed(hours)
    assert whole.n == sum(one.n for one in hours)
    assert whole.durations.sum() == whole.n
    for figure in ("count", "cost", "error_rate", "p95_ms"):
        value = judge(metric(figure=figure, value=0.5), whole).value
        assert value is None or value >= 0
        if figure == "error_rate" and value is not None:
            assert value <= 1


@pytest.mark.parametrize(
    ("bound", "now", "usual", "holds"),
    [
        ("rises", 30, [20] * 7, True),
        ("rises", 29, [20] * 7, False),
        ("falls", 10, [20] * 7, True),
        ("falls", 11, [20] * 7, False),
        ("rises", 300, [20] * 2, False),
        ("rises", 300, [0] * 7, False),
        ("falls", 0, [20] * 3 + [0] * 4, True),
    ],
)
def test_a_change_is_measured_against_the_days_before_that_are_known(
    bound: str, now: int, usual: list[int], holds: bool
) -> None:
    before = [figures_of(n, 0, 0.0, {}) for n in usual]
    params = metric(bound=bound, value=50.0)
    assert judge(params, figures_of(now, 0, 0.0, {}), before).holds is holds


def test_a_few_rows_are_not_judged_but_where_a_count_falls() -> None:
    few = figures_of(3, 3, 0.0, {})
    assert not judge(metric(figure="error_rate", value=0.1, least=20), few).holds
    assert judge(metric(figure="error_rate", value=0.1, least=3), few).holds
    assert judge(metric(bound="below", value=5.0, least=20), few).holds
    assert judge(metric(figure="error_rate", value=0.1), figures_of(0, 0, 0.0, {})).value is None


@given(st.integers(1, 600), st.booleans())
def test_a_storm_is_few_messages_and_every_event_stands_in_one(cases: int, incidents: bool) -> None:
    events = [event(n) for n in range(1, cases + 1)]
    made = composed(rule(), events, PLACE, incidents=incidents)
    assert sum(len(one.items) + one.more for one in made) == cases
    assert all(len(one.items) <= ITEMS_NAMED for one in made)
    assert len(made) == (min(cases, INCIDENTS_MOST + 1) if incidents else 1)
    assert len({one.dedup_key for one in made}) == len(made)


def test_the_worst_severity_is_that_of_the_message() -> None:
    [made] = composed(rule(), [event(1), event(2, severity="high"), event(3)], PLACE, incidents=False)
    assert (made.severity, made.title, made.path) == ("high", "3 cases opened", "/triage")


def test_what_is_over_is_told_apart_and_closes_what_was_told() -> None:
    events = [event(1, "firing"), event(2, "over"), event(3, "over")]
    told = composed(rule("ingest.silent"), events, PLACE, incidents=False)
    assert [one.title for one in told] == ["cause 1", "Over: 2 services have fallen silent"]
    each = composed(rule("ingest.silent"), events, PLACE, incidents=True)
    assert [one.state for one in each] == ["firing", "over", "over"]
    assert [one.dedup_key for one in each] == [f"default/shop/{UUID(int=1)} C-{n}" for n in (1, 2, 3)]
    # Of a rule for opened cases only incidents are closed.
    assert composed(rule(), [event(1, "over")], PLACE, incidents=False) == []
    [closing] = composed(rule(), [event(1, "over")], PLACE, incidents=True)
    assert (closing.state, closing.dedup_key) == ("over", "default/shop/C-1")


@given(
    st.sampled_from(["day", "week"]),
    st.integers(0, 23),
    st.integers(0, 59),
    st.integers(0, 6),
    st.datetimes(datetime(2026, 1, 1), datetime(2027, 12, 1), timezones=st.just(UTC)),
)
def test_a_digest_is_due_next_at_its_hour_and_day(
    every: Any, hour: int, minute: int, weekday: int, after: datetime
) -> None:
    params = DigestParams(every, f"{hour:02}:{minute:02}", weekday)
    due = next_digest(params, after)
    assert after < due <= after + timedelta(days=1 if every == "day" else 7)
    assert (due.hour, due.minute, due.second) == (hour, minute, 0)
    assert every == "day" or due.weekday() == weekday
    assert first_look("digest", params, after) == due
    assert first_look("case.opened", params, after) is None


def test_digests_of_four_weeks_are_counted_by_the_calendar() -> None:
    since = NOW - timedelta(days=28)
    assert len(digests_since(DigestParams("day"), since, NOW)) == 28
    assert len(digests_since(DigestParams("week"), since, NOW)) == 4


def heard(*ages: int, hours_ago: float) -> Heard:
    last = NOW - timedelta(hours=hours_ago)
    return Heard(frozenset(last.date() - timedelta(days=age) for age in ages), last)


def test_silent_is_who_spoke_daily_and_nobody_else() -> None:
    services = {
        "daily": heard(*range(7), hours_ago=30),
        "now": heard(*range(7), hours_ago=1),
        "gaps": heard(0, 1, 3, 4, 5, 6, hours_ago=30),
        "new": heard(0, 1, hours_ago=30),
    }
    params = SilentParams(hours=26, days=7)
    assert silent(params, services, NOW) == {"daily": services["daily"].last_at}
    assert silences(params, services, NOW - timedelta(days=28), NOW) == [NOW - timedelta(hours=4)]


def test_a_weekend_between_two_weeks_would_have_been_told() -> None:
    days = frozenset(date(2026, 11, 1) + timedelta(days=n) for n in range(20) if n not in (10, 11, 12))
    found = silences(
        SilentParams(hours=26, days=7),
        {"shop": Heard(days, NOW)},
        NOW - timedelta(days=28),
        NOW,
    )
    assert found == [datetime(2026, 11, 12, 2, tzinfo=UTC)]


def test_the_disk_is_told_nearly_full_full_and_before_it_comes_to_that() -> None:
    def seen(level: str, reached_on: date | None) -> set[str]:
        return set(saw_disk(DiskParams(7), level, 90, 100, reached_on, NOW).firing)

    assert seen("ok", None) == set()
    assert seen("ok", NOW.date() + timedelta(days=7)) == {"disk forecast"}
    assert seen("ok", NOW.date() + timedelta(days=8)) == set()
    assert seen("tell", NOW.date()) == seen("drop", None) == {"disk"}
    assert seen("full", None) == {"disk", "disk full"}


def test_a_backup_that_failed_is_late_or_was_never_made_is_told() -> None:
    def seen(good: datetime | None, error: str | None, began_h: float = 1) -> set[str]:
        began = NOW - timedelta(hours=began_h)
        return set(saw_backup(BackupParams(26), good, error, began, NOW).firing)

    assert seen(NOW, None) == set()
    assert seen(NOW - timedelta(hours=27), None) == {"backup"}
    assert seen(NOW, "no room") == {"backup failed"}
    assert seen(None, None) == set(), "the service has just begun"
    assert seen(None, None, began_h=27) == {"backup"}


def test_a_certificate_is_told_before_it_ends_and_none_is_no_news() -> None:
    params = CertificateParams(14)
    assert saw_certificate(params, 15 * 86_400, NOW).firing == {}
    told = saw_certificate(params, 13 * 86_400, NOW).firing["certificate"]
    assert (told.severity, told.title) == ("medium", "The certificate expires on 2026-12-03")
    assert saw_certificate(params, -1, NOW).firing["certificate"].title == "The certificate has expired"
    assert saw_certificate(params, None, NOW).trouble is not None


def test_ingest_is_told_down_after_so_long_and_dead_letters_from_so_many_on() -> None:
    params = DownParams(minutes=2)
    for age_s, told in ((119, False), (120, True)):
        seen = saw_down(params, "host", NOW - timedelta(seconds=age_s), "why", NOW)
        assert bool(seen.firing) is told
        assert seen.covers == "ingest of host"
    assert saw_letters(LettersParams(10), 9, NOW, "no", NOW).firing == {}
    facts = saw_letters(LettersParams(10), 10, NOW, "planted payload", NOW).firing["dead letters"]
    assert "planted" not in str(facts)


def test_a_rule_about_the_instance_would_have_fired_where_its_live_look_begins_to() -> None:
    def hours(*given: Sample) -> list[tuple[datetime, Sample]]:
        return [(NOW + timedelta(hours=place), sample) for place, sample in enumerate(given)]

    def fired(kind: RuleKind, samples: list[tuple[datetime, Sample]], **given: Any) -> list[int]:
        found = sampled_firings(cast(Any, read_params(kind, given)), samples)
        return [(at - NOW) // timedelta(hours=1) for at in found]

    ok, tell, full = (DiskSample(level=level, used=9, budget=10) for level in ("ok", "tell", "full"))
    near = DiskSample(level="ok", used=9, budget=10, reached_on=NOW.date() + timedelta(days=5))
    # The same again is no news, one thing more is.
    disk = hours(ok, tell, tell, ok, tell, full, ok, near)
    assert fired("disk.budget", disk) == [1, 4, 5, 7]
    assert fired("disk.budget", disk, forecast_days=4) == [1, 4, 5]
    good = BackupSample(began_at=NOW, last_good_at=NOW - timedelta(hours=24))
    failed = BackupSample(began_at=NOW, last_good_at=NOW - timedelta(hours=24), failed=True)
    backup = hours(good, good, good, good, failed, failed)
    assert fired("backup.old", backup) == [3, 4]
    assert fired("backup.old", backup, hours=48) == [4]
    assert fired("backup.old", hours(*[BackupSample(began_at=NOW)] * 30)) == [27]
    ends = CertificateSample(ends_at=NOW + timedelta(days=14, hours=2))
    assert fired("certificate.expiring", hours(ends, ends, ends, ends)) == [2]
    assert fired("certificate.expiring", hours(ends, ends, ends, ends), days=7) == []


@pytest.mark.parametrize(
    ("more", "path"),
    [
        ({}, "/vitals"),
        ({"filters": {"call_site_id": "support.answer"}}, "/vitals"),
        ({"dataset": "tools", "filters": {"tool": "lookup"}}, "/vitals/tools"),
        (
            {"dataset": "tools", "filters": {"name": "lookup"}},
            "/explore?dataset=spans&measure=count&q=kind%3Atool+name%3Alookup&range=24h",
        ),
        (
            {"dataset": "tools", "figure": "p95_ms", "filters": {"attr.tenant.id": "acme & co"}},
            "/explore?dataset=spans&measure=duration_p95&q=kind%3Atool+attr.tenant.id%3A%22acme+%26+co%22&range=24h",
        ),
        (
            {"dataset": "spans", "figure": "cost", "filters": {"environment": None, "attr.a b": "x"}},
            "/explore?dataset=spans&measure=cost&q=environment%3Anull&range=24h",
        ),
        ({"dataset": "tool_calls"}, "/explore?dataset=tool_calls&measure=count&range=24h"),
    ],
)
def test_an_alert_about_a_figure_leads_to_where_it_is_shown(more: dict[str, Any], path: str) -> None:
    assert metric_path(metric(**more)) == path
