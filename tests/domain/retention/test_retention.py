"""Terms and cutoffs: whole days, payloads ahead of spans, 0 for ever."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from svc.domain.retention.terms import Cutoffs, Override, Terms, cutoffs

DAY = timedelta(days=1)
MOMENTS = st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC))


@given(st.integers(1, 36_500), MOMENTS)
def test_nothing_expires_before_its_term_or_two_days_after_it(days: int, now: datetime) -> None:
    cut = cutoffs(Terms(days, days), now)
    assert cut.traces is not None
    assert cut.payloads is not None
    assert days * DAY <= now - cut.traces < (days + 1) * DAY
    assert cut.detections == cut.traces
    assert cut.payloads - cut.traces == (DAY if days > 1 else timedelta(0))


@given(MOMENTS)
def test_zero_never_expires(now: datetime) -> None:
    assert cutoffs(Terms(0, 0), now) == Cutoffs(None, None, None)


def test_a_term_behind_the_calendar_never_expires() -> None:
    assert cutoffs(Terms(10**6, 10**6), datetime(2026, 11, 1, tzinfo=UTC)).traces is None


def test_an_override_replaces_term_by_term_and_zero_is_a_term() -> None:
    defaults = Terms(90, 30)
    assert Override().over(defaults) == defaults
    assert Override(traces=0).over(defaults) == Terms(0, 30)
    assert Override(7, 8).over(defaults) == Terms(7, 8)
